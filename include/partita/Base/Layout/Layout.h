//===- Layout.h - Where each element of a tensor lives ----------*- C++ -*-===//
//
// A Layout says, for one tensor on one mesh, which elements each rank holds.
//
// 1. Each tensor dim is a product of *dim factors*, major to minor, each with its
//    size and its ordered axes. One factor is the common case; a fused QKV weight
//    [768, 3·768] split inside each third is
//        [{768}, {3}*{768: tp}]
//    and rows that are batch·sequence with both sharded are [{2: dp}*{128: sp}].
//    With factors, Reshape, Split and Concat refine or merge dims instead of
//    moving data. Slices of the global dim may therefore be strided.
//
//    Index i of the dim is written in mixed radix over the factors' padded sizes,
//    i = (q0, q1, …). Factor j of padded size P and axes of product p is cut into
//    p blocks of P/p; the rank whose coordinate along the axes is c holds
//    q_j in [c·P/p, (c+1)·P/p). The local dim is the mixed radix of the local q_j.
//
// 2. Axes that appear nowhere replicate.
//
// 3. *Partial* axes: the true value is the reduction (sum, max, min, prod), over the
//    ranks along those axes, of what they hold. With several kinds the reductions nest
//    in the order of the list: the first kind is outermost, so a later kind must be
//    reduced before an earlier one is.
//
// 4. Uneven sizes. The major-most factor of a dim may have padded > size; all
//    others have padded == size. The padded extent is one number for the whole
//    class of dims that any layout of the plan relates, a multiple of the product of
//    every axis list used in the class; so blocks at any nesting of axes agree about
//    where an element lives (ceil-division at each layout does not). Elements with
//    q0 ≥ size are padding: their contents are unspecified unless an op put a neutral
//    value there, no result may depend on them.
//
// 5. *Given blocks*. The major-most factor of a dim may instead name the length of every
//    block: 13 rows of which one rank has 4 and the other 9 are {13=4+9: tp}. The local
//    extent is the longest block (padded = blocks · longest), the rest of a shorter one
//    is padding. Such a split has no sub-axes: nothing nests in it, so a reshard between
//    it and anything else is one exchange of what is lacking (an all-to-all of differing
//    lengths).
//
// A mesh axis (digit) appears at most once in a layout, partial axes included.
//
// Alternatives rejected: device lists per tile (size grows with ranks, cannot say
// partial); one axis list per dim (cannot say "inside each third", so a fused QKV
// split moves data); a layout as type encoding (every mixed use is a cast).
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_LAYOUT_LAYOUT_H
#define PARTITA_BASE_LAYOUT_LAYOUT_H

#include "partita/Base/Layout/Mesh.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

enum class ReduceKind : uint8_t { Sum, Max, Min, Prod };
std::string_view name(ReduceKind kind);
std::optional<ReduceKind> reduceKindFromName(std::string_view name);

struct DimFactor {
  int64_t size = 1;   ///< true elements
  int64_t padded = 1; ///< ≥ size; == size unless this is the major-most factor
  AxisList axes;      ///< major to minor
  /// Empty: equal blocks. Else one length per shard, which sum to `size`.
  std::vector<int64_t> blocks = {};

  int64_t shards() const { return product(axes); }
  /// Elements a rank stores: padded / shards(), exact.
  int64_t local() const { return padded / shards(); }
  /// First element of the block at this coordinate along the axes.
  int64_t begin(int64_t coordinate) const;
  bool operator==(const DimFactor &) const = default;
};

struct DimLayout {
  std::vector<DimFactor> factors; ///< major to minor, at least one

  int64_t size() const;   ///< product of true sizes
  int64_t padded() const; ///< product of padded sizes
  int64_t local() const;  ///< product of local sizes
  bool sharded() const;
  /// Whether its split names its blocks.
  bool hasBlocks() const;
  bool operator==(const DimLayout &) const = default;
};

struct PartialAxes {
  ReduceKind kind = ReduceKind::Sum;
  AxisList axes; ///< canonical, sorted
  bool operator==(const PartialAxes &) const = default;
};

class Layout {
public:
  std::vector<DimLayout> dims;
  std::vector<PartialAxes> partial; ///< at most one entry per kind, sorted by kind

  /// One factor per dim, no axes, padded == size.
  static Layout replicated(const std::vector<int64_t> &shape);

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  std::vector<int64_t> globalShape() const;
  std::vector<int64_t> localShape() const;
  int64_t localElements() const;

  /// Every axis used in dims / in partial, in order of appearance.
  AxisList shardingAxes() const;
  AxisList partialAxes() const;
  bool isReplicated() const;
  bool hasBlocks() const;

  /// Checks the invariants above against a mesh; the error names the dim and the axis.
  Expected<void> verify(const Mesh &mesh) const;

  /// Canonical: axis lists canonical, partial entries sorted, and adjacent factors merged
  /// where that says the same: {a: X}*{b} is {a·b: X}, and {a: X}*{b: Y} is {a·b: X, Y}
  /// when the rank holds one index of the first factor (so size-1 factors go). Padding
  /// scales along. Two valid layouts with equal padding place every element alike if and
  /// only if they are equal after this.
  Layout canonicalized() const;

  /// "[{2: dp}*{128: sp}, {768}] partial sum {tp}, max {dp}"; padding shown as
  /// {13/16: tp}, given blocks as {13=4+9: tp}.
  std::string str(const Mesh &mesh) const;
  /// Inverse of str; the result is verified but not canonicalized.
  static Expected<Layout> parse(std::string_view text, const Mesh &mesh);

  bool operator==(const Layout &) const = default;
};

/// One contiguous run of the global dim that a rank holds, in units of elements.
struct DimRun {
  int64_t global; ///< first global index of the run
  int64_t local;  ///< its place in the local dim
  int64_t length;
  bool operator==(const DimRun &) const = default;
};

/// The valid (non-padding) runs of one dim on `rank`, by ascending local index.
std::vector<DimRun> dimRuns(const Mesh &mesh, const DimLayout &dim, int64_t rank);

/// Number of valid q0 entries on `rank` for a possibly padded dim:
/// clamp(size0 - c·block, 0, block) with block = padded0 / shards0, or the given length.
int64_t validExtent(const Mesh &mesh, const DimFactor &major, int64_t rank);

/// Copies the elements `rank` holds from a dense row-major global tensor into a dense
/// local tensor; padding is filled with zero bytes. Partial axes are ignored: every rank
/// along them gets the value. The typed form in Reshard.h gives the value to one of them
/// and the neutral element to the others.
void extractLocal(const Mesh &mesh, const Layout &layout, int64_t rank,
                  size_t elementBytes, const std::byte *global, std::byte *local);
/// The reverse for a layout without partial axes: writes the valid elements only.
void insertLocal(const Mesh &mesh, const Layout &layout, int64_t rank,
                 size_t elementBytes, const std::byte *local, std::byte *global);

} // namespace partita

#endif // PARTITA_BASE_LAYOUT_LAYOUT_H
