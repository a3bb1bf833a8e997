//===- RecomputeBound.cpp - No step is faster, whatever it repeats --------===//
#include "partita/Search/RecomputeBound.h"

#include "Successors.h"
#include "UnderMemory.h"

#include <unordered_map>

using namespace partita;
using namespace partita::search;

Picos RecomputeChoice::time() const {
  Picos sum = 0;
  for (const Node &node : nodes)
    sum += node.time;
  return sum;
}

/// Per op the place of its layer in a row of equal ones, or −1.
static std::vector<int32_t> layersOf(const FlowGraph &graph, const Model &model) {
  constexpr size_t leastLayers = 2;
  std::vector<int32_t> layers(graph.ops.size(), -1);
  for (const auto &run : findSuccessors(graph, model.choices, leastLayers).runs)
    for (size_t layer = 0; layer < run.size(); ++layer)
      layers[static_cast<size_t>(run[layer])] = static_cast<int32_t>(layer);
  return layers;
}

/// The nodes of the ops that run again, each once, in the order of the program.
static RecomputeChoice choiceOf(const FlowGraph &graph, const Model &model,
                                const std::vector<uint32_t> &answer) {
  const std::vector<int32_t> layers = layersOf(graph, model);
  RecomputeChoice choice;
  std::unordered_map<std::string, size_t> known;
  for (size_t op = 0; op < model.variables.size(); ++op) {
    if (model.variables[op] < 0)
      continue;
    const auto variable = static_cast<size_t>(model.variables[op]);
    const size_t number = answer[variable], strategies = model.choices[op]->size(),
                 block = number / strategies;
    if (block == 0 || block > model.repeatedBlocks[op])
      continue;
    const std::string &name = graph.ops[op].name;
    auto [place, added] = known.try_emplace(name, choice.nodes.size());
    if (added)
      choice.nodes.push_back({name, layers[op], 0});
    const std::vector<int64_t> &costs = model.problem.variables[variable].costs;
    choice.nodes[place->second].time += costs[number] - costs[number % strategies];
  }
  return choice;
}

namespace {
/// An answer of a problem in which recompute is chosen.
struct Answer {
  Model model;
  solver::Solution solution;
  size_t tiedLayers = 0;
};
} // namespace

/// Takes what every answer costs off the costs: the solver stops at a fraction of them,
/// and recompute is a small part of a step.
static void takeOffCertain(solver::Problem &problem) {
  auto takeOff = [](std::vector<int64_t> &costs) {
    const int64_t least = *std::ranges::min_element(costs);
    if (least >= solver::forbidden)
      return false;
    for (int64_t &cost : costs)
      cost -= cost < solver::forbidden ? least : 0;
    return least > 0;
  };
  for (solver::Variable &variable : problem.variables)
    takeOff(variable.costs);
  for (solver::Edge &edge : problem.edges) {
    std::vector<int64_t> costs(edge.costs.begin(), edge.costs.end());
    if (takeOff(costs))
      edge.costs = std::move(costs);
  }
}

/// Absent: there is none.
static Expected<std::optional<Answer>> answerOf(Timing &timing,
                                                const SearchOptions &options, Rows rows) {
  SearchOptions space = options;
  space.model.anyRecompute = true;
  size_t tiedLayers = 0;
  auto model = modelOf(timing, space, rows, &tiedLayers);
  if (!model)
    return tl::unexpected(model.error());
  if (options.memoryLimit && model->fixedBytes >= *options.memoryLimit)
    return std::nullopt;
  if (rows == Rows::Most)
    takeOffCertain(model->problem);
  solver::SolveOptions solve;
  solve.timeLimit = options.timeLimit;
  solve.workLimit = options.workLimit;
  solve.threads = options.threads;
  solve.stop = options.stop;
  auto solution =
      MemoryRounds(model->problem, solve, {}, {}, model->fixedBytes)
          .run(options.timeLimit, options.workLimit, std::nullopt, /*isLast=*/false);
  if (!solution)
    return tl::unexpected(solution.error());
  if (solution->status == solver::Status::Infeasible)
    return std::nullopt;
  return Answer{std::move(*model), std::move(*solution), tiedLayers};
}

Expected<std::optional<Bound>> search::boundOfAnyRecompute(const FlowGraph &graph,
                                                           const Placement &placement,
                                                           const SearchOptions &options) {
  Timing timing(graph, placement, /*anyRecompute=*/true);
  auto answer = answerOf(timing, options, Rows::Least);
  if (!answer)
    return tl::unexpected(answer.error());
  if (!*answer)
    return std::nullopt;
  return Bound{static_cast<Picos>((*answer)->solution.lowerBound),
               spaceOf(graph, (*answer)->tiedLayers), Bound::PartOfRecompute};
}

Expected<std::optional<RecomputeChoice>>
search::proposeRecompute(const FlowGraph &graph, const Placement &placement,
                         const SearchOptions &options) {
  Timing timing(graph, placement);
  return answerOf(timing, options, Rows::Most)
      .map([&](auto &&answer) -> std::optional<RecomputeChoice> {
        if (!answer)
          return std::nullopt;
        const std::vector<uint32_t> &choices = answer->solution.choices;
        return choices.empty() ? RecomputeChoice()
                               : choiceOf(graph, answer->model, choices);
      });
}
