//===- Passes.h - From one rank's program to schedules ----------*- C++ -*-===//
#ifndef PARTITA_PASSES_STAGE_PASSES_H
#define PARTITA_PASSES_STAGE_PASSES_H

#include "partita/Topology/Topology.h"
#include "partita/Train/Spec.h"

#include "mlir/Pass/Pass.h"

namespace partita {

#define GEN_PASS_DECL
#include "passes/Stage/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Stage/Passes.h.inc"

/// `partita-split-collectives` as `--hierarchical` and `--comm-reuse` ask for it. Absent:
/// no collective goes level by level. `mostGroups`: 0 is any number.
std::unique_ptr<mlir::Pass> createSplitCollectivesPass(std::optional<Topology> topology,
                                                       int64_t mostGroups);

/// `partita-order-communication` as a training file, `--comm-in-flight` and
/// `--comm-reuse` ask for it. `mostCalls`: distinct ones; 0 is any number.
std::unique_ptr<mlir::Pass> createOrderCommunicationPass(train::CommFusion fusion,
                                                         int64_t inFlight,
                                                         int64_t mostCalls);

} // namespace partita

#endif // PARTITA_PASSES_STAGE_PASSES_H
