//===- Attention.h - Attention in one kernel --------------------*- C++ -*-===//
//
// Finds contraction → pointwise ops → softmax → contraction where nobody else reads the
// scores, so that they never exist as a whole:
//
//   %s = graph.contract %q, %k          the heads, queries and keys may be merged dims
//   reshape, transpose; products with uniform constants
//   pointwise ops: each takes the scores, and masks, biases, constants
//   %p = graph.softmax                  along the last dim, which is the keys'
//   where(isnan(p), 0, p)               may follow, as PyTorch exports it
//   reshape, transpose, casts between floats
//   %y = graph.contract %p, %v          the root: the kernel is formed here
//
// What a mask is computed of by few cheap ops over queries and keys (positions compared
// with positions) is computed in the kernel; what is smaller than the scores, or costs
// more, is loaded.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_ATTENTION_H
#define PARTITA_PASSES_CODEGEN_COMMON_ATTENTION_H

#include "passes/Codegen/Common/View.h"

#include "dialects/Graph/Graph.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

namespace partita::kernels {
struct Target;
}

namespace partita::codegen {

/// One attention, as ops.
struct Attention {
  graph::ContractOp scores, output;
  graph::SoftmaxOp softmax;
  mlir::Value q, k, v; ///< behind products with uniform constants, which are in `scale`
  bool queriesAreLeft = true; ///< of `scores`
  size_t weightsOperand = 0;  ///< of `output`: 0 or 1
  double scale = 1;
  /// Views from the result of `scores` to `begin`, and from the softmax to `output`.
  llvm::SmallVector<mlir::Operation *> before, behind;
  /// From `begin` to the softmax.
  llvm::SmallVector<mlir::Operation *> pointwise;
  mlir::Value begin; ///< the scores, in the softmax's shape
  /// Ops that the kernel computes or stands for, but for the root: `chain` takes the
  /// scores or makes them, `own` computes masks.
  llvm::SetVector<mlir::Operation *> chain, own;
  bool zeroForNaN = false;

  /// How an operand or the result lies, seen from [depth, width, outer…, queries, keys]
  /// (Attention's domain), given its view; nothing if that is no view.
  enum Part { Query, Key, Values, Output };
  std::optional<View> inDomain(Part part, const View &view) const;
  Shape domain() const;
};

/// The attentions of a function by their roots, and why a softmax between two products is
/// none: in words, for those who look for what is slow.
struct Attentions {
  llvm::DenseMap<mlir::Operation *, Attention> byRoot;
  /// Ops that are computed in attentions only, roots left out.
  llvm::DenseSet<mlir::Operation *> absorbed;
  std::vector<std::pair<mlir::Operation *, std::string>> apart; ///< the softmax, why
};

/// For a target whose attention is one kernel.
Attentions findAttentions(mlir::func::FuncOp function, const kernels::Target &target);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_ATTENTION_H
