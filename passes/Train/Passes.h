//===- Passes.h - Backward pass and optimizer -------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_TRAIN_PASSES_H
#define PARTITA_PASSES_TRAIN_PASSES_H

#include "mlir/Pass/Pass.h"

namespace partita {

#define GEN_PASS_DECL
#include "passes/Train/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Train/Passes.h.inc"

} // namespace partita

#endif // PARTITA_PASSES_TRAIN_PASSES_H
