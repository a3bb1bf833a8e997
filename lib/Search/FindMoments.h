//===- FindMoments.h - Moments that ranks gather together -------*- C++ -*-===//
//
// The moments of a decided flow graph that CombineMomentsPass writes by those of each
// rank's own elements (Rule/Sharding/CombinedMoments.h).
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_SEARCH_FINDMOMENTS_H
#define PARTITA_LIB_SEARCH_FINDMOMENTS_H

#include "partita/Rule/Sharding/CombinedMoments.h"
#include "partita/Rule/Sharding/Flow.h"
#include "partita/Rule/Sharding/ServeUses.h"

#include <functional>
#include <set>

namespace partita::search {

/// A mean that ranks reduce: a sum of elements, by their number.
struct FlowMean {
  int32_t sum = -1, share = -1; ///< flow ops
  int32_t value = -1;           ///< that the latter makes
  Layout whole;                 ///< in which it is served
};

struct FlowMoments {
  FlowMean mean, variance;
  int32_t distance = -1, square = -1; ///< flow ops from the mean to the variance
  MomentGroups groups;
};

class MomentFinder {
public:
  /// Services of a value that convert it, as the plan has them.
  using Services = std::function<std::vector<ServedLayout>(int32_t value)>;

  MomentFinder(const FlowGraph &graph, const std::vector<Strategy> &strategies,
               Services services)
      : graph(graph), strategies(strategies), services(std::move(services)) {}

  std::vector<FlowMoments> run();

  std::set<int32_t> replaced; ///< flow ops that nothing needs any more

private:
  const FlowOp &op(int32_t number) const {
    return graph.ops[static_cast<size_t>(number)];
  }
  int32_t producer(int32_t value) const {
    return graph.values[static_cast<size_t>(value)].producer;
  }
  /// Producer of an operand that is read as it is made; −1: it is converted.
  int32_t makerOf(int32_t op, size_t operand) const;
  /// Tells if the service is the only one of the value, and only reduces it.
  bool onlyReduces(const FlowMean &mean, const ServedLayout &service) const;
  std::optional<FlowMean> meanOf(int32_t share) const;
  std::optional<FlowMoments> momentsOf(int32_t share) const;
  void replace(const FlowMoments &moments);

  const FlowGraph &graph;
  const std::vector<Strategy> &strategies;
  const Services services;
};

} // namespace partita::search

#endif // PARTITA_LIB_SEARCH_FINDMOMENTS_H
