//===- Strategies.h - The strategies that a search tries --------*- C++ -*-===//
//
// A mesh axis is a *unit*: it is given out whole, to one atom of the op (a piece of a
// loop), to one linear set (the op lets values pass that are partial along it), or to
// nobody. Axes on one atom are in the order of the units. docs/search.md says which
// strategies are left out, and how padded extents are chosen.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_STRATEGIES_H
#define PARTITA_SEARCH_STRATEGIES_H

#include "partita/Rule/Sharding/Flow.h"
#include "partita/Rule/Sharding/Strategy.h"

#include <map>

namespace partita::search {

/// What a user has decided: per atom number its axes; empty: whole.
using Pins = std::map<int32_t, AxisList>;

/// The units of a mesh: its axes of size above 1, cut where a pin uses a part of one.
AxisList unitsOf(const Mesh &mesh, const Pins &pins = {});

/// Per value the kinds of reduction (bit 1 << kind) for which it may be partial: its
/// producer reduces by it, or lets it pass from an operand that may be.
std::vector<uint8_t> partialKinds(const FlowGraph &graph);

/// The padded extent of an atom that is split `shards` ways, 0 if it may not be; see
/// docs/search.md.
int64_t paddedExtent(const Atom &atom, int64_t shards, const AxisList &units);

/// Every strategy of the op in the space of the search; all pass verifyStrategy.
/// `partial` as from partialKinds. Empty only if pins allow none.
std::vector<Strategy> legalStrategies(const FlowGraph &graph, int32_t op,
                                      const AxisList &units,
                                      const std::vector<uint8_t> &partial,
                                      const Pins &pins = {});

} // namespace partita::search

#endif // PARTITA_SEARCH_STRATEGIES_H
