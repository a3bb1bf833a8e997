//===- Placement.h - Which links a group of ranks uses ----------*- C++ -*-===//
//
// Rank r of a mesh is device r of a topology; both are row-major, so the last mesh axis
// runs along the innermost level. The ranks of a group (those that differ along some axes
// only) then are joined by one or more levels, and what a collective costs depends on
// how many members it has at each: its *span*.
//
// An axis runs along strides of device numbers: stride s and size n are the devices
// c + k·s, k < n. Up to the unit U of a level (its devices), the part of the axis that
// stays inside one unit whatever c is, is
//
//     inside(U) = gcd(n, U / s) if s divides U, else 1
//
// and the span at a level is inside(U) / inside(unit of the level below). These divide
// each other and the outermost is n, so they are digits of the axis for every
// factorisation, also where sizes do not nest: an axis of 6 over levels of 4 and 3 has
// 2 members at the inner level and 3 at the outer one. Where they nest the span is exact;
// where they do not, members that share a unit for some c only are counted as not sharing
// it, so a group is never priced nearer than its worst member's is.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TOPOLOGY_PLACEMENT_H
#define PARTITA_TOPOLOGY_PLACEMENT_H

#include "partita/Base/Layout/Mesh.h"
#include "partita/Topology/Topology.h"

#include <array>

namespace partita {

/// Members of a group at each level, inner to outer; the product is the group's size.
struct Span {
  std::array<int64_t, Topology::maxLevels> members;
  /// Whether no two members that are counted apart at a level share a unit inside it.
  bool exact = true;

  Span() { members.fill(1); }
  int64_t size() const;
  /// The outermost level with more than one member, -1 for a group of one.
  int outermost() const;
};

/// A group as a grid: `across` leads from unit to unit, `within` from rank to rank of a
/// unit. Both are major to minor; together they are the group's axes.
struct GroupLevels {
  AxisList across, within;
};

/// A mesh laid over a topology. Both must outlive it.
class Placement {
public:
  /// An error if the mesh does not have exactly one rank per device.
  static Expected<Placement> create(const Mesh &mesh, const Topology &topology);

  const Mesh &mesh() const { return *ranks; }
  const Topology &topology() const { return *devices; }

  /// The span of the groups along `axes`, which are independent of each other.
  Span span(const AxisList &axes) const;
  Span span(const AxisRef &axis) const { return span(AxisList{axis}); }

  /// The groups along `axes` by units of the level below `level`. Where sizes do not
  /// nest, as an axis of 6 over units of 4, only parts that stay in one unit whatever the
  /// other coordinates are count as within.
  GroupLevels divide(const AxisList &axes, size_t level) const;

private:
  Placement(const Mesh &mesh, const Topology &topology)
      : ranks(&mesh), devices(&topology) {}
  const Mesh *ranks;
  const Topology *devices;
};

/// A topology for a mesh that comes without one: each axis of size above 1 a level of the
/// same kind, the last axis innermost.
Topology topologyOfMesh(const Mesh &mesh, const Device &device, const LinkLevel &link,
                        const Host &host);

} // namespace partita

#endif // PARTITA_TOPOLOGY_PLACEMENT_H
