//===- StageOrder.h - In which order ranks run their stages -----*- C++ -*-===//
//
// Stages of a pipeline lie on groups of ranks, one or several on each. Micro-batches go
// through the stages in *rounds* of r: a group runs its first stage for the r
// micro-batches of a round, then its next stage for them, and so on; then the next round
// begins. With as many micro-batches in a round as there are groups, and stages dealt to
// groups in turn, that is the interleaved order of Megatron's forward passes: when a
// group has run a stage for a round, the first micro-batch is back from the other groups.
// With one round for all it is GPipe's. Four stages on two groups, four micro-batches,
// rounds of two (stage:micro-batch):
//
//     group 0   0:0 0:1 2:0 2:1 0:2 0:3 2:2 2:3  .
//     group 1    .  1:0 1:1 3:0 3:1 1:2 1:3 3:2 3:3
//
// The order (round, stage, micro-batch) is one in which everything may run one after the
// other, and the order of each group is a part of it. So groups that wait for each other
// come to an end, if what crosses has a slot for each micro-batch of a round: a slot is
// filled again in a later round than it was read in.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_BUNDLE_STAGEORDER_H
#define PARTITA_BASE_BUNDLE_STAGEORDER_H

#include <cstdint>
#include <vector>

namespace partita {

struct StageOrder {
  std::vector<int64_t> groupOf; ///< by stage; every group 0 … n−1 has one
  int64_t microBatches = 1;
  int64_t round = 1; ///< micro-batches of a round

  int64_t numGroups() const;
  /// Of what crosses: two, so that one may be filled while the other is read, and enough
  /// for a round.
  int64_t slots() const;
};

struct PlanEntry;
/// Of a plan: stages of the same ranks are a group, and groups are numbered by their
/// ranks. In plans of older versions each stage has its own.
StageOrder orderOf(const PlanEntry &plan);

/// A stage for a micro-batch.
struct StageTurn {
  int64_t stage = 0, microBatch = 0;
};

/// What the group runs, one after the other.
std::vector<StageTurn> turnsOf(const StageOrder &order, int64_t group);

/// When each turn begins if all take one unit of time and transfers none: by stage and
/// micro-batch. A stage waits for the one before it.
std::vector<std::vector<int64_t>> beginsOf(const StageOrder &order);

} // namespace partita

#endif // PARTITA_BASE_BUNDLE_STAGEORDER_H
