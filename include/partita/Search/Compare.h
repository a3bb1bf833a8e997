//===- Compare.h - Plans that people write, and what ours costs -*- C++ -*-===//
//
// The usual ways to spread a model, priced in the same cost model as a search's plan: so
// that one sees what the search has gained, and that it has not lost.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_COMPARE_H
#define PARTITA_SEARCH_COMPARE_H

#include "partita/Search/Memory.h"

namespace partita::search {

struct KnownPlan {
  std::string name;
  Picos time = 0;
  int64_t memory = 0;
};

/// Data-parallel: batches over all axes. Fully sharded: the same, but every weight that
/// one op reads is kept in as many parts as there are devices, and gathered before.
/// Megatron-like, where weights are read behind normalizations: those weights by columns
/// over the last axis, what follows from it, batches over the other axes.
std::vector<KnownPlan> knownPlans(FlowGraph &graph, const Placement &placement);

/// A conversion of a plan.
struct Reshard {
  std::string value;
  std::string from, to; ///< Layout::str
  Picos time = 0;
  int64_t receivedBytes = 0;
  int64_t lowerBoundBytes = 0; ///< see ReshardPlan; 0 for window buffers
  int64_t copies = 1;          ///< equal conversions of other values, in equal layers
};

/// The conversions that take longest in all, equal ones counted together, at most
/// `count`.
std::vector<Reshard> costliestReshards(Timing &timing, const Decided &plan, size_t count);

} // namespace partita::search

#endif // PARTITA_SEARCH_COMPARE_H
