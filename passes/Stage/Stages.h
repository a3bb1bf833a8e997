//===- Stages.h - A function as the programs of a pipeline ------*- C++ -*-===//
//
// A function of level L0 whose ops have stages becomes a module per stage, each with its
// own @main, to be planned and partitioned on a mesh of its own; afterwards one module of
// level L4 that runs them as a pipeline (docs/stages.md).
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_STAGE_STAGES_H
#define PARTITA_PASSES_STAGE_STAGES_H

#include "partita/Base/Bundle/StageOrder.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <set>
#include <string>
#include <vector>

namespace partita {

/// A value that one stage computes and others read. It is a result of the one's @main and
/// an argument of the others', by this name.
struct StageCrossing {
  std::string name;
  int32_t from = 0;
  std::vector<int32_t> to;
};

struct SplitProgram {
  std::vector<mlir::OwningOpRef<mlir::ModuleOp>> stages;
  std::vector<StageCrossing> crossings;
};

/// `stageOf` by op of the function's block, −1 for those without operands: weights and
/// constants are in every stage that reads them, arguments too. What an op reads is in
/// its stage or an earlier one.
SplitProgram splitStages(mlir::func::FuncOp function,
                         const std::vector<int32_t> &stageOf);

/// How the stages of a program run.
struct PipelineShape {
  StageOrder order;
  /// Inputs, outputs and states that have a slot per micro-batch.
  std::set<std::string> sliced;
  std::vector<std::string> outputs; ///< names of the model's, in its order
};

/// What runs a pipeline of partitioned stages (level L3, each with its mesh on the
/// module): one program per group of ranks, in their order, and in it a segment per
/// stage. Stages of one group have one mesh, and what they read in common has one layout
/// and one buffer; so has what one of them computes and another reads. Schedules say in
/// which order segments run; partita-complete-schedules adds the rest.
mlir::OwningOpRef<mlir::ModuleOp> assembleStages(const SplitProgram &program,
                                                 const PipelineShape &shape);

} // namespace partita

#endif // PARTITA_PASSES_STAGE_STAGES_H
