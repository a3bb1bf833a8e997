//===- Proposals.h - What the neighbours of an op ask of its loops -*- C++ -*-===//
//
// The neighbours of an op propose axes for its loops. Where all of them cannot hold,
// those are taken together by which a rank receives the fewest bytes, estimated from the
// splits of the values around the op alone:
//
//   - a value that is split otherwise at its other end changes its split, or is gathered
//     if the op does not split it: bytes / ways of the op · (1 − ways alike / ways there)
//   - a sum of which each rank has a part is reduced, to the parts that are wanted:
//     bytes of the result / its ways · (1 − 1 / ways of the sum)
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RULE_SHARDING_PROPOSALS_H
#define PARTITA_LIB_RULE_SHARDING_PROPOSALS_H

#include "partita/Rule/Sharding/Flow.h"

namespace partita {

/// Axes for one atom of an op.
struct Proposal {
  int32_t atom;
  AxisList axes;
  int64_t savedBytes = 0; ///< bytes of values that then agree at both ends
  int32_t via = -1;
  std::string origin = {};
};

/// A value around an op, and how its other end splits it, in atoms of the op.
struct OtherEnd {
  int32_t value;
  std::vector<std::pair<int32_t, AxisList>> axes;
  auto operator<=>(const OtherEnd &) const = default;
};

/// All that is proposed to one op.
struct Asked {
  std::vector<Proposal> proposals;
  std::vector<OtherEnd>
      ends; ///< where the proposals are from, each split of a value once
};

/// A proposal, or what is left of it, and what stands in its way.
struct Rejected {
  Proposal proposal;
  int32_t by = -1; ///< an atom of the op
};

struct Choice {
  std::vector<Proposal> taken;
  std::vector<Rejected> rejected;
};

/// Says if axes that split a linked loop go on to the atom. There may be fewer elements
/// than ranks behind windows with a stride (7 rows on 8): then each of the first ranks
/// has one and the others none, in the place of all ranks that compute all of them.
bool canFollow(const FlowGraph &graph, const Atom &atom, const AxisList &axes);

/// The proposals that can hold together beside the axes that the op's atoms have (`axes`,
/// per atom of the graph) and that cost least; of equal ones those that begin with the
/// one that saves most. Axes of which a part is taken go on with the part before it.
Choice chooseAmong(const FlowGraph &graph, int32_t op, const std::vector<AxisList> &axes,
                   Asked asked);

} // namespace partita

#endif // PARTITA_LIB_RULE_SHARDING_PROPOSALS_H
