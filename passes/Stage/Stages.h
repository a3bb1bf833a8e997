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
#include "partita/Base/Error.h"
#include "partita/Comm/StepOrder.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <map>
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
  /// The value crosses once in a request, not with every micro-batch (training steps).
  bool once = false;
};

struct SplitProgram {
  std::vector<mlir::OwningOpRef<mlir::ModuleOp>> stages;
  std::vector<StageCrossing> crossings;
};

/// `stageOf` by op of the function's block, −1 for those without operands: weights and
/// constants are in every stage that reads them, arguments too. A state is in one stage,
/// by its name in `stageOfState`, else in the first that reads it; others get its value.
/// Operands of an op are in its stage or an earlier one.
SplitProgram splitStages(mlir::func::FuncOp function, const std::vector<int32_t> &stageOf,
                         const std::map<std::string, int32_t> &stageOfState = {});

/// On an argument of a stage's @main that comes `once`: the level of the segments that
/// can read it (docs/training-pipelines.md).
inline constexpr llvm::StringLiteral levelAttr = "task.level";
/// On a result of a stage's @main: another stage reads it.
inline constexpr llvm::StringLiteral crossingAttr = "task.crossing";
/// The least level of what stands behind the loop over micro-batches.
inline constexpr int64_t levelBehindLoop = 1000;

/// The parameters that a training step's function has as arguments, in the model's order.
llvm::SmallVector<mlir::StringAttr> trainedParameters(mlir::func::FuncOp step);

/// The stage of every op of a training step, of its loop's body and of its @main; -1:
/// wherever it is read. Forward ops say theirs (stageAttr), gradients inherit it, updates
/// are where their states are. An error: there is no loop over micro-batches.
Expected<llvm::DenseMap<mlir::Operation *, int32_t>> stagesOfStep(mlir::ModuleOp step);

/// A training step, whose @main runs the loop over micro-batches, as a step per stage:
/// each has the forward ops of its stage (stageAttr) with their gradients, the parameters
/// that these read, and their updates. What crosses within a micro-batch is a row of the
/// stage's loop: [micro-batches, …], or [rows of all micro-batches, …] where the value
/// has the batch as its first dim. A state is in one stage; others get its value once,
/// and give their part of its gradient once. An error names an op whose operand is made
/// in a stage that runs later, or says which of the stages has nothing to do.
Expected<SplitProgram> splitStep(mlir::ModuleOp step, int32_t numStages);

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

/// The module that runs a training step of stages that partita-cut-step has cut and that
/// are partitioned since: one program per group of ranks with a buffer for each name, and
/// a schedule from lib/Comm. What stages of one group share lies alike in them. `inputs`
/// have a slice per micro-batch, `outputs` are the step's in its order. What crosses has
/// as few slots as let no rank wait for itself; the schedules are whole. An error where
/// the order cannot be run.
Expected<mlir::OwningOpRef<mlir::ModuleOp>>
assembleStep(const SplitProgram &program, const PipelineStep &shape,
             const std::set<std::string> &inputs,
             const std::vector<std::string> &outputs);

} // namespace partita

#endif // PARTITA_PASSES_STAGE_STAGES_H
