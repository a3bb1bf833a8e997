//===- Optimize.h - LLVM's passes over kernels ------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_EMIT_OPTIMIZE_H
#define PARTITA_PASSES_CODEGEN_EMIT_OPTIMIZE_H

#include "llvm/Passes/OptimizationLevel.h"

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace partita::codegen {

/// Runs LLVM's usual pipeline of this level for the machine.
void optimize(llvm::Module &module, llvm::TargetMachine &machine,
              llvm::OptimizationLevel level);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_EMIT_OPTIMIZE_H
