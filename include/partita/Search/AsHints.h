//===- AsHints.h - The shortest hints that lead to a plan -------*- C++ -*-===//
#ifndef PARTITA_SEARCH_ASHINTS_H
#define PARTITA_SEARCH_ASHINTS_H

#include "partita/Rule/Decide/Hints.h"
#include "partita/Search/Model.h"

namespace partita::search {

struct FoundHints {
  Hints hints;
  std::string json; ///< the same as a hints file
  /// Arguments, results and ops, and of how many the strategy by these hints is another
  /// than the plan's: hints do not say which axes pass through an op as partial.
  size_t ops = 0, differing = 0;
  std::string firstDiffering; ///< the name of one, if any
  PlanCost cost;              ///< of the plan by hints
  bool isShortest = true;     ///< else there was no time to try every entry
};

/// Hints for weights, arguments and values, equal layers by one glob, of which none can
/// be left out: without it propagation leads to another plan. What is left is found by
/// leaving out more and more for at most 20 seconds, values first, so that most of it is
/// about weights. `graph` is the one that was searched. An error if the plan cannot be
/// said in hints.
Expected<FoundHints> asHints(const FlowGraph &graph, const Placement &placement,
                             const Decided &plan);

} // namespace partita::search

#endif // PARTITA_SEARCH_ASHINTS_H
