//===- StageOrderTest.cpp - Orders of stages on groups of ranks -----------===//
#include "partita/Base/Bundle/StageOrder.h"
#include "partita/Base/Bundle/Schedule.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <random>

using namespace partita;
using namespace partita::schedule;

/// Stages of which each reads the one before it, and that before where `skips` says so,
/// one program per group: buffers as assembleStages makes them.
static Pipeline pipelineOf(const StageOrder &order, const std::vector<bool> &skips,
                           int64_t slots) {
  Pipeline p;
  p.microBatches = order.microBatches;
  auto count = static_cast<int64_t>(order.groupOf.size());
  for (int64_t g = 0; g < order.numGroups(); ++g)
    p.programs.push_back({std::to_string(g), 1, {}, {}, {{}}});
  // By group what a stage gives.
  std::map<std::pair<int64_t, int64_t>, int64_t> buffers;
  std::map<int64_t, int64_t> segments;
  auto bufferIn = [&](int64_t group, int64_t stage) {
    Program &program = p.programs[static_cast<size_t>(group)];
    auto [known, added] =
        buffers.try_emplace({group, stage}, static_cast<int64_t>(program.buffers.size()));
    bool isLast = stage == count - 1;
    if (added)
      program.buffers.push_back(
          {std::to_string(stage), isLast ? order.microBatches : slots, false, isLast});
    return known->second;
  };
  for (int64_t s = 0; s < count; ++s) {
    int64_t group = order.groupOf[static_cast<size_t>(s)];
    Segment segment{std::to_string(s), false, false, {}, {}};
    for (int64_t from : {s - 1, s - 2}) {
      if (from < 0 || (from == s - 2 && !skips[static_cast<size_t>(s)]))
        continue;
      bool isThere = buffers.count({group, from}) != 0;
      segment.reads.push_back(bufferIn(group, from));
      int64_t at = order.groupOf[static_cast<size_t>(from)];
      if (!isThere && at != group)
        p.transfers.push_back({std::to_string(from) + " to " + std::to_string(s), at,
                               buffers[{at, from}], group, segment.reads.back()});
    }
    segment.writes = {bufferIn(group, s)};
    Program &program = p.programs[static_cast<size_t>(group)];
    segments[s] = static_cast<int64_t>(program.segments.size());
    program.segments.push_back(std::move(segment));
  }
  for (int64_t g = 0; g < order.numGroups(); ++g)
    for (StageTurn turn : turnsOf(order, g))
      p.programs[static_cast<size_t>(g)].schedules[0].entries.push_back(
          {segments[turn.stage], turn.microBatch, {}, {}});
  return p;
}

TEST_CASE("every order of stages comes to an end with its slots") {
  std::mt19937 random(7);
  auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  int withFewer = 0;
  for (int k = 0; k < 1000; ++k) {
    StageOrder order;
    int64_t groups = 1 + below(4), stages = groups + below(5);
    for (int64_t s = 0; s < stages; ++s)
      order.groupOf.push_back(s < groups ? s : below(groups));
    std::shuffle(order.groupOf.begin(), order.groupOf.end(), random);
    order.microBatches = 1 + below(9);
    order.round = 1 + below(order.microBatches);
    std::vector<bool> skips;
    for (int64_t s = 0; s < stages; ++s)
      skips.push_back(below(2) != 0);
    Pipeline p = pipelineOf(order, skips, order.slots());
    complete(p);
    auto ok = check(p);
    INFO((ok ? "" : ok.error().message) << " in run " << k);
    REQUIRE(ok.has_value());
    if (order.slots() == 1)
      continue;
    Pipeline fewer = pipelineOf(order, skips, order.slots() - 1);
    complete(fewer);
    withFewer += !check(fewer);
  }
  CHECK(withFewer > 100); // so many slots are needed
}

TEST_CASE("the interleaved order") {
  StageOrder order{{0, 1, 0, 1}, 4, 2};
  std::vector<std::pair<int64_t, int64_t>> turns;
  for (StageTurn turn : turnsOf(order, 1))
    turns.emplace_back(turn.stage, turn.microBatch);
  CHECK(turns ==
        decltype(turns){{1, 0}, {1, 1}, {3, 0}, {3, 1}, {1, 2}, {1, 3}, {3, 2}, {3, 3}});
  CHECK(beginsOf(order) == std::vector<std::vector<int64_t>>{
                               {0, 1, 4, 5}, {1, 2, 5, 6}, {2, 3, 6, 7}, {3, 4, 7, 8}});
  // GPipe's has group 0 wait for nothing either, and everything one behind the other.
  order.round = 4;
  CHECK(beginsOf(order)[2] == std::vector<int64_t>{4, 5, 6, 7});
}
