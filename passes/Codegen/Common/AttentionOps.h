//===- AttentionOps.h - Attention ops that have a kernel --------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_ATTENTIONOPS_H
#define PARTITA_PASSES_CODEGEN_COMMON_ATTENTIONOPS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace partita::kernels {
struct Target;
}

namespace partita::codegen {

/// Replaces, in the function's own block, each graph.attention and gradient for which the
/// target has no kernel by the ops that it stands for; returns the function. An op that
/// cannot be expanded is reported and stays.
mlir::func::FuncOp withKernels(mlir::func::FuncOp function,
                               const kernels::Target &target);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_ATTENTIONOPS_H
