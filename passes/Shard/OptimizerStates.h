//===- OptimizerStates.h - The parameters of a training step ----*- C++ -*-===//
#ifndef PARTITA_PASSES_SHARD_OPTIMIZERSTATES_H
#define PARTITA_PASSES_SHARD_OPTIMIZERSTATES_H

#include "dialects/Dist/ProgramFlow.h"
#include "partita/Rule/Decide/OptimizerParallel.h"

namespace partita {

/// What the training step asks for; level 0 where it asks for nothing.
OptimizerParallel optimizerParallelOf(mlir::FunctionOpInterface function);

/// The parameters of a training step, with what belongs to each.
std::vector<ParameterOps> parametersOf(mlir::FunctionOpInterface function,
                                       const dist::ProgramFlow &flow);

} // namespace partita

#endif // PARTITA_PASSES_SHARD_OPTIMIZERSTATES_H
