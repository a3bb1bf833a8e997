//===- Mesh.h - Named axes of devices ---------------------------*- C++ -*-===//
//
// A mesh arranges ranks 0 … N-1 in a row-major grid with named axes. Everything
// that speaks of "which ranks" speaks of axes, never of rank lists: a plan for
// 8 ranks and one for 1024 have the same size.
//
// A *sub-axis* is a contiguous factor of an axis. An axis of size n is seen as
// the grid [pre, size, n/(pre*size)] and the sub-axis is its middle part:
// written `tp:(2)4`. The whole axis is (1)n. Sub-axes arise when a dim sharded by
// an axis is split or merged by a reshape.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_LAYOUT_MESH_H
#define PARTITA_BASE_LAYOUT_MESH_H

#include "partita/Base/Error.h"

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

/// A (sub-)axis of a mesh: `axis` indexes Mesh::axes(). Always size ≥ 1, and
/// pre * size divides the axis size. Size-1 references are dropped by every canonical
/// form.
struct AxisRef {
  int32_t axis = 0;
  int64_t pre = 1;
  int64_t size = 1;

  auto operator<=>(const AxisRef &) const = default;
};

/// An ordered list of axes, major to minor.
using AxisList = std::vector<AxisRef>;

class Mesh {
public:
  struct Axis {
    std::string name;
    int64_t size;
    bool operator==(const Axis &) const = default;
  };

  /// Names must be identifiers and distinct, sizes ≥ 1, the product at most 2^31.
  static Expected<Mesh> create(std::vector<Axis> axes);
  /// "dp=2,tp=4"; the empty string is the mesh of one rank.
  static Expected<Mesh> parse(std::string_view text);
  std::string str() const;

  const std::vector<Axis> &axes() const { return list; }
  int64_t numRanks() const { return ranks; }
  /// Index of a name in axes(), or -1.
  int32_t find(std::string_view name) const;

  AxisRef whole(int32_t axis) const { return {axis, 1, list[axis].size}; }
  /// Every axis, whole, in mesh order.
  AxisList all() const;

  /// Position of a rank along a (sub-)axis: 0 … ref.size-1.
  int64_t coordinate(int64_t rank, const AxisRef &ref) const;
  /// Position along a list, as one mixed-radix number with the first axis major.
  int64_t coordinate(int64_t rank, const AxisList &axes) const;
  /// `rank` moved to position `value` along the list, all other coordinates kept.
  int64_t withCoordinate(int64_t rank, const AxisList &axes, int64_t value) const;
  /// The ranks that share `rank`'s coordinates on everything but `axes`, in the order
  /// of their coordinate along the list. Member i of the group has coordinate i.
  std::vector<int64_t> group(int64_t rank, const AxisList &axes) const;

  /// "tp", "tp:(2)4", or "{dp, tp}" for a list.
  std::string str(const AxisRef &ref) const;
  std::string str(const AxisList &axes) const;
  /// The inverse of str(AxisRef).
  Expected<AxisRef> parseAxis(std::string_view text) const;

  bool operator==(const Mesh &) const = default;

private:
  std::vector<Axis> list;
  int64_t ranks = 1;
};

/// Product of the sizes.
int64_t product(const AxisList &axes);

/// Whether two references cannot be used together: they have a coordinate digit in
/// common, or their cuts do not nest ((1)2 and (3)2 on an axis of 6 are not independent).
bool overlap(const AxisRef &a, const AxisRef &b);
bool overlap(const AxisList &a, const AxisList &b);

/// Splits every reference into prime factors, major first: (1)12 → (1)2 (2)2 (4)3.
/// Note that the cut order is canonical (ascending primes from the major side); axes
/// whose cuts do not nest in it (n = 6 cut as 2·3 and as 3·2) cannot be compared digit
/// by digit, and the reshard planner moves such data with a general exchange.
AxisList primes(const AxisList &axes);

/// Merges neighbours that are adjacent parts of one axis and drops size 1: the canonical,
/// maximal form in which lists are stored and compared.
AxisList canonical(const AxisList &axes);

} // namespace partita

#endif // PARTITA_BASE_LAYOUT_MESH_H
