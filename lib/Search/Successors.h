//===- Successors.h - The same op one layer on ------------------*- C++ -*-===//
//
// The layers of a program are copies: every op of one has its *successor* in the next.
// The map from op to successor follows the data flow. If it takes an op to another of
// the same choices, it takes the producers of the one's operands to those of the other's,
// the users of its results to theirs, and the other ends of states and of what a loop
// carries likewise. So one pair of ops is enough to find it, in whatever order the ops
// stand: of a training step, in which backward layers follow each other the other way
// round and updates stand in between, it is one map for a layer's forward and backward
// ops, its parameters and its updates.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_SEARCH_SUCCESSORS_H
#define PARTITA_LIB_SEARCH_SUCCESSORS_H

#include "partita/Search/Model.h"

namespace partita::search {

/// Runs of at least `leastCopies` ops, each the successor of the one before, that read
/// what is the successor of what the one before reads, or the very same, or sources. No
/// op is in two. `layers`: of each map that was found the length of its longest run.
struct SuccessorRuns {
  std::vector<std::vector<int32_t>> runs;
  std::vector<size_t> layers;
};
SuccessorRuns findSuccessors(const FlowGraph &graph,
                             const std::vector<std::shared_ptr<const OpChoices>> &choices,
                             size_t leastCopies);

} // namespace partita::search

#endif // PARTITA_LIB_SEARCH_SUCCESSORS_H
