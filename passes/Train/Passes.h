//===- Passes.h - Backward pass and optimizer -------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_TRAIN_PASSES_H
#define PARTITA_PASSES_TRAIN_PASSES_H

#include "partita/Train/Spec.h"

#include "mlir/Pass/Pass.h"

namespace partita {

#define GEN_PASS_DECL
#include "passes/Train/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Train/Passes.h.inc"

/// `partita-train` and `partita-mark-recompute` with a specification that was read.
std::unique_ptr<mlir::Pass> createTrainPass(train::Spec spec);
std::unique_ptr<mlir::Pass> createMarkRecomputePass(train::Spec spec);

} // namespace partita

#endif // PARTITA_PASSES_TRAIN_PASSES_H
