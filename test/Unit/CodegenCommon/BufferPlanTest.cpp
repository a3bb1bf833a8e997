//===- BufferPlanTest.cpp - Places of buffers -----------------------------===//
#include "passes/Codegen/Common/BufferPlan.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>
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

/// By the contract's words: each buffer is compared with every one before it.
static std::vector<uint64_t> placedOneByOne(const std::vector<Interval> &intervals) {
  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](size_t i) { return intervals[i].bytes; });
  auto aligned = [&](size_t i) { return (intervals[i].bytes + 63) / 64 * 64; };
  std::vector<uint64_t> offsets(intervals.size());
  std::vector<size_t> placed;
  for (size_t i : order) {
    std::vector<std::pair<uint64_t, uint64_t>> taken;
    for (size_t j : placed)
      if (intervals[i].first <= intervals[j].last &&
          intervals[j].first <= intervals[i].last)
        taken.emplace_back(offsets[j], offsets[j] + aligned(j));
    std::ranges::sort(taken);
    uint64_t end = 0, gap = UINT64_MAX;
    for (auto [first, last] : taken) {
      if (first > end && first - end >= aligned(i) && first - end < gap)
        gap = first - end, offsets[i] = end;
      end = std::max(end, last);
    }
    if (gap == UINT64_MAX)
      offsets[i] = end;
    if (aligned(i) != 0)
      placed.push_back(i);
  }
  return offsets;
}

TEST_CASE("places are those of a search among all that live at the same time") {
  std::mt19937 random(11);
  for (int round = 0; round < 100; ++round) {
    // As in a training step: what the forward pass leaves lives until its gradient, and
    // between them are values of a few tasks.
    auto layers = static_cast<int64_t>(random() % 30);
    int64_t end = 20 * layers;
    std::vector<Interval> intervals;
    for (int64_t i = 0; i < layers; ++i)
      for (uint64_t bytes : {4096 - 64 * (random() % 2), 640 * (random() % 3)})
        intervals.push_back({bytes, 10 * i, end - 10 * i});
    for (int64_t i = 0; i < 4 * layers; ++i) {
      auto first = static_cast<int64_t>(random() % static_cast<uint64_t>(end)) - 1;
      auto life = static_cast<int64_t>(random() % (random() % 8 == 0 ? 300 : 5));
      intervals.push_back({random() % 5000, first, std::min(first + life, end)});
    }
    CHECK(planBuffers(intervals, 64).offsets == placedOneByOne(intervals));
  }
}
