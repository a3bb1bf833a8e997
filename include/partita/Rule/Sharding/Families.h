//===- Families.h - Sharding rules shared by families of ops ----*- C++ -*-===//
//
// Most ops have one of a few loop structures; each is built here once, from shapes.
// Dims of size 1 belong to no factor. Errors name the operand, dim and sizes.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RULE_SHARDING_FAMILIES_H
#define PARTITA_RULE_SHARDING_FAMILIES_H

#include "partita/Base/DType.h"
#include "partita/Rule/Sharding/ShardingRule.h"

#include <optional>

namespace partita {

using Shape = std::vector<int64_t>;

/// One result element per loop point; operands broadcast against each other as in numpy
/// (aligned at the last dim, size 1 stretches).
Expected<ShardingRule> broadcastRule(const std::vector<Shape> &operands);

/// The shape that numpy broadcasting gives.
Expected<Shape> broadcastShapes(const std::vector<Shape> &operands);

/// Row-major reshape. Where the cut points of the two shapes nest, dims share factors
/// ([2, 12, 64] → [24, 64] is a b c -> (a b) c); a span where they do not nest
/// ([5, 4, 6] → [5, 6, 4] but for the 5) is Replicate on both sides.
Expected<ShardingRule> reshapeRule(const Shape &operand, const Shape &result);

/// Result dim i is operand dim perm[i].
Expected<ShardingRule> transposeRule(const Shape &operand,
                                     const std::vector<int64_t> &perm);

/// Reduces `axes` (distinct, in range); keepDims leaves dims of size 1. `kind` nullopt
/// makes the reduced factors Replicate (arg-max and the like).
Expected<ShardingRule> reduceRule(const Shape &operand, const std::vector<int64_t> &axes,
                                  bool keepDims, std::optional<ReduceKind> kind);

/// Result dims begin at `starts` of the operand and advance by `steps`. A dim taken whole
/// is Parallel; one that is exactly block c of k equal blocks has factors {k replicate,
/// n parallel}, so that slices of a fused weight keep their sharding; any other is
/// Replicate on both sides.
Expected<ShardingRule> sliceRule(const Shape &operand, const Shape &result,
                                 const std::vector<int64_t> &starts,
                                 const std::vector<int64_t> &steps);

/// Concatenation along `axis`; k equal parts give the result dim {k replicate, n
/// parallel} as in sliceRule.
Expected<ShardingRule> concatRule(const std::vector<Shape> &operands, int64_t axis);

/// Elementwise over one tensor except that `axes` are mixed (Replicate): softmax,
/// normalization, cumulative sum.
Expected<ShardingRule> rowRule(const Shape &operand, const std::vector<int64_t> &axes);

/// A spatial dim of a convolution or pooling: `kernel` taps that are `dilation` apart.
struct SpatialDim {
  int64_t input = 1, output = 1, kernel = 1, stride = 1, dilation = 1;
  int64_t low = 0; ///< pads before the dim

  int64_t kernelExtent() const { return (kernel - 1) * dilation + 1; }
  /// Whether each position reads the element of its own index only.
  bool pointwise() const {
    return kernelExtent() == 1 && stride == 1 && low == 0 && input == output;
  }
};

/// Adds a spatial dim to a rule, as a dim of an operand and of a result: a Window factor,
/// outside of which the neutral element of `fill` stands; Parallel if pointwise; none if
/// pointwise and of one element.
void addSpatialDim(ShardingRule &rule, const SpatialDim &dim, ReduceKind fill,
                   std::vector<int32_t> &operandDim, std::vector<int32_t> &resultDim);

/// Adds a spatial dim over whose positions an op sums, of which `operand` has windows and
/// the others an element each: the factors of the dim in all of them.
std::vector<int32_t> addSummedPositions(ShardingRule &rule, const SpatialDim &dim,
                                        int32_t operand);

/// The windows through which a transposed convolution reads its operand. Element j of it
/// adds to the positions j·stride − low + tap·dilation of the result. So `stride`
/// neighbouring positions read one window, and the next as many one that begins an
/// element later: these groups are what the windows belong to. Where the result's
/// `output` is no multiple of the stride there is nothing. Any `dim` of a transposed
/// convolution may be asked for: its `input` is that of the operand, its `low` what the
/// result is cut by.
std::optional<SpatialDim> transposedWindows(const SpatialDim &dim);

/// Adds the dim of a transposed convolution to a rule: the groups of transposedWindows
/// and, in the result, the positions of a group (Replicate). Without groups both are
/// Replicate.
void addTransposedDim(ShardingRule &rule, const SpatialDim &dim,
                      std::vector<int32_t> &operandDim, std::vector<int32_t> &resultDim);

/// Adds a dim in which every element of the operand makes `times` neighbouring ones of
/// the result and takes part in no others: blocks depend on nothing outside.
void addStretchedDim(ShardingRule &rule, int64_t size, int64_t times,
                     std::vector<int32_t> &operandDim, std::vector<int32_t> &resultDim);

/// A negative axis counts from the end; an error if out of range.
Expected<int64_t> normalizeAxis(int64_t axis, size_t rank);

} // namespace partita

#endif // PARTITA_RULE_SHARDING_FAMILIES_H
