//===- StepCut.h - A training step cut into stages --------------*- C++ -*-===//
//
// The stages of a training step run their forward and backward parts in the order of a
// schedule (StepOrder.h), and update their weights when they are done. The cut has the
// least seconds of a simulated step: the schedule's order, run with the times of the
// stages that the cut makes, to the end of the last group's updates. So groups with two
// stages are as even as those with one, a stage whose weights are large has less to
// compute, and stages behind which much crosses are avoided.
//
// Every choice of places is tried where there are few; else the cut whose slowest stage
// is fastest (Stages.h) is improved place by place until no move helps.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_STEPCUT_H
#define PARTITA_SEARCH_STEPCUT_H

#include "partita/Comm/StepOrder.h"
#include "partita/Search/Stages.h"

namespace partita::search {

/// Seconds on one device, by op of the forward graph: of the op for a micro-batch, of
/// what passes its cotangent on, of the gradients of its weights, and of their updates in
/// a step.
struct StepWork {
  std::vector<double> forward, backward, weight, update;

  /// An op's share of a step, for one of `microBatches`.
  std::vector<double> perMicroBatch(int64_t microBatches) const;
};

/// The stage of every op of the forward graph, as cutIntoStages has it, with its errors.
/// `link`: bytes per second, ranks by stage; its seconds are not used.
Expected<std::vector<int32_t>> cutStep(const FlowGraph &graph, const StepWork &work,
                                       const StageCost &link, const PipelineStep &step);

} // namespace partita::search

#endif // PARTITA_SEARCH_STEPCUT_H
