//===- ShardingRule.h - How an op's dims relate -----------------*- C++ -*-===//
//
// An op is a perfect loop nest. Its loops are called *factors*; the rule says which
// factors, major to minor, make up each dim of each operand and result, and what kind
// each factor is. Matrix multiplication is
//
//     b m k, b k n -> b m n        b, m, n parallel; k reduction (sum)
//
// From the rule everything follows: result shapes, which strategies are legal, what a
// strategy asks of each operand, FLOPs and bytes, propagation.
//
// Factor kinds
//   Parallel   any axes; every tensor that has the factor is split. The dim into which a
//              scatter writes is one, whose places another operand gives: each rank
//              writes what belongs to its block.
//   Reduction  any axes; results become partial with the factor's reduction kind. The
//              dim that an embedding looks up is one: each rank has the rows of its
//              block and zero for the others.
//   Window     a spatial dim of convolution or pooling. Its loop runs over the positions
//              of the result's dim; the operand's dim is read through windows and has
//              another size. Any axes, in blocks of positions: the operand is split over
//              the same axes, and each rank fetches the elements of its windows that lie
//              in other blocks (partita/Base/Layout/Halo.h). A reduction may read one
//              operand so and the others element by element: the gradient of a filter
//              sums over positions.
//   Replicate  may not be split: the op mixes its elements (sort, softmax axis).
//
// Linearity. f is linear in a set S of operands for a reduction kind when reducing f's
// results over ranks equals f of the reduced operands, provided the operands in S are
// partial together and the others replicated: add, sum: {{0,1}}; matmul, sum: {{0},{1}};
// max, max: {{0},{1},{0,1}}. Each set is a way for partial values to pass through.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RULE_SHARDING_SHARDINGRULE_H
#define PARTITA_RULE_SHARDING_SHARDINGRULE_H

#include "partita/Base/Layout/Layout.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace partita {

enum class FactorKind : uint8_t { Parallel, Reduction, Window, Replicate };
std::string_view name(FactorKind kind);

/// What a loop is to its op: one struct per kind, with what only this kind has.
namespace loop {

/// How an operand, or several neighbours alike, is read along a loop over positions:
/// position i reads the elements
/// [i·stride − low, i·stride − low + kernelExtent) of a dim of `input` elements; outside
/// of it stands the neutral element of `outside`. Other operands have element i there. As
/// the kind of a loop: a parallel one that is read so.
struct Window {
  ReduceKind outside = ReduceKind::Sum;
  int64_t input = 1, stride = 1, kernelExtent = 1, low = 0;
  /// The first operand that is read so, and how many are.
  int32_t operand = 0, operands = 1;

  bool reads(int32_t number) const {
    return number >= operand && number < operand + operands;
  }
  bool operator==(const Window &) const = default;
};

struct Parallel {
  /// The operand whose elements are indices of the loop, or -1: elements of the results
  /// are written where it says (scatter). Where the loop is split, it is turned into
  /// places in the rank's block as that of a Reduction is, and the local op skips -1.
  int32_t index = -1;
  /// Of a local op with `index`: the operand holds places in the rank's block already.
  bool localized = false;
  bool operator==(const Parallel &) const = default;
};

struct Reduction {
  ReduceKind reduce = ReduceKind::Sum;
  /// Operands that are added to the sum (a bias). When the loop is split they must be
  /// partial along its axes, or every rank would add them.
  std::vector<int32_t> addends = {};
  /// The operand whose elements are indices of the loop (gather), or -1. Only what they
  /// name is read, so padding need not be neutral; where the loop is split, the operand
  /// is turned into places in the rank's block, -1 for those that lie in another one
  /// (comm.local_index), which the local op must take for zero.
  int32_t index = -1;
  /// Of a local op with `index`: the operand holds places in the rank's block already.
  bool localized = false;
  /// The loop runs over positions, of which an operand has windows.
  std::optional<Window> window = {};
  bool operator==(const Reduction &) const = default;
};

struct Replicate {
  bool operator==(const Replicate &) const = default;
};

/// In the order of FactorKind.
using Kind = std::variant<Parallel, Reduction, Window, Replicate>;
} // namespace loop

struct Factor {
  int64_t size = 1;
  loop::Kind what = loop::Parallel{};
  /// What texts call the loop; empty: a letter by its number, see ShardingRule::loopName.
  std::string name = {};

  FactorKind kind() const { return static_cast<FactorKind>(what.index()); }
  /// What only a reduction has; null for loops of another kind.
  const loop::Reduction *reduction() const { return std::get_if<loop::Reduction>(&what); }
  loop::Reduction *reduction() { return std::get_if<loop::Reduction>(&what); }
  /// The windows through which operands are read; null if none is.
  const loop::Window *window() const {
    if (const loop::Reduction *sum = reduction())
      return sum->window ? &*sum->window : nullptr;
    return std::get_if<loop::Window>(&what);
  }
  loop::Window *window() {
    return const_cast<loop::Window *>(std::as_const(*this).window());
  }
  /// Those of this operand (-1: a result, which has none).
  const loop::Window *windowOf(int32_t operand) const {
    const loop::Window *found = window();
    return found && found->reads(operand) ? found : nullptr;
  }
  /// Whether the elements of this operand are indices of the loop.
  bool isIndexedBy(size_t operand) const {
    return indexOperand() == static_cast<int32_t>(operand);
  }
  int32_t indexOperand() const {
    const auto *parallel = std::get_if<loop::Parallel>(&what);
    return reduction() ? reduction()->index : parallel ? parallel->index : -1;
  }
  /// Whether the loop is indexed by places in the rank's block.
  bool localized() const {
    const auto *parallel = std::get_if<loop::Parallel>(&what);
    return reduction() ? reduction()->localized : parallel && parallel->localized;
  }
  /// Says of an indexed loop whether its indices are places in the rank's block.
  void setLocalized(bool localized) {
    if (loop::Reduction *sum = reduction())
      sum->localized = localized;
    else if (auto *parallel = std::get_if<loop::Parallel>(&what))
      parallel->localized = localized;
  }

  /// Elements of the factor in a dim of this operand (-1: of a result).
  int64_t extent(int32_t operand) const {
    return windowOf(operand) ? window()->input : size;
  }
  bool operator==(const Factor &) const = default;
};

/// The factors of one tensor: per dim, major to minor. An empty list is a dim of size 1
/// that belongs to no loop (a broadcast dim).
using TensorFactors = std::vector<std::vector<int32_t>>;

/// Operands that must be partial together for `kind` to pass through the op.
struct LinearSet {
  ReduceKind kind = ReduceKind::Sum;
  std::vector<int32_t> operands; ///< ascending
  bool operator==(const LinearSet &) const = default;
};

/// The op acts on what it reads in the padding of this operand (an index, a divisor) and
/// does not only compute with it: the neutral element of `kind` must stand there.
struct PaddingFill {
  ReduceKind kind = ReduceKind::Sum;
  int32_t operand = 0;
  bool operator==(const PaddingFill &) const = default;
};

struct ShardingRule {
  std::vector<Factor> factors;
  std::vector<TensorFactors> operands;
  std::vector<TensorFactors> results;
  std::vector<LinearSet> linear;
  std::vector<PaddingFill> fills;

  int32_t addFactor(int64_t size, loop::Kind what = loop::Parallel{});
  /// The factors of a dim that one loop runs over: none for one place, which has no loop.
  /// A localized loop is kept: its one place may be none of the rank's.
  std::vector<int32_t> addLoop(int64_t size, loop::Kind what);
  /// The shape of a result: each dim is the product of its factors.
  std::vector<int64_t> shape(const TensorFactors &result) const;

  /// "b m k, b k n -> b m n": one letter or word per dim, (a b) for a dim of two factors,
  /// 1 for a broadcast dim. Sizes of factors come from the operand shapes; a factor that
  /// no result has is Reduction. Errors name operand, dim and sizes that disagree.
  static Expected<ShardingRule> parse(std::string_view text,
                                      const std::vector<std::vector<int64_t>> &operands);

  /// Structural invariants (indices in range, every factor used, kinds consistent).
  Expected<void> verify() const;

  /// What strategies call a loop: the name in the op's equation, else a letter: a, b, …
  std::string loopName(size_t factor) const;
  /// Everything the rule says, loops by name:
  ///   m k, k n -> m n {m=4, k=8 sum, n=6} linear sum(0), sum(1)
  ///   n c h -> n c h {n=1, c=3, h=4 window max of 9 stride 2 kernel_extent 3 low 1}
  /// A reduction may add `addends(2)`; it and a parallel loop `index(1)` or `local
  /// index(1)`; a reduction `window sum of 9 …` as above. Windows are of operand 0, or
  /// `window sum(1) of 9`. Behind the linear sets may stand `fill sum(1)`.
  std::string str() const;
  /// The inverse; the result is verified.
  static Expected<ShardingRule> read(std::string_view text);
  bool operator==(const ShardingRule &) const = default;
};

} // namespace partita

#endif // PARTITA_RULE_SHARDING_SHARDINGRULE_H
