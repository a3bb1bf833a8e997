//===- ResolveHints.h - Hints become seeds ----------------------*- C++ -*-===//
//
// Nothing is ignored: an unknown name, a count that no node can do, an axis used twice is
// an error that names the node, dim and value.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RULE_DECIDE_RESOLVEHINTS_H
#define PARTITA_RULE_DECIDE_RESOLVEHINTS_H

#include "partita/Rule/Decide/Hints.h"
#include "partita/Rule/Sharding/Propagation.h"

namespace partita {

/// Seeds for every hinted atom. Counts become axes so that one factor has the same axes
/// in every operand; among several ways the one with the lowest price, then mesh order.
///
/// What a node alone can do is accepted: where its neighbours cut a loop so that the hint
/// does not fit, or leave no room for padding, the loop is detached and `graph` finalized
/// anew. Errors are what the node cannot do: to split a loop that it needs whole, more
/// ways than it has elements, or unevenly where it is not major; one loop in two ways;
/// one axis twice.
Expected<std::vector<Seed>> resolveHints(FlowGraph &graph, const Hints &hints);

/// The hints without those that name nothing of `graph`: for a stage of a pipeline, which
/// has only some of the model's nodes.
Hints hintsFor(const FlowGraph &graph, const Hints &hints);

} // namespace partita

#endif // PARTITA_RULE_DECIDE_RESOLVEHINTS_H
