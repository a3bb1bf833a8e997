//===- StepOrderTest.cpp - Schedules of a training step's pipeline --------===//
#include "partita/Comm/StepTimeline.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>
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

static PipelineStep made(const std::string &schedule, int64_t stages, int64_t count,
                         int64_t groups = 0,
                         const std::vector<StepTimes> &times = {StepTimes()}) {
  auto known = stepScheduleOf(schedule);
  REQUIRE(known);
  auto placed = placedStages(*known, stages, groups);
  REQUIRE(placed);
  auto step = makeStep(*known, *placed, count, times);
  REQUIRE(step);
  CHECK(step->schedule == schedule);
  return *step;
}

/// A step's work on one group, if all groups have as much.
static double workOf(const PipelineStep &step, const StepTimes &times) {
  return static_cast<double>(step.microBatches * step.stages() / step.groups()) *
         (times.forward + times.backward + times.weight);
}

TEST_CASE("1F1B runs as many forward parts ahead as there are stages behind", "[step]") {
  PipelineStep step = made("1f1b", 3, 4);
  CHECK(text(step.turns[0]) == "F0 F1 F2 B0 F3 B1 B2 B3");
  CHECK(text(step.turns[1]) == "F0 F1 B0 F2 B1 F3 B2 B3");
  CHECK(text(step.turns[2]) == "F0 B0 F1 B1 F2 B2 F3 B3");
  CHECK(text(made("1f1b", 3, 1).turns[0]) == "F0 B0"); // fewer than stages
}

TEST_CASE("GPipe runs all forward parts first", "[step]") {
  CHECK(text(made("gpipe", 2, 3).turns[1]) == "F0 F1 F2 B0 B1 B2");
}

TEST_CASE("ZB-H1 puts gradients of weights off by the number of the stage", "[step]") {
  PipelineStep step = made("zb-h1", 3, 4);
  CHECK(text(step.turns[0]) == "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3");
  CHECK(text(step.turns[2]) == "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3");
}

TEST_CASE("ZB-H2 runs twice as far ahead", "[step]") {
  PipelineStep step = made("zb-h2", 2, 4);
  CHECK(text(step.turns[0]) == "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3");
  CHECK(text(step.turns[1]) == "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3");
}

// Bubbles and what is kept are those of the header, for times that are no multiples.
TEST_CASE("Schedules have their published bubble and memory", "[step]") {
  const StepTimes t{1.0, 1.25, 0.75, 0};
  for (int64_t stages : {1, 2, 3, 4, 8})
    for (int64_t count : {16, 17, 24}) {
      const auto last = static_cast<double>(stages - 1);
      INFO(stages << " stages, " << count << " micro-batches");
      auto bubble = [&](const std::string &schedule) {
        PipelineStep step = made(schedule, stages, count);
        return simulate(step, {t}).seconds - workOf(step, t);
      };
      const double whole = last * (t.forward + t.backward + t.weight);
      CHECK(bubble("gpipe") == Approx(whole).margin(1e-9));
      CHECK(bubble("1f1b") == Approx(whole).margin(1e-9));
      CHECK(bubble("zb-h1") ==
            Approx(last * (t.forward + t.backward - t.weight)).margin(1e-9));
      for (int64_t s = 0; s < stages; ++s) {
        auto kept = [&](const std::string &schedule) {
          return simulate(made(schedule, stages, count), {t})
              .kept[static_cast<size_t>(s)];
        };
        CHECK(kept("gpipe") == count);
        CHECK(kept("1f1b") == stages - s);
        CHECK(kept("zb-h1") == stages);
        CHECK(kept("zb-h2") == 2 * stages - 1);
        for (const char *schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2"})
          CHECK(keptMicroBatches(made(schedule, stages, count))[static_cast<size_t>(s)] ==
                kept(schedule));
      }
    }
}

// Nobody waits with equal times if each group goes on with the next step.
TEST_CASE("Groups of zero bubble work without a pause", "[step]") {
  for (int64_t groups : {1, 2, 3, 4, 8})
    for (int64_t count : {16, 24}) {
      INFO(groups << " groups, " << count << " micro-batches");
      for (const char *schedule : {"zb-h2", "zb-auto:2"}) {
        PipelineStep step = made(schedule, groups, count);
        StepTimeline line = simulate(step, {StepTimes()});
        CHECK(line.longestSpan() == Approx(workOf(step, {})));
        CHECK(*std::ranges::max_element(line.kept) <= 2 * groups);
      }
      PipelineStep step = made("zb-v", 2 * groups, count);
      StepTimeline line = simulate(step, {StepTimes()});
      // The last group begins last; nothing else makes the step longer.
      CHECK(line.seconds == Approx(workOf(step, {}) + static_cast<double>(groups - 1)));
      CHECK(*std::ranges::max_element(line.kept) <= 2 * groups);
    }
}

TEST_CASE("A steeper V keeps less and waits longer", "[step]") {
  for (int64_t groups : {3, 4, 6, 8, 12, 16}) {
    INFO(groups << " groups");
    const double whole = 6 * static_cast<double>(groups - 1); // 1F1B's, of two stages
    auto check = [&](const char *schedule, double bubble, int64_t kept) {
      PipelineStep step = made(schedule, 2 * groups, 4 * groups);
      StepTimeline line = simulate(step, {StepTimes()});
      CHECK(line.seconds - workOf(step, {}) <= bubble);
      CHECK(*std::ranges::max_element(line.kept) <= kept);
    };
    check("v-half", whole / 2, groups + 2);
    // A V turns a unit later where its parts would meet.
    check("v-min", whole * 2 / 3 + (groups % 3 == 0 ? 1 : 0), 2 * groups / 3 + 4);
  }
}

TEST_CASE("An automatic schedule keeps within its room", "[step]") {
  const StepTimes times{18.5, 18.1, 9.3, 0.6};
  double before = 1e9;
  for (double room : {0.25, 0.5, 1.0, 1.5, 2.0}) {
    PipelineStep step =
        made(name({ScheduleKind::ZeroBubbleAuto, room}), 8, 32, 0, {times});
    StepTimeline line = simulate(step, {times});
    INFO("room " << room);
    CHECK(static_cast<double>(*std::ranges::max_element(line.kept)) <=
          std::max(1.0, 8 * room));
    CHECK(line.longestSpan() < before);
    before = line.longestSpan();
  }
  // Less than ZB-H1 waits, with as much room.
  CHECK(simulate(made("zb-auto:1", 8, 32, 0, {times}), {times}).longestSpan() <=
        simulate(made("zb-h1", 8, 32), {times}).longestSpan());
}

TEST_CASE("Interleaving divides the bubble by the stages of a rank", "[step]") {
  for (int64_t groups : {1, 2, 4})
    for (int64_t chunks : {1, 2, 3})
      for (int64_t rounds : {1, 2, 4}) {
        const PipelineStep step =
            made("interleaved", groups * chunks, groups * rounds, groups);
        const StepTimes times{1, 1.25, 0.75, 0};
        INFO(groups << " groups, " << chunks << " stages each, " << rounds << " rounds");
        // A rank's work is `chunks` stages, whose bubble is that of one.
        CHECK(simulate(step, {times}).seconds - workOf(step, times) ==
              Approx(3 * static_cast<double>(groups - 1)).margin(1e-9));
      }
}

TEST_CASE("Every part of every micro-batch has one turn, behind what it needs",
          "[step]") {
  for (const char *schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2", "zb-auto:0.5",
                               "zb-auto:1", "zb-v", "v-half", "v-min"})
    for (int64_t stages : {1, 2, 4, 5, 10, 24})
      for (int64_t count : {1, 2, 4, 7}) {
        if (stepScheduleOf(schedule)->isV() && stages % 2 != 0)
          continue;
        INFO(schedule << ", " << stages << " stages, " << count << " micro-batches");
        PipelineStep step = made(schedule, stages, count);
        std::set<StepTurn> seen;
        for (size_t g = 0; g < step.turns.size(); ++g)
          for (const StepTurn &turn : step.turns[g]) {
            CHECK(step.groupOf[static_cast<size_t>(turn.stage)] ==
                  static_cast<int64_t>(g));
            CHECK(seen.insert(turn).second);
            // Sums over micro-batches are added up in their order.
            if (turn.microBatch > 0)
              CHECK(seen.contains({turn.part, turn.microBatch - 1, turn.stage}));
            if (turn.part != StepPart::Forward)
              CHECK(seen.contains({StepPart::Forward, turn.microBatch, turn.stage}));
            if (turn.part == StepPart::Weight)
              CHECK(seen.contains({StepPart::Backward, turn.microBatch, turn.stage}));
          }
        CHECK(seen.size() ==
              static_cast<size_t>(stages * count * (step.partsWeights ? 3 : 2)));
        // Groups that wait for each other come to an end.
        size_t ran = 0;
        for (const auto &spans : simulate(step, {StepTimes()}).spans)
          ran += spans.size();
        CHECK(ran == seen.size());
      }
}

TEST_CASE("Transfers delay and slow stages bound", "[step]") {
  PipelineStep step = made("1f1b", 2, 2);
  // F0 of stage 0 ends at 1, moves for 0.5, F0 and B0 of stage 1 end at 4.5, …
  StepTimeline line = simulate(step, {{1, 1, 1, 0.5}});
  CHECK(line.seconds == Approx(10));
  CHECK(line.busy[0] == Approx(6));
  // A sender and a receiver are busy: F0 goes from 1 to 1.5, comes until 2, …
  line = simulate(made("1f1b", 2, 1), {{1, 1, 1, 0.5}}, SendRule::Occupies);
  CHECK(line.seconds == Approx(1 + 0.5 + 0.5 + 1 + 2 + 0.5 + 0.5 + 2));
  CHECK(line.busy[0] == Approx(3));
  // The slow stage works without a pause once it has begun.
  line = simulate(made("1f1b", 2, 16), {{1, 1, 1}, {2, 2, 2}});
  CHECK(line.seconds == Approx(1 + 16 * 6 + 2));
}

TEST_CASE("Schedules have names", "[step]") {
  for (const char *known : {"1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-auto:1",
                            "zb-auto:1.5", "zb-v", "v-half", "v-min"})
    CHECK(name(*stepScheduleOf(known)) == known);
  for (const char *unknown : {"", "zb-h3", "zb-auto", "zb-auto:", "zb-auto:0",
                              "zb-auto:-1", "zb-auto:nan", "zb-auto:inf", "zb-auto:1x"})
    CHECK(!stepScheduleOf(unknown));
}

TEST_CASE("Stages that do not go with a schedule are an error", "[step]") {
  auto error = [](const std::string &schedule, std::vector<int64_t> groupOf,
                  int64_t count) {
    auto step = makeStep(*stepScheduleOf(schedule), std::move(groupOf), count);
    return step ? std::string() : step.error().message;
  };
  CHECK(error("zb-v", {0, 1, 1, 0}, 2).empty());
  CHECK(error("zb-v", {0, 1, 0, 1}, 2) ==
        "--schedule zb-v has stage 2 on group 1 of ranks, not on group 0");
  CHECK(error("zb-v", {0, 1, 2, 2, 1, 0, 0}, 2) ==
        "--schedule zb-v has two stages on each group of ranks, the second on the way "
        "back: there are 7 stages on 3 groups");
  CHECK(error("1f1b", {0, 1, 0}, 2) ==
        "--schedule 1f1b has one stage on each group of ranks: there are 3 stages on 2 "
        "groups");
  CHECK(error("interleaved", {0, 1, 0, 1}, 3) ==
        "--schedule interleaved: 4 stages and 3 micro-batches, both of which must be "
        "multiples of the 2 groups");
  CHECK(error("interleaved", {0, 1, 1, 0}, 2) ==
        "--schedule interleaved has stage 2 on group 0 of ranks, not on group 1");
  CHECK(!placedStages(*stepScheduleOf("v-min"), 3, 0));
  CHECK(!placedStages(*stepScheduleOf("v-min"), 4, 4));
}
