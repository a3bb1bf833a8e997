//===- BufferPlanTest.cpp - Places of buffers -----------------------------===//
#include "passes/Codegen/Common/BufferPlan.h"

#include <catch2/catch.hpp>

#include <random>

using namespace partita::codegen;

static void checkPlan(const std::vector<Interval> &intervals, const BufferPlan &plan) {
  REQUIRE(plan.offsets.size() == intervals.size());
  CHECK(plan.total >= lowerBound(intervals, 64));
  for (size_t i = 0; i < intervals.size(); ++i) {
    CHECK(plan.offsets[i] % 64 == 0);
    CHECK(plan.offsets[i] + intervals[i].bytes <= plan.total);
    for (size_t j = 0; j < i; ++j) {
      bool together = intervals[i].first <= intervals[j].last &&
                      intervals[j].first <= intervals[i].last;
      bool apart = plan.offsets[i] + intervals[i].bytes <= plan.offsets[j] ||
                   plan.offsets[j] + intervals[j].bytes <= plan.offsets[i];
      CHECK((!together || apart));
    }
  }
}

TEST_CASE("buffers alive one after the other share their place") {
  std::vector<Interval> intervals{{100, 0, 1}, {100, 2, 3}, {100, 4, 5}};
  BufferPlan plan = planBuffers(intervals, 64);
  CHECK(plan.total == 128);
  CHECK(plan.offsets == std::vector<uint64_t>{0, 0, 0});
}

TEST_CASE("a chain needs two places, a gap is filled") {
  std::vector<Interval> chain{{64, 0, 1}, {64, 1, 2}, {64, 2, 3}, {64, 3, 4}};
  CHECK(planBuffers(chain, 64).total == 128);
  std::vector<Interval> gap{{256, 0, 9}, {192, 0, 4}, {64, 0, 9}, {128, 5, 9}};
  BufferPlan plan = planBuffers(gap, 64);
  checkPlan(gap, plan);
  CHECK(plan.total == lowerBound(gap, 64));
}

TEST_CASE("nothing overlaps in time and place, whatever the lives") {
  std::mt19937 random(7);
  uint64_t planned = 0, bound = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<Interval> intervals(random() % 60);
    for (Interval &interval : intervals) {
      interval.bytes = random() % 4000;
      interval.first = static_cast<int64_t>(random() % 40);
      interval.last = interval.first + static_cast<int64_t>(random() % 8);
    }
    BufferPlan plan = planBuffers(intervals, 64);
    checkPlan(intervals, plan);
    CHECK(planBuffers(intervals, 64).offsets == plan.offsets);
    planned += plan.total;
    bound += lowerBound(intervals, 64);
  }
  CHECK(static_cast<double>(planned) <= 1.15 * static_cast<double>(bound));
}
