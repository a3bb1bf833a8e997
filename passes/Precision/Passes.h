//===- Passes.h - Programs in narrower types --------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_PRECISION_PASSES_H
#define PARTITA_PASSES_PRECISION_PASSES_H

#include "mlir/Pass/Pass.h"

namespace partita {

#define GEN_PASS_DECL
#include "passes/Precision/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Precision/Passes.h.inc"

} // namespace partita

#endif // PARTITA_PASSES_PRECISION_PASSES_H
