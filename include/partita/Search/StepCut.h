//===- StepCut.h - A training step cut into stages --------------*- C++ -*-===//
//
// The stages of a training step run their forward and backward parts in the order of a
// schedule (StepOrder.h), and update their weights when they are done. The cut has the
// least seconds of a simulated step: the schedule's order, run with the times of the
// stages that the cut makes, to the end of the last group's updates. So groups with two
// stages are as even as those with one, a stage whose weights are large has less to
// compute, and stages behind which much crosses are avoided. Where devices have a limit,
// cuts of which a group would need more are not taken, as an early stage keeps more
// micro-batches than a late one (1F1B: K − s); if no cut is known that fits, the limit
// counts for nothing.
//
// Every choice of places is tried where there are few; else the cut whose slowest stage
// is fastest (Stages.h) is improved place by place until no move helps.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_STEPCUT_H
#define PARTITA_SEARCH_STEPCUT_H

#include "partita/Comm/StepOrder.h"
#include "partita/Search/Stages.h"

#include <limits>

namespace partita::search {

/// Seconds on one device, by op of the forward graph: of the op for a micro-batch, of
/// what passes its cotangent on, of the gradients of its weights, and of their updates in
/// a step.
struct StepWork {
  std::vector<double> forward, backward, weight, update;
  /// Bytes, by op: of its results what the backward pass reads of a micro-batch; of the
  /// parameters that are its first, with their gradients and the optimizer's states.
  /// Empty: none.
  std::vector<double> kept = {}, states = {};

  /// An op's share of a step, for one of `microBatches`.
  std::vector<double> perMicroBatch(int64_t microBatches) const;
};

/// Memory of a device, which the stages of its group share.
struct StepMemory {
  double bytes = std::numeric_limits<double>::infinity();
  /// The ranks of a group share its states; else each has all of them. What is kept of
  /// micro-batches they share in any case.
  bool sharesStates = true;
};

struct StepCut {
  /// Stages by op of the forward graph, as cutIntoStages has them.
  std::vector<int32_t> stages;
  /// Bytes of a device of the fullest group, by what StepWork knows: nothing of what only
  /// lives within one part of one micro-batch.
  double bytes = 0;
};

/// The cut of the forward graph, with the errors of cutIntoStages. `link`: bytes per
/// second, ranks by stage; its seconds are not used.
Expected<StepCut> cutStep(const FlowGraph &graph, const StepWork &work,
                          const StageCost &link, const PipelineStep &step,
                          const StepMemory &memory = {});

} // namespace partita::search

#endif // PARTITA_SEARCH_STEPCUT_H
