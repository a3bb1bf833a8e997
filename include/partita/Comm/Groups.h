//===- Groups.h - Few groups of ranks ---------------------------*- C++ -*-===//
//
// Each group of ranks has a communicator. A step over several axes may be one over each
// part of them, so that programs get along with fewer groups: an all-reduce over {a, b,
// c} beside others over {a, b} and {c} is one of these after the other.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COMM_GROUPS_H
#define PARTITA_COMM_GROUPS_H

#include "partita/Base/Layout/Reshard.h"

#include <cstddef>
#include <vector>

namespace partita {

/// Parts of a step's axes, major to minor, which together are these axes.
using AxisParts = std::vector<AxisList>;

/// Gives the parts by which the step may be several: the axes as they are first, then by
/// the number of parts. Those of an all-reduce need not be neighbours; other kinds have
/// parts of neighbouring axes, and those that are no reduction, gather or scatter only
/// the first.
std::vector<AxisParts> partsOf(const Step &step);

/// A reduce-scatter, an all-gather or an all-reduce as one over each part. A scatter
/// begins with the major part, gathers and all-reduces with the minor one. Sums are then
/// of sums: bits may differ. Empty: there is one part, or a step of it does not exist.
std::vector<Step> stepsByParts(const Mesh &mesh, const Step &step,
                               const AxisParts &parts);

/// The ranks of a group, whichever axis is major.
AxisList groupOf(AxisList axes);

/// Steps over the same axes, which are split alike.
struct GroupUse {
  std::vector<AxisParts> ways; ///< at least one
  int64_t steps = 1;           ///< in the program
};

/// Per use the number of its way, so that the program has at most so many groups and as
/// few steps as that allows; where no choice has so few groups, one that has the fewest.
/// All choices are tried, but those that cannot be better and those beyond 200,000 tries.
std::vector<size_t> groupsWithin(int64_t most, const std::vector<GroupUse> &uses);

} // namespace partita

#endif // PARTITA_COMM_GROUPS_H
