//===- MakeWhereAdded.h - Addends of a loop's sum in their place -*- C++ -*-===//
#ifndef PARTITA_RULE_SHARDING_MAKEWHEREADDED_H
#define PARTITA_RULE_SHARDING_MAKEWHEREADDED_H

#include "partita/Rule/Sharding/Propagation.h"
#include "partita/Rule/Sharding/Strategy.h"

namespace partita {

/// Makes the addend of a sum that a loop carries in the layout in which the addend is
/// added, where that moves fewer bytes. Propagation gives an op the axes of its operands
/// before those of its users: the rows of an embedding's gradient are split as tokens
/// are, and a table of them is reduced in every trip, though it takes less to have the
/// few rows of all tokens where a part of the table lies. Ops that a seed is for stay as
/// they are.
void makeWhereAdded(const FlowGraph &graph, const std::vector<Seed> &seeds,
                    std::vector<Strategy> &strategies);

} // namespace partita

#endif // PARTITA_RULE_SHARDING_MAKEWHEREADDED_H
