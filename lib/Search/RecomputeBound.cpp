//===- RecomputeBound.cpp - No step is faster, whatever it repeats --------===//
#include "partita/Search/RecomputeBound.h"

#include "UnderMemory.h"

#include <unordered_set>

using namespace partita;
using namespace partita::search;

/// The ops that run again.
static std::vector<int32_t> repeatedOps(const Model &model,
                                        const std::vector<uint32_t> &answer) {
  std::vector<int32_t> ops;
  for (size_t op = 0; op < model.variables.size(); ++op) {
    if (model.variables[op] < 0)
      continue;
    const size_t block =
        answer[static_cast<size_t>(model.variables[op])] / model.choices[op]->size();
    if (block > 0 && block <= model.repeatedBlocks[op])
      ops.push_back(static_cast<int32_t>(op));
  }
  return ops;
}

/// Their nodes, each once, in the order of the program.
static std::vector<std::string> nodesOf(const FlowGraph &graph,
                                        const std::vector<int32_t> &ops) {
  std::vector<std::string> nodes;
  std::unordered_set<std::string> known;
  for (int32_t op : ops)
    if (const std::string &name = graph.ops[static_cast<size_t>(op)].name;
        known.insert(name).second)
      nodes.push_back(name);
  return nodes;
}

Expected<std::optional<AnyRecompute>> search::anyRecompute(const FlowGraph &graph,
                                                           const Placement &placement,
                                                           const SearchOptions &options) {
  Timing timing(graph, placement, /*anyRecompute=*/true);
  SearchOptions space = options;
  space.model.anyRecompute = true;
  auto model = modelOf(timing, space);
  if (!model)
    return tl::unexpected(model.error());
  if (options.memoryLimit && model->fixedBytes >= *options.memoryLimit)
    return std::nullopt;
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
  AnyRecompute result{static_cast<Picos>(solution->lowerBound)};
  if (!solution->choices.empty()) {
    for (int32_t op : repeatedOps(*model, solution->choices)) {
      const auto variable =
          static_cast<size_t>(model->variables[static_cast<size_t>(op)]);
      const uint32_t choice = solution->choices[variable];
      const std::vector<int64_t> &costs = model->problem.variables[variable].costs;
      result.repeatedTime +=
          costs[choice] - costs[choice % model->choices[static_cast<size_t>(op)]->size()];
    }
    result.nodes = nodesOf(graph, repeatedOps(*model, solution->choices));
  }
  return result;
}
