//===- CarrySums.h - Sums over the trips of a loop --------------*- C++ -*-===//
#ifndef PARTITA_RULE_SHARDING_CARRYSUMS_H
#define PARTITA_RULE_SHARDING_CARRYSUMS_H

#include "partita/Rule/Sharding/Propagation.h"
#include "partita/Rule/Sharding/Strategy.h"

namespace partita {

/// A value that a loop carries and each trip adds a partial sum to (a gradient over
/// micro-batches) stays partial from trip to trip where that moves fewer bytes: it is
/// reduced once behind the loop, not in every trip. The ends of the tie get partial axes,
/// and the addition lets them pass. A tie that a seed is for stays as it is: split
/// gradients that are scattered in every trip take less memory.
void carrySums(const FlowGraph &graph, const std::vector<Seed> &seeds,
               std::vector<Strategy> &strategies);

} // namespace partita

#endif // PARTITA_RULE_SHARDING_CARRYSUMS_H
