//===- LowerKernels.h - From emitted kernels to LLVM ------------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_EMIT_LOWERKERNELS_H
#define PARTITA_PASSES_CODEGEN_EMIT_LOWERKERNELS_H

#include "mlir/IR/BuiltinOps.h"

namespace partita::codegen {

/// What a context must know for kernels and their translation.
void registerKernelDialects(mlir::DialectRegistry &registry);
/// Expands functions of real numbers to arithmetic and lowers to the LLVM dialect.
llvm::LogicalResult lowerKernels(mlir::ModuleOp module);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_EMIT_LOWERKERNELS_H
