//===- StepOrderTest.cpp - Schedules of a training step's pipeline --------===//
#include "partita/Comm/StepOrder.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

using namespace partita;

static std::string text(const std::vector<StepTurn> &turns) {
  std::string out;
  for (const StepTurn &turn : turns)
    out += (out.empty() ? "" : " ") +
           std::string("FBW").substr(static_cast<size_t>(turn.part), 1) +
           std::to_string(turn.microBatch);
  return out;
}

TEST_CASE("1F1B runs as many forward parts ahead as there are stages behind", "[step]") {
  PipelineStep shape{StepSchedule::OneForwardOneBackward, 3, 4};
  CHECK(text(turnsOf(shape, 0)) == "F0 F1 F2 B0 F3 B1 B2 B3");
  CHECK(text(turnsOf(shape, 1)) == "F0 F1 B0 F2 B1 F3 B2 B3");
  CHECK(text(turnsOf(shape, 2)) == "F0 B0 F1 B1 F2 B2 F3 B3");
  shape.microBatches = 1; // fewer than stages
  CHECK(text(turnsOf(shape, 0)) == "F0 B0");
}

TEST_CASE("GPipe runs all forward parts first", "[step]") {
  CHECK(text(turnsOf({StepSchedule::Gpipe, 2, 3}, 1)) == "F0 F1 F2 B0 B1 B2");
}

TEST_CASE("ZB-H1 puts gradients of weights off by the number of the stage", "[step]") {
  PipelineStep shape{StepSchedule::ZeroBubbleH1, 3, 4};
  CHECK(text(turnsOf(shape, 0)) == "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3");
  CHECK(text(turnsOf(shape, 2)) == "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3");
}

// Bubbles and what is kept are those of the header, for times that are no multiples.
TEST_CASE("Schedules have their published bubble and memory", "[step]") {
  const StepTimes t{1.0, 1.25, 0.75, 0};
  for (int64_t stages : {1, 2, 3, 4, 8})
    for (int64_t count : {8, 9, 16, 24}) {
      const auto last = static_cast<double>(stages - 1);
      const double work =
          static_cast<double>(count) * (t.forward + t.backward + t.weight);
      INFO(stages << " stages, " << count << " micro-batches");
      auto bubble = [&](StepSchedule schedule) {
        return simulate({schedule, stages, count}, {t}).seconds - work;
      };
      const double whole = last * (t.forward + t.backward + t.weight);
      CHECK(bubble(StepSchedule::Gpipe) == Approx(whole).margin(1e-9));
      CHECK(bubble(StepSchedule::OneForwardOneBackward) == Approx(whole).margin(1e-9));
      CHECK(bubble(StepSchedule::ZeroBubbleH1) ==
            Approx(last * (t.forward + t.backward - t.weight)).margin(1e-9));
      for (int64_t s = 0; s < stages; ++s) {
        auto kept = [&](StepSchedule schedule) {
          return simulate({schedule, stages, count}, {t}).kept[static_cast<size_t>(s)];
        };
        CHECK(kept(StepSchedule::Gpipe) == count);
        CHECK(kept(StepSchedule::OneForwardOneBackward) == stages - s);
        CHECK(kept(StepSchedule::ZeroBubbleH1) == stages);
      }
    }
}

TEST_CASE("Interleaving divides the bubble by the stages of a rank", "[step]") {
  for (int64_t groups : {1, 2, 4})
    for (int64_t chunks : {1, 2, 3})
      for (int64_t rounds : {1, 2, 4}) {
        const PipelineStep shape{StepSchedule::Interleaved, groups * chunks,
                                 groups * rounds, groups};
        const StepTimeline line = simulate(shape, {{1, 1.25, 0.75, 0}});
        INFO(groups << " groups, " << chunks << " stages each, " << rounds << " rounds");
        // A rank's work is `chunks` stages, whose bubble is that of one.
        const double work = static_cast<double>(groups * rounds * chunks) * 3;
        CHECK(line.seconds - work ==
              Approx(3 * static_cast<double>(groups - 1)).margin(1e-9));
        std::set<StepTurn> seen;
        for (int64_t g = 0; g < groups; ++g)
          for (const StepTurn &turn : turnsOf(shape, g)) {
            CHECK(turn.stage % groups == g);
            CHECK(seen.insert(turn).second);
          }
        CHECK(seen.size() == static_cast<size_t>(2 * shape.stages * shape.microBatches));
      }
}

TEST_CASE("Every part of every micro-batch has one turn, behind what it needs",
          "[step]") {
  for (auto schedule : {StepSchedule::Gpipe, StepSchedule::OneForwardOneBackward,
                        StepSchedule::ZeroBubbleH1})
    for (int64_t stages : {1, 2, 5})
      for (int64_t count : {1, 2, 4, 7})
        for (int64_t s = 0; s < stages; ++s) {
          PipelineStep shape{schedule, stages, count};
          std::set<StepTurn> seen;
          for (const StepTurn &turn : turnsOf(shape, s)) {
            CHECK(seen.insert(turn).second);
            if (turn.part != StepPart::Forward)
              CHECK(seen.contains({StepPart::Forward, turn.microBatch, s}));
            if (turn.part == StepPart::Weight)
              CHECK(seen.contains({StepPart::Backward, turn.microBatch, s}));
          }
          CHECK(seen.size() ==
                static_cast<size_t>(count * (shape.partsWeights() ? 3 : 2)));
        }
}

TEST_CASE("Transfers delay and slow stages bound", "[step]") {
  PipelineStep shape{StepSchedule::OneForwardOneBackward, 2, 2};
  // F0 of stage 0 ends at 1, moves for 0.5, F0 and B0 of stage 1 end at 4.5, …
  StepTimeline line = simulate(shape, {{1, 1, 1, 0.5}});
  CHECK(line.seconds == Approx(10));
  CHECK(line.busy[0] == Approx(6));
  // The slow stage works without a pause once it has begun.
  line = simulate({StepSchedule::OneForwardOneBackward, 2, 16}, {{1, 1, 1}, {2, 2, 2}});
  CHECK(line.seconds == Approx(1 + 16 * 6 + 2));
}

TEST_CASE("Schedules have names", "[step]") {
  for (auto schedule : {StepSchedule::Gpipe, StepSchedule::OneForwardOneBackward,
                        StepSchedule::ZeroBubbleH1})
    CHECK(stepScheduleOf(name(schedule)) == schedule);
  CHECK(!stepScheduleOf("zb-h3"));
}
