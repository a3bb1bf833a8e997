//===- StepTimeline.h - When groups run the parts of a step -----*- C++ -*-===//
//
// Runs a schedule's parts (StepOrder.h) as soon as what they wait for is there. With one
// unit for F and B of two stages, and gradients of weights in B, 1F1B of two
// micro-batches takes six units:
//
//   stage 0   F0  F1  .   B0  B1
//   stage 1   .   F0  B0  F1  B1 .
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COMM_STEPTIMELINE_H
#define PARTITA_COMM_STEPTIMELINE_H

#include "partita/Comm/StepOrder.h"

namespace partita {

/// Tells whether a transfer between groups holds up those that send and receive.
enum class SendRule : uint8_t {
  Delays,  ///< what is sent comes later; both ends work on
  Occupies ///< the sender is busy for a transfer, then the receiver is
};

struct StepTimeline {
  double seconds = 0;
  /// The begin and end of each turn, by group.
  struct Span {
    StepTurn turn;
    double begin = 0, end = 0;
  };
  std::vector<std::vector<Span>> spans;
  std::vector<double> busy; ///< by group, without transfers
  /// The most forward parts, by group, that have run while the last part that reads what
  /// they kept has not.
  std::vector<int64_t> kept;

  /// The longest time from the first begin to the last end of a group: a step's, where
  /// each group begins the next step when it has ended this one.
  double longestSpan() const;
};

/// Clocks of all groups, which run parts one by one.
class StepClock {
public:
  /// `times` by stage, or one for all. `partsWeights`: Backward does not have Weight.
  StepClock(const std::vector<int64_t> &groupOf, int64_t microBatches, bool partsWeights,
            const std::vector<StepTimes> &times, SendRule rule = SendRule::Delays);

  /// The time at which a part finds what it reads; nullopt: what makes it has not run.
  std::optional<double> readyAt(const StepTurn &turn) const;
  int64_t groupOf(int64_t stage) const { return groups[static_cast<size_t>(stage)]; }
  double now(int64_t group) const { return clocks[static_cast<size_t>(group)]; }
  int64_t kept(int64_t group) const { return live[static_cast<size_t>(group)]; }
  double secondsOf(const StepTurn &turn) const;
  /// Runs a part whose readyAt is known.
  void run(const StepTurn &turn);
  StepTimeline finish();

private:
  const StepTimes &timesOf(int64_t stage) const;
  /// The seconds that moving a value from a stage to another takes.
  double transferOf(int64_t from, int64_t to) const;
  /// The stage that makes what a part reads, or that reads what it makes; −1: none does.
  int64_t sourceOf(const StepTurn &turn) const;
  int64_t readerOf(const StepTurn &turn) const;

  std::vector<int64_t> groups; ///< by stage
  bool partsWeights;
  const std::vector<StepTimes> &times;
  SendRule rule;
  /// Ends of turns by part (forward, backward), stage and micro-batch; −1: not yet.
  std::vector<std::vector<std::vector<double>>> ends;
  std::vector<double> clocks;
  std::vector<int64_t> live;
  StepTimeline line;
};

StepTimeline simulate(const PipelineStep &step, const std::vector<StepTimes> &times,
                      SendRule rule = SendRule::Delays);

} // namespace partita

#endif // PARTITA_COMM_STEPTIMELINE_H
