//===- RecomputeBound.cpp - No step is faster, whatever it repeats --------===//
#include "partita/Search/RecomputeBound.h"

#include "UnderMemory.h"

using namespace partita;
using namespace partita::search;

Expected<std::optional<Picos>> search::recomputeBound(const FlowGraph &graph,
                                                      const Placement &placement,
                                                      const SearchOptions &options) {
  Timing timing(graph, placement, /*anyRecompute=*/true);
  SearchOptions space = options;
  space.model.anyRecompute = true;
  auto model = modelOf(timing, space);
  if (!model)
    return tl::unexpected(model.error());
  if (options.memoryLimit && model->fixedBytes > *options.memoryLimit)
    return std::nullopt;
  solver::SolveOptions solve;
  solve.timeLimit = options.timeLimit;
  solve.workLimit = options.workLimit;
  solve.threads = options.threads;
  auto solution =
      MemoryRounds(model->problem, solve, {}, {}, model->fixedBytes)
          .run(options.timeLimit, options.workLimit, std::nullopt, /*isLast=*/false);
  if (!solution)
    return tl::unexpected(solution.error());
  if (solution->status == solver::Status::Infeasible)
    return std::nullopt;
  return static_cast<Picos>(solution->lowerBound);
}
