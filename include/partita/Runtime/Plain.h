//===- Plain.h - Engine calls by plain loops --------------------*- C++ -*-===//
//
// The engine of the target `plain`: every call as loops, for every element type, with
// nothing packed and no scratch. Other engines use it for what they do not have.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_PLAIN_H
#define PARTITA_RUNTIME_PLAIN_H

#include "partita/Runtime/Engine.h"

#include <memory>
#include <span>
#include <vector>

namespace partita::plain {

/// A chain of post-ops on a strided result. Also for engines whose own
/// chains are slow.
struct Post {
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

/// Post-ops of a convolution's sums in i32: every step gives a number of its type.
struct Requantization {
  std::vector<int64_t> dims; ///< of the result
  std::vector<task::PostOp> post;
  std::vector<size_t> order; ///< as in Post

  /// The number that the sum at these indices becomes; all types have it in f64.
  double of(int32_t sum, std::span<const int64_t> index,
            std::span<void *const> operands) const;
};

/// x after a unary post-op.
double applyUnary(const task::PostOp &op, double x);
double applyBinary(int64_t kind, double x, double y);

const engine::Engine &loops();

std::unique_ptr<engine::Call> matMul(const task::MatMul &params);
std::unique_ptr<engine::Call> blockMatMul(const task::BlockMatMul &params);
std::unique_ptr<engine::Call> conv(const task::Conv &params, bool transposed);
std::unique_ptr<engine::Call> convBackwardFilter(const task::ConvBackwardFilter &params);
std::unique_ptr<engine::Call> pool(const task::Pool &params);

} // namespace partita::plain

#endif // PARTITA_RUNTIME_PLAIN_H
