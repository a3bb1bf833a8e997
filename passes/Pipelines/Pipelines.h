//===- Pipelines.h - The pipelines of all commands --------------*- C++ -*-===//
//
// Each is built here once: `partita compile`, `partita-opt` and the plugin run the same
// passes. Registered under the names in docs/plan-ir.md:
//   partita-plan{mesh=… mode=… hints=… plan=… explain=… all-to-all=…}   L0 or L1 → L2
//   partita-ranks                                                       L2 → L3
//   partita-cpu{… threads=…}                                            L0 → kernels
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_PIPELINES_PIPELINES_H
#define PARTITA_PASSES_PIPELINES_PIPELINES_H

#include "partita/Rule/Decide/Hints.h"
#include "partita/Train/Spec.h"
#include "passes/Shard/Passes.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"

namespace partita {

/// Cleans up an imported program, and its gate.
void buildImportedPipeline(mlir::OpPassManager &manager);
/// A training step of an imported program by a specification, and the gate of L1. An
/// attention of which hints name a part stays as it is, and every one if
/// `isAttentionApart` (Stack::attentionApart).
void buildTrainedPipeline(mlir::OpPassManager &manager, const train::Spec &spec,
                          const Hints *hints = nullptr, bool isAttentionApart = false);
/// Evaluation of an imported program by the loss of a specification.
void buildEvaluatedPipeline(mlir::OpPassManager &manager, const train::Spec &spec);
/// Conversions of a program with strategies, and the gate of L2.
void buildConversionsPipeline(mlir::OpPassManager &manager,
                              const std::string &explain = {});
/// Strategies, conversions, and the gate of L2.
void buildPlanPipeline(mlir::OpPassManager &manager, const ShardPassOptions &options);
/// Copies ops that are marked to be computed again, combines moments of norms, and the
/// gate of L2: then a planned program has the conversions that ranks make.
void buildLastConversionsPipeline(mlir::OpPassManager &manager);
/// One rank's program, of a plan before or behind its last conversions, and the gate of
/// L3.
void buildRanksPipeline(mlir::OpPassManager &manager);
/// Collectives that may be one call, or in flight where another one starts.
struct CommunicationOrder {
  train::CommFusion fusion = {};
  int64_t inFlight = buckets::Options{}.maxInFlight;
  int64_t mostCalls = 0; ///< distinct ones; 0: any number
};
/// L3 to L4 and its gate: the program runs once. Without `order` collectives stay where
/// they are.
void buildSchedulePipeline(mlir::OpPassManager &manager,
                           const std::optional<CommunicationOrder> &order);
/// A pipeline of level L4 whose schedules say only which segment runs when, to a whole
/// one, and its gate. `order` as above, for the segments that update parameters.
void buildCompleteSchedulesPipeline(mlir::OpPassManager &manager,
                                    const std::optional<CommunicationOrder> &order);
/// From whatever level a module with strategies is at to L3: conversions are inserted
/// unless there are some.
void buildRanksPipelineFor(mlir::OpPassManager &manager, mlir::ModuleOp module);

void registerPartitaPipelines();

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_PIPELINES_H
