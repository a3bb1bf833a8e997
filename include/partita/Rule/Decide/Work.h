//===- Work.h - Who computes what, and what twice ---------------*- C++ -*-===//
#ifndef PARTITA_RULE_DECIDE_WORK_H
#define PARTITA_RULE_DECIDE_WORK_H

#include "partita/Rule/Sharding/Flow.h"
#include "partita/Rule/Sharding/Strategy.h"

namespace partita {

/// How the operations of a program are spread by strategies: counts of FlowOp::flops.
struct Work {
  double total = 0;       ///< of the program on one rank
  double mostPerRank = 0; ///< of the rank that has most, padding computed like the rest
  double meanPerRank = 0; ///< what is left where padding is not counted
  /// Of what all ranks compute, the share that another one computes too.
  double duplicated = 0;
  struct Axis {
    std::string name;
    int64_t size = 1;
    double unused = 0; ///< the share of the work that is not split along it
    /// The share for which some coordinate along it has nothing but padding.
    double onlyPadding = 0;
  };
  std::vector<Axis> axes; ///< those of the mesh that have more than one rank
  /// Ops that run whole on every rank, none on a mesh of one rank: how many, their share
  /// of the work, and their nodes, the one with most work first.
  size_t numWhole = 0;
  double wholeShare = 0;
  std::vector<std::string> whole;
};

Work workOf(const FlowGraph &graph, const std::vector<Strategy> &strategies);

/// Sentences for the user, all from the same count: ops that run whole, axes that do
/// little or nothing, ranks that hold only padding.
std::vector<std::string> workNotes(const Work &work);

} // namespace partita

#endif // PARTITA_RULE_DECIDE_WORK_H
