//===- MatMulLoops.h - A contraction as strided loops -----------*- C++ -*-===//
//
// An einsum over strided operands becomes loops: each has a size and one stride per
// tensor. Loops that are contiguous in every tensor are one. What is left is matched with
// a batched product: the loop that is contiguous in the result is n, the largest loop of
// the other operand is m, further loops are batch dims in which one operand stands still.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_MATMULLOOPS_H
#define PARTITA_PASSES_CODEGEN_COMMON_MATMULLOOPS_H

#include "partita/Rule/Sharding/ShardingRule.h"
#include "passes/Codegen/Common/View.h"

namespace partita::codegen {

/// Which of the tensors of a contraction.
enum Side : size_t { Left, Right, Result, FirstPost };

struct Loop {
  int64_t size = 1;
  std::vector<int64_t> strides; ///< per tensor; 0 where it does not move
  bool inLeft = false, inRight = false, inResult = false;

  bool isBatch() const { return inLeft && inRight && inResult; }
  bool isReduction() const { return !inResult; }
};

/// The loops of `rule` over views of lhs, rhs, result, then tensors of the result's shape
/// (operands of post-ops). Nothing if the views' parts do not nest with the rule's
/// factors. Loops come in the order of the result's dims, then the reductions.
std::optional<std::vector<Loop>> contractLoops(const ShardingRule &rule,
                                               const std::vector<View> &views);

/// Merges loops of one kind that are contiguous in every tensor. Result loops are ordered
/// by the result's strides, reductions by those of `reductionOrder`.
std::vector<Loop> mergedLoops(std::vector<Loop> loops, Side reductionOrder);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_MATMULLOOPS_H
