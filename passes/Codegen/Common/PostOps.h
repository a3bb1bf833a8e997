//===- PostOps.h - Pointwise ops that an engine can apply -------*- C++ -*-===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_POSTOPS_H
#define PARTITA_PASSES_CODEGEN_COMMON_POSTOPS_H

#include "passes/Codegen/Common/Fusion.h"

namespace partita::codegen {

/// `op` as a post-op on `value`, one of its operands, or nothing if no engine has it.
std::optional<PostStep> postStepOf(mlir::Operation *op, mlir::Value value);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_POSTOPS_H
