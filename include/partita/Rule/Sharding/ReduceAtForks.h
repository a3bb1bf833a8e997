//===- ReduceAtForks.h - Partial sums are reduced once ----------*- C++ -*-===//
#ifndef PARTITA_RULE_SHARDING_REDUCEATFORKS_H
#define PARTITA_RULE_SHARDING_REDUCEATFORKS_H

#include "partita/Rule/Sharding/Flow.h"
#include "partita/Rule/Sharding/Strategy.h"

namespace partita {

/// Reduces a partial value that several ops let pass where it is made, if that moves
/// fewer bytes than reductions behind these ops: the variance of a batch goes into the
/// normalization and into a running average, each of which would reduce it.
void reduceAtForks(const FlowGraph &graph, std::vector<Strategy> &strategies);

} // namespace partita

#endif // PARTITA_RULE_SHARDING_REDUCEATFORKS_H
