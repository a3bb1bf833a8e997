//===- Ties.h - One layout for what is one variable -------------*- C++ -*-===//
//
// The ends of a tie (partita/Rule/Sharding/Flow.h) have one layout. Propagation goes
// through ties as through values, but may leave two ends of one in two layouts: then one
// of these is chosen for all. Whatever it is, the program is right, for every user of an
// end reads it through a conversion.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RULE_SHARDING_TIES_H
#define PARTITA_RULE_SHARDING_TIES_H

#include "partita/Rule/Sharding/Flow.h"
#include "partita/Rule/Sharding/Strategy.h"

namespace partita {

/// The layout of an end: of an op of one tensor without operands, or without results.
Layout endLayout(const FlowGraph &graph, int32_t op, const Strategy &strategy);

/// Gives the members of each tie the layout of one of them, or whole: that from which the
/// conversions around them receive the fewest bytes in a run of the program. Of equal
/// ones the first.
void settleTies(const FlowGraph &graph, std::vector<Strategy> &strategies);

/// The same where only the strategies of other ops are known: the layouts to choose from
/// are those in which an end's value is made, or read.
void settleEnds(const FlowGraph &graph, std::vector<Strategy> &strategies);

} // namespace partita

#endif // PARTITA_RULE_SHARDING_TIES_H
