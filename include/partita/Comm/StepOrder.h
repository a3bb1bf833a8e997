//===- StepOrder.h - Schedules of a training step's pipeline ----*- C++ -*-===//
//
// A step of K stages on K ranks of a pipeline runs, for each micro-batch, the forward
// part F of every stage, then the backward parts B from the last stage to the first, and
// the gradients of weights W, which nobody waits for before the update. In which order a
// rank runs its parts decides how long ranks wait (the bubble) and how many micro-batches
// they keep values of. With unit times t_F, t_B, t_W, K stages and m micro-batches:
//
//   gpipe   all F, then all B              bubble (K−1)(t_F + t_B + t_W)   keeps m
//   1f1b    K−1−s F ahead, then B and F    bubble (K−1)(t_F + t_B + t_W)   keeps K−s
//           in turns
//   inter-  V stages on each rank, dealt   bubble (K−1)(t_F + t_B + t_W)   keeps the K of
//   leaved  in turns; each for K           / V of times of a rank's        its stages and
//           micro-batches, then the next   work                            what runs
//           ahead
//   zb-h1   as 1f1b, with W put off so     bubble (K−1)(t_F + t_B − t_W)   keeps K
//           that B is passed on earlier
//
// (Huang et al. 2019; Narayanan et al. 2021; Qi et al. 2024.) Stage 1 of 2 with 3
// micro-batches under 1f1b runs F0 B0 F1 B1 F2 B2, stage 0 runs F0 F1 B0 F2 B1 B2.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COMM_STEPORDER_H
#define PARTITA_COMM_STEPORDER_H

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace partita {

enum class StepSchedule : uint8_t {
  OneForwardOneBackward,
  Gpipe,
  ZeroBubbleH1,
  Interleaved
};

/// "1f1b", "gpipe", "zb-h1", "interleaved"; none of that name: nullopt.
const char *name(StepSchedule schedule);
std::optional<StepSchedule> stepScheduleOf(std::string_view name);

/// Weight: gradients of weights where a schedule puts them off; else they are a part of
/// Backward.
enum class StepPart : uint8_t { Forward, Backward, Weight };

struct StepTurn {
  StepPart part = StepPart::Forward;
  int64_t microBatch = 0;
  int64_t stage = 0;
  auto operator<=>(const StepTurn &) const = default;
};

struct PipelineStep {
  StepSchedule schedule = StepSchedule::OneForwardOneBackward;
  int64_t stages = 1;
  int64_t microBatches = 1;
  /// Groups of ranks, each with a mesh; stage s is on group s mod groups. There are as
  /// many groups as stages but for Interleaved, where they divide stages and
  /// micro-batches.
  int64_t groups = stages;
  /// An order, by group, that somebody else has made (StepText.h), instead of `schedule`.
  std::vector<std::vector<StepTurn>> given = {};

  /// Tells whether Weight is a part of its own.
  bool partsWeights() const;
};

/// The turns of a group, one after the other, between what stands before and behind the
/// loop over micro-batches.
std::vector<StepTurn> turnsOf(const PipelineStep &shape, int64_t group);

/// Seconds of the parts of a stage; `transfer` between neighbours.
struct StepTimes {
  double forward = 1, backward = 1, weight = 1, transfer = 0;
};
struct StepTimeline {
  double seconds = 0;
  /// The begin and end of each turn, by group.
  struct Span {
    StepTurn turn;
    double begin = 0, end = 0;
  };
  std::vector<std::vector<Span>> spans;
  std::vector<double> busy; ///< by group
  /// The most forward parts, by group, that have run while the last part that reads what
  /// they kept has not.
  std::vector<int64_t> kept;
};
/// Runs every part as soon as what it waits for is there.
/// `times` by stage, or one for all.
StepTimeline simulate(const PipelineStep &shape, const std::vector<StepTimes> &times);

} // namespace partita

#endif // PARTITA_COMM_STEPORDER_H
