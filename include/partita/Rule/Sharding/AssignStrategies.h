//===- AssignStrategies.h - Strategies from axes ----------------*- C++ -*-===//
#ifndef PARTITA_RULE_SHARDING_ASSIGNSTRATEGIES_H
#define PARTITA_RULE_SHARDING_ASSIGNSTRATEGIES_H

#include "partita/Rule/Sharding/Propagation.h"
#include "partita/Rule/Sharding/Strategy.h"

namespace partita {

/// Strategies from the axes of atoms: one padded extent per class of linked atoms, then
/// reductions deferred through linear ops where that does not cost bytes, done before
/// forks and behind additions where that saves some, then every
/// argument in the layout in which all its users read it, if there is one; a state leaves
/// in the layout in which it comes. Blocks that
/// seeds give hold for their whole class of linked atoms, wherever it has the same axes
/// and the op allows it; elsewhere blocks are equal.
std::vector<Strategy> strategiesOf(const FlowGraph &graph,
                                   const std::vector<AxisList> &axes,
                                   const std::vector<Seed> &seeds = {});

} // namespace partita

#endif // PARTITA_RULE_SHARDING_ASSIGNSTRATEGIES_H
