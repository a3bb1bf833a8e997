//===- Propagation.h - From a few hints to axes for every loop --*- C++ -*-===//
//
// Axes spread from hinted atoms to linked atoms of other ops, backward and forward, until
// nothing changes. The result depends on the graph and the hints, never on the order in
// which ops or hints are listed:
//
//  - Rounds. All proposals of a round are computed from the state before it.
//  - Priorities. Hints of user priority 0 spread completely before those of priority 1
//    are looked at; within one, ops that only rename or combine elements in place first,
//    then contractions, then the rest; in the last two, from operands to results first.
//  - Phases. Of a training step, the forward pass settles completely, as without the
//    rest; then all ops are asked. The backward pass is downstream of the loss: in one
//    wave from operands to results, the rows of a cotangent would reach a product before
//    the split of its weight does, which comes from the forward pass's results.
//  - Depth. From operands to results an op is asked when all its operands have chosen.
//  - Conflicts. Where proposals to one op cannot all hold (an axis for two atoms, two
//    axis lists for one atom), the op keeps those by which a rank receives the fewest
//    bytes (lib/Rule/Sharding/Proposals.h). Ties go to the one by which the most bytes
//    around the op need no resharding, then by the axes themselves. Every rejected
//    proposal is reported with both origins; what is left of it before the first axis
//    that is taken goes on.
//  - Few elements. Axes go on to a loop of fewer elements than ranks, behind windows with
//    a stride, where it may be padded and has more than one.
//  - Gathered values. A hint may make one reader of a value take it whole along an axis
//    by which its maker splits it. It is then gathered for all readers, so that the split
//    reaches the others last, after everything else.
//
// Sources (arguments, weights, constants) never relay: each user may read its own slices.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RULE_SHARDING_PROPAGATION_H
#define PARTITA_RULE_SHARDING_PROPAGATION_H

#include "partita/Rule/Sharding/Flow.h"

#include <string>
#include <vector>

namespace partita {

/// Axes fixed for an atom before propagation. An empty list pins the atom as unsharded.
struct Seed {
  int32_t atom;
  AxisList axes;
  std::string origin; ///< "hint for node 'fc1'": shown by explanations and conflicts
  int priority = 0;
  /// Lengths of the blocks that the axes cut the atom into; empty: equal ones.
  std::vector<int64_t> blocks = {};
};

/// Where an op's axes on one factor came from.
struct Origin {
  std::string text;
  int32_t via = -1; ///< the op it arrived from, -1 for a seed
};

/// Two proposals to one op that cannot both hold.
struct Conflict {
  struct Side {
    int32_t atom; ///< of the op
    AxisList axes;
    std::string origin;
  };
  int32_t op;
  Side kept, rejected;
};

/// "the hint for tensor 'w' (k: {tp}) wins over the hint for node 'fc2' (n: {tp})": with
/// the loops of the op.
std::string toString(const FlowGraph &graph, const Conflict &conflict);

struct Propagated {
  std::vector<AxisList> axes;  ///< per atom
  std::vector<Origin> origins; ///< per atom; empty text where nothing arrived
  std::vector<Conflict> conflicts;
};

/// Whether `axes` may be put on the atom: its kind allows it and its size divides, or it
/// can be padded and every rank but the last few keeps something (axes product ≤ size).
bool canShard(const FlowGraph &graph, const Atom &atom, const AxisList &axes);

/// Distributes `axes` over the atoms of one dim, major first: each atom takes the longest
/// prefix (axes are cut into sub-axes where needed) that its size divides by. Starts at
/// the first atom that is not refused, or at `first` if ≥ 0. Returns axes
/// per atom of `dim`, or an error if some axes find no place.
Expected<std::vector<AxisList>> distribute(const FlowGraph &graph,
                                           const std::vector<int32_t> &dim,
                                           const AxisList &axes, int first = -1);

Expected<Propagated> propagate(const FlowGraph &graph, const std::vector<Seed> &seeds);

} // namespace partita

#endif // PARTITA_RULE_SHARDING_PROPAGATION_H
