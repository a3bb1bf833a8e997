//===- Strategies.h - Every legal strategy of a rule ------------*- C++ -*-===//
#ifndef PARTITA_TEST_SPMD_STRATEGIES_H
#define PARTITA_TEST_SPMD_STRATEGIES_H

#include "partita/Rule/Sharding/ShardingRule.h"
#include "partita/Rule/Sharding/Strategy.h"

#include <vector>

namespace partita::spmd {

/// How far the enumeration goes. Every assignment of prime sub-axes to {no one, each
/// factor that may be split, each linear set} is always taken.
enum class Depth {
  /// One arrangement per assignment: whole factors, axes in mesh order, least padding.
  Assignments,
  /// Also every order of the axes of one factor, every cut of a factor into two
  /// sub-factors with the axes spread over both, and padding to a multiple of all ranks.
  Arrangements,
};

/// Legal strategies: those that verifyStrategy accepts.
std::vector<Strategy> enumerateStrategies(const Mesh &mesh, const ShardingRule &rule,
                                          Depth depth);

} // namespace partita::spmd

#endif // PARTITA_TEST_SPMD_STRATEGIES_H
