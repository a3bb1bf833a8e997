//===- NativePost.h - Post-ops by plain loops -------------------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_ONEDNN_NATIVEPOST_H
#define PARTITA_LIB_RUNTIME_ONEDNN_NATIVEPOST_H

#include "partita/Base/Bundle/TaskTable.h"

#include <span>
#include <vector>

namespace partita::onednn {

/// A chain of post-ops on a strided result. Used where oneDNN would fall back to its
/// reference code if they were fused, and by the plain-loop calls.
struct NativePost {
  DType type = DType::F32;
  std::vector<int64_t> dims, strides; ///< of the result, in elements
  size_t target = 0;                  ///< operand index of the result
  size_t firstOperand = 0;            ///< operand index of the first binary operand
  std::vector<task::PostOp> post;
  /// Dims from outer to inner in the memory of binary operands; empty: as numbered.
  std::vector<size_t> order = {};

  /// On the result among a call's operands.
  void run(std::span<void *const> operands) const;
};

/// x after a unary post-op.
double applyUnary(const task::PostOp &op, double x);
double applyBinary(int64_t kind, double x, double y);

} // namespace partita::onednn

#endif // PARTITA_LIB_RUNTIME_ONEDNN_NATIVEPOST_H
