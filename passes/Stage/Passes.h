//===- Passes.h - From one rank's program to schedules ----------*- C++ -*-===//
#ifndef PARTITA_PASSES_STAGE_PASSES_H
#define PARTITA_PASSES_STAGE_PASSES_H

#include "partita/Train/Spec.h"

#include "mlir/Pass/Pass.h"

namespace partita {

#define GEN_PASS_DECL
#include "passes/Stage/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Stage/Passes.h.inc"

/// `partita-order-communication` as a training file and `--comm-in-flight` ask for it.
std::unique_ptr<mlir::Pass> createOrderCommunicationPass(train::CommFusion fusion,
                                                         int64_t inFlight);

} // namespace partita

#endif // PARTITA_PASSES_STAGE_PASSES_H
