//===- Search.cpp - The fastest plan, with a certificate ------------------===//
#include "partita/Search/Search.h"

#include "Layers.h"
#include "UnderMemory.h"
#include "partita/Solver/Solve.h"

#include <algorithm>
#include <chrono>

using namespace partita;
using namespace partita::search;

double Found::gap() const {
  return cost.total() == 0 ? 0
                           : static_cast<double>(cost.total() - lowerBound) /
                                 static_cast<double>(cost.total());
}

static double secondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Bytes times moments, of which long stays count as many as a layer or two: weights come
/// first, but do not hide what activations need.
static int64_t weighed(const solver::Usage &usage, size_t entry) {
  return usage.bytes[entry] * std::min<int64_t>(usage.end - usage.begin, 64);
}

/// A plan of little memory, whatever it takes: its bytes say what is in the way where
/// nothing fits.
static std::optional<MemoryUse> leastMemory(Timing &timing, Model model,
                                            const SearchOptions &options) {
  solver::Problem &problem = model.problem;
  problem.memoryLimit.reset();
  for (solver::Variable &variable : problem.variables) {
    std::fill(variable.costs.begin(), variable.costs.end(), 0);
    for (const solver::Usage &usage : variable.usages)
      for (size_t c = 0; c < variable.costs.size(); ++c)
        variable.costs[c] += weighed(usage, c);
    variable.usages.clear();
  }
  solver::TablePool pool;
  for (solver::Edge &edge : problem.edges) {
    std::vector<int64_t> bytes(edge.costs.size(), 0);
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (const solver::Usage &usage : edge.usages)
        bytes[i] += weighed(usage, i);
      if (edge.costs[i] == solver::forbidden)
        bytes[i] = solver::forbidden;
    }
    edge.costs = pool.add(std::move(bytes));
    edge.usages.clear();
  }
  solver::SolveOptions solve;
  solve.timeLimit = options.timeLimit / 4;
  solve.workLimit = options.workLimit;
  auto solution = solver::solve(problem, solve);
  if (!solution || solution->choices.empty())
    return std::nullopt;
  return memoryOf(timing, model.decide(timing, solution->choices));
}

tl::expected<Found, NotFound> search::search(const FlowGraph &graph,
                                             const Placement &placement,
                                             const SearchOptions &options) {
  auto begin = std::chrono::steady_clock::now();
  auto fail = [](std::string message) {
    return tl::unexpected(NotFound{std::move(message), true, 0, std::nullopt});
  };
  Timing timing(graph, placement);
  auto model = buildModel(timing, {options.memoryLimit, options.pins});
  if (!model)
    return fail(model.error().message);
  Found found;
  if (options.tieLayers)
    found.tiedLayers = tieLayers(graph, *model);
  found.variables = model->problem.variables.size();
  found.edges = model->problem.edges.size();
  found.buildSeconds = secondsSince(begin);
  begin = std::chrono::steady_clock::now();
  solver::SolveOptions solve;
  solve.timeLimit = options.timeLimit;
  solve.workLimit = options.workLimit;
  solve.threads = options.threads;
  if (options.memoryLimit && model->fixedBytes >= *options.memoryLimit) {
    NotFound reason{"infeasible: small weights that every device holds take " +
                        std::to_string(model->fixedBytes) + " bytes, the limit is " +
                        std::to_string(*options.memoryLimit),
                    true, 0, std::nullopt};
    reason.least = leastMemory(timing, std::move(*model), options);
    return tl::unexpected(std::move(reason));
  }
  int64_t needed = 0;
  auto solution = solveUnderMemory(model->problem, solve, needed);
  if (!solution)
    return fail(solution.error().message);
  if (solution->choices.empty()) {
    NotFound reason{solution->reason, solution->status == solver::Status::Infeasible,
                    static_cast<Picos>(solution->lowerBound), std::nullopt};
    if (options.memoryLimit)
      reason.least = leastMemory(timing, std::move(*model), options);
    return tl::unexpected(std::move(reason));
  }
  found.solveSeconds = secondsSince(begin);
  found.plan = model->decide(timing, solution->choices);
  found.cost = evaluate(timing, found.plan);
  found.lowerBound = static_cast<Picos>(solution->lowerBound);
  found.proved = solution->status == solver::Status::Optimal &&
                 found.cost.total() == found.lowerBound;
  found.memory = memoryOf(timing, found.plan);
  return found;
}
