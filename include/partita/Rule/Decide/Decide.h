//===- Decide.h - A strategy for every op by propagation --------*- C++ -*-===//
#ifndef PARTITA_RULE_DECIDE_DECIDE_H
#define PARTITA_RULE_DECIDE_DECIDE_H

#include "partita/Rule/Decide/Hints.h"
#include "partita/Rule/Sharding/AssignStrategies.h"
#include "partita/Rule/Sharding/Price.h"
#include "partita/Rule/Sharding/ServeUses.h"

namespace partita {

struct Decision {
  std::vector<Strategy> strategies;
  Propagated propagated;
  Price price;
  std::vector<std::string> notes; ///< one sentence each, for the user
  /// Values whose users are not served as serveUses would: weights that are kept in
  /// parts.
  Servings servings = {};
};

/// Decides a strategy for every op by propagation.
///   SemiAuto      hints and propagation
///   DataParallel  the batch dim of every argument over all axes, or those that hints
///                 leave free in all that it reaches, then propagation
///   Auto          as SemiAuto; without hints lib/Search decides instead
/// What cannot be split stays replicated and is named in a note, as is a hint for an
/// input or a weight that nothing reads so. The graph is finalized; resolveHints may do
/// so anew.
Expected<Decision> decide(FlowGraph &graph, ShardMode mode, const Hints &hints);

} // namespace partita

#endif // PARTITA_RULE_DECIDE_DECIDE_H
