//===- AddPartials.h - Partial sums are added, then reduced -----*- C++ -*-===//
#ifndef PARTITA_RULE_SHARDING_ADDPARTIALS_H
#define PARTITA_RULE_SHARDING_ADDPARTIALS_H

#include "partita/Rule/Sharding/Propagation.h"
#include "partita/Rule/Sharding/Strategy.h"

namespace partita {

/// Lets an addition whose operands are all partial over the same axes add them as they
/// are, where that moves fewer bytes: the sum is reduced once, in the place of every
/// operand. Deferring alone does not see it where the addition is split by these axes,
/// as the cotangent of a value is that three products have read and whose positions are
/// split. Additions that a seed is for stay as they are.
void addPartials(const FlowGraph &graph, const std::vector<Seed> &seeds,
                 std::vector<Strategy> &strategies);

} // namespace partita

#endif // PARTITA_RULE_SHARDING_ADDPARTIALS_H
