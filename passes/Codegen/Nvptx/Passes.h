//===- Passes.h - Code for GPUs ---------------------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_NVPTX_PASSES_H
#define PARTITA_PASSES_CODEGEN_NVPTX_PASSES_H

#include "mlir/Pass/Pass.h"

namespace partita {

#define GEN_PASS_DECL
#include "passes/Codegen/Nvptx/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Codegen/Nvptx/Passes.h.inc"

} // namespace partita

#endif // PARTITA_PASSES_CODEGEN_NVPTX_PASSES_H
