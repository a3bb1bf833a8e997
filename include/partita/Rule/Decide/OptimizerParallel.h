//===- OptimizerParallel.h - Where a replicated parameter is kept -*- C++ -*-===//
//
// Of a parameter that several ranks hold whole, each of them may keep a part: of its
// moments (level 1), of the gradient that micro-batches add up (2), of itself (3). That
// is a layout: the parameter's, split further over the axes along which it is replicated,
// in the first dim whose blocks they divide. What updates the parameter runs where its
// moments lie. Gathers and reduce-scatters are conversions like any other.
//
// Semantics of the knobs follow MindSpore's optimizer parallel. There only the first dim
// is tried; here any dim, in order.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RULE_DECIDE_OPTIMIZERPARALLEL_H
#define PARTITA_RULE_DECIDE_OPTIMIZERPARALLEL_H

#include "partita/Rule/Decide/Decide.h"

#include <map>

namespace partita {

struct OptimizerParallel {
  int level = 0;              ///< 0: nothing is done
  int64_t thresholdBytes = 0; ///< smaller parameters stay whole; of equal size they split
  int64_t shardSize = -1;     ///< ranks that share one; -1: all that hold it
};

/// What belongs to one parameter, by ops of the flow graph.
struct ParameterOps {
  int32_t weight = -1;            ///< its State
  std::vector<int32_t> moments;   ///< States of its size
  std::vector<int32_t> gradients; ///< ends of what accumulates its gradient
  std::vector<int32_t> adders;    ///< ops that add to that
  std::vector<int32_t> updates;   ///< ops of its update
  /// Ends by which loops read it: what goes in, and the argument of the body.
  std::vector<int32_t> readings;
};

/// By State, and end of an accumulated gradient, where it is to lie, for the parameters
/// as `decision` has them. Notes say how many parameters stay as they are, and why.
std::map<int32_t, Layout> optimizerHomes(const FlowGraph &graph, const Decision &decision,
                                         const OptimizerParallel &knobs,
                                         const std::vector<ParameterOps> &parameters,
                                         std::vector<std::string> &notes);

/// Gives these ends their layouts, with the ends that are tied to them, and updates and
/// adders the strategies that follow from them.
void placeOptimizer(const FlowGraph &graph, const std::map<int32_t, Layout> &homes,
                    const std::vector<ParameterOps> &parameters, Decision &decision);

} // namespace partita

#endif // PARTITA_RULE_DECIDE_OPTIMIZERPARALLEL_H
