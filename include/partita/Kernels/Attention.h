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
// Parts of a mask that few cheap ops compute over queries and keys (positions compared
// with positions) are computed in the kernel; parts that are smaller than the scores, or
// cost more, are loaded.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_KERNELS_ATTENTION_H
#define PARTITA_KERNELS_ATTENTION_H

#include "partita/Kernels/LocalProgram.h"
#include "partita/Kernels/View.h"

#include <map>
#include <string>

namespace partita::kernels {

/// An attention, by numbers of a program's ops and values.
struct Attention {
  int32_t scores = -1, softmax = -1, output = -1;
  int32_t q = -1, k = -1, v = -1; ///< behind products with constants, which `scale` has
  bool queriesAreLeft = true;     ///< of `scores`
  size_t weightsOperand = 0;      ///< of `output`: 0 or 1
  double scale = 1;
  /// Views from the result of `scores` to `begin`, and from the softmax to `output`.
  std::vector<int32_t> before, behind;
  std::vector<int32_t> pointwise; ///< from `begin` to the softmax
  int32_t begin = -1;             ///< the scores, in the softmax's shape
  /// Ops that the kernel computes or stands for, but for the root: `chain` takes the
  /// scores or makes them, `own` computes masks.
  std::vector<int32_t> chain, own;
  bool zeroForNaN = false;

  /// How an operand or the result lies, seen from [depth, width, outer…, queries, keys]
  /// (the domain), given its view; nothing if that is no view.
  enum Part { Query, Key, Values, Output };
  std::optional<View> inDomain(const LocalProgram &program, Part part,
                               const View &view) const;
  Shape domain(const LocalProgram &program) const;
};

/// The attentions of a program by their roots, and why a softmax between two products is
/// none: in words, for those who look for what is slow.
struct Attentions {
  std::map<int32_t, Attention> byRoot;
  std::vector<std::pair<int32_t, std::string>> apart; ///< the softmax, why
};

/// Finds attentions, and marks the ops of the program that they have
/// (LocalOp::attention). A target without such kernels has none.
Attentions takeAttentions(LocalProgram &program, const Target &target);

} // namespace partita::kernels

#endif // PARTITA_KERNELS_ATTENTION_H
