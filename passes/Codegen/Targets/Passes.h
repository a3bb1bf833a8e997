//===- Passes.h - Code for targets ------------------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_TARGETS_PASSES_H
#define PARTITA_PASSES_CODEGEN_TARGETS_PASSES_H

#include "mlir/Pass/Pass.h"

namespace partita {

#define GEN_PASS_DECL
#include "passes/Codegen/Targets/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Codegen/Targets/Passes.h.inc"

} // namespace partita

#endif // PARTITA_PASSES_CODEGEN_TARGETS_PASSES_H
