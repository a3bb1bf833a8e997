//===- Passes.h - Rewrites of whole programs --------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_SIMPLIFY_PASSES_H
#define PARTITA_PASSES_SIMPLIFY_PASSES_H

#include "mlir/Pass/Pass.h"

namespace partita {

#define GEN_PASS_DECL
#include "passes/Simplify/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Simplify/Passes.h.inc"

} // namespace partita

#endif // PARTITA_PASSES_SIMPLIFY_PASSES_H
