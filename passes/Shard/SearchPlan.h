//===- SearchPlan.h - Deciding by search ------------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_SHARD_SEARCHPLAN_H
#define PARTITA_PASSES_SHARD_SEARCHPLAN_H

#include "partita/Rule/Decide/Hints.h"
#include "partita/Search/Search.h"

namespace partita {

struct SearchedPlan {
  Decision decision;
  Servings servings;
  search::Found found;
  std::optional<int64_t> memoryLimit;
};

/// The fastest plan on the cluster of a file, or on this host: then every mesh axis is a
/// level of shared memory between cores, and a note says so. `memory` as in cluster
/// files ("16GiB"); empty: with a file its device's, else no limit.
Expected<SearchedPlan> searchPlan(const FlowGraph &graph, const std::string &clusterFile,
                                  const std::string &memory);

} // namespace partita

#endif // PARTITA_PASSES_SHARD_SEARCHPLAN_H
