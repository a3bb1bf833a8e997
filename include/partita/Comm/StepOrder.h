//===- StepOrder.h - Schedules of a training step's pipeline ----*- C++ -*-===//
//
// A step of K stages on G groups of ranks runs, for each micro-batch, the forward part F
// of every stage, then the backward parts B from the last stage to the first, and the
// gradients of weights W, which nobody waits for before the update. In which order a
// group runs its parts decides how long ranks wait (the bubble) and how many
// micro-batches they keep values of. A group has one stage s, but where it says
// otherwise; a stage takes f, b and w; there are m micro-batches:
//
//   name         a group runs                              bubble            keeps
//   gpipe        all F, then all B                         (K−1)(f + b + w)  m
//   1f1b         K−1−s F ahead, then F and B in turns      (K−1)(f + b + w)  K−s
//   interleaved  V stages, dealt in turn, each for G       (G−1)(f + b + w)  V·G and more
//                micro-batches, then the next                                of K stages
//   zb-h1        as 1f1b, W later by s micro-batches       (K−1)(f + b − w)  K
//   zb-h2        twice as many F ahead, W twice as late    (K−1)(f + b − 2w) 2K−1
//                                                          between steps
//   zb-auto:C    as many F ahead as find time and room,    what is left      C·K
//                W where time is left
//   zb-v         stages s and 2G−1−s, W where time is      (G−1)·f if f = b  G
//                left                                      = w
//   v-half       as zb-v, a V that turns sooner            half of 1f1b's    G/2 + 1
//   v-min        the V that keeps least                    2/3 of 1f1b's     G/3 + 2
//
// (Huang et al. 2019; Narayanan et al. 2021; Qi et al. 2024, of which the one on
// controllable memory has the V; a stage of a V counts as half a micro-batch.) Stage 1 of
// 2 with 3 micro-batches under 1f1b runs F0 B0 F1 B1 F2 B2, stage 0 F0 F1 B0 F2 B1 B2.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COMM_STEPORDER_H
#define PARTITA_COMM_STEPORDER_H

#include "partita/Base/Error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

enum class ScheduleKind : uint8_t {
  OneForwardOneBackward,
  Gpipe,
  Interleaved,
  ZeroBubbleH1,
  ZeroBubbleH2,
  ZeroBubbleAuto,
  ZeroBubbleV,
  VHalf,
  VMin
};

struct StepSchedule {
  ScheduleKind kind = ScheduleKind::OneForwardOneBackward;
  /// Room of ZeroBubbleAuto: micro-batches over stages that a group may keep; above 0.
  double room = 1;

  /// Tells whether two stages lie on each group, the second on the way back.
  bool isV() const { return kind >= ScheduleKind::ZeroBubbleV; }
  bool operator==(const StepSchedule &) const = default;
};

/// "1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-auto:1.5", "zb-v", "v-half",
/// "v-min"; none of that name: nullopt.
std::string name(StepSchedule schedule);
std::optional<StepSchedule> stepScheduleOf(std::string_view name);
/// The names, between commas.
std::string stepScheduleNames();

/// Weight: gradients of weights where a schedule puts them off; else they are a part of
/// Backward.
enum class StepPart : uint8_t { Forward, Backward, Weight };

struct StepTurn {
  StepPart part = StepPart::Forward;
  int64_t microBatch = 0;
  int64_t stage = 0;
  auto operator<=>(const StepTurn &) const = default;
};

/// A schedule, made for a number of stages, groups and micro-batches.
struct PipelineStep {
  std::string schedule; ///< its name; empty: the order is of a file (StepText.h)
  int64_t microBatches = 1;
  std::vector<int64_t> groupOf; ///< by stage; every group 0 … n−1 has one
  /// Turns of each group, one after the other, between what stands before and behind the
  /// loop over micro-batches.
  std::vector<std::vector<StepTurn>> turns;
  bool partsWeights = false; ///< Weight is a part of its own

  int64_t stages() const { return static_cast<int64_t>(groupOf.size()); }
  int64_t groups() const { return static_cast<int64_t>(turns.size()); }
};

/// Numbers, by stage, of micro-batches of which it keeps at once what later parts read.
std::vector<int64_t> keptMicroBatches(const PipelineStep &step);

/// The group of each stage; 0 groups: as many as the schedule asks for. An error says
/// which numbers of stages and groups do not go with the schedule.
Expected<std::vector<int64_t>> placedStages(StepSchedule schedule, int64_t stages,
                                            int64_t groups);

/// Seconds of the parts of a stage; `transfer` to a stage of another group.
struct StepTimes {
  double forward = 1, backward = 1, weight = 1, transfer = 0;
};

/// The schedule for stages that lie so. An error says why it cannot be: a V has stages
/// s and 2G−1−s on group s, interleaving divides stages and micro-batches by groups, the
/// others have one stage on each group. `times` by stage, or one for all, say where a
/// schedule finds time for W (zb-auto, zb-v, v-half, v-min).
Expected<PipelineStep> makeStep(StepSchedule schedule, std::vector<int64_t> groupOf,
                                int64_t microBatches,
                                const std::vector<StepTimes> &times = {StepTimes()});

} // namespace partita

#endif // PARTITA_COMM_STEPORDER_H
