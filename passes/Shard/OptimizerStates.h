//===- OptimizerStates.h - The parameters of a training step ----*- C++ -*-===//
#ifndef PARTITA_PASSES_SHARD_OPTIMIZERSTATES_H
#define PARTITA_PASSES_SHARD_OPTIMIZERSTATES_H

#include "dialects/Dist/ProgramFlow.h"
#include "partita/Rule/Decide/OptimizerParallel.h"
#include "passes/Shard/KeptLayouts.h"

namespace partita {

/// What the training step asks for; level 0 where it asks for nothing.
OptimizerParallel optimizerParallelOf(mlir::FunctionOpInterface function);

/// The parameters of a training step, with what belongs to each.
std::vector<ParameterOps> parametersOf(mlir::FunctionOpInterface function,
                                       const dist::ProgramFlow &flow);

/// Layouts of states as the training step asks, for strategies that were decided without
/// it: parts of moments, gradients and weights for ranks that hold the same; and
/// what is kept anyway. Absent where it asks for nothing. Notes as optimizerHomes has.
std::optional<KeptLayouts> homesInParts(mlir::FunctionOpInterface function,
                                        const dist::ProgramFlow &flow,
                                        const std::vector<Strategy> &strategies,
                                        const KeptLayouts &kept,
                                        std::vector<std::string> &notes);

} // namespace partita

#endif // PARTITA_PASSES_SHARD_OPTIMIZERSTATES_H
