//===- BufferPlan.cpp - Places of buffers in one arena --------------------===//
#include "passes/Codegen/Common/BufferPlan.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace partita::codegen;

static uint64_t aligned(uint64_t bytes, uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

namespace {
struct Placed {
  uint64_t begin, end;
  int64_t first, last;
};
} // namespace

/// Where `bytes` fit between the buffers of `others`, which are sorted by begin.
static uint64_t findPlace(const std::vector<Placed> &others, const Interval &wanted,
                          uint64_t bytes) {
  uint64_t end = 0, best = 0, bestGap = UINT64_MAX;
  for (const Placed &other : others) {
    if (other.last < wanted.first || other.first > wanted.last)
      continue;
    if (other.begin > end && other.begin - end >= bytes && other.begin - end < bestGap) {
      bestGap = other.begin - end;
      best = end;
    }
    end = std::max(end, other.end);
  }
  return bestGap == UINT64_MAX ? end : best;
}

BufferPlan partita::codegen::planBuffers(const std::vector<Interval> &intervals,
                                         uint64_t alignment) {
  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return intervals[a].bytes > intervals[b].bytes;
  });
  BufferPlan plan;
  plan.offsets.resize(intervals.size());
  std::vector<Placed> placed;
  for (size_t i : order) {
    uint64_t bytes = aligned(intervals[i].bytes, alignment);
    uint64_t at = findPlace(placed, intervals[i], bytes);
    plan.offsets[i] = at;
    plan.total = std::max(plan.total, at + bytes);
    Placed entry{at, at + bytes, intervals[i].first, intervals[i].last};
    placed.insert(std::upper_bound(
                      placed.begin(), placed.end(), entry,
                      [](const Placed &a, const Placed &b) { return a.begin < b.begin; }),
                  entry);
  }
  return plan;
}

uint64_t partita::codegen::lowerBound(const std::vector<Interval> &intervals,
                                      uint64_t alignment) {
  std::map<int64_t, int64_t> change;
  for (const Interval &interval : intervals) {
    auto bytes = static_cast<int64_t>(aligned(interval.bytes, alignment));
    change[interval.first] += bytes;
    change[interval.last + 1] -= bytes;
  }
  int64_t now = 0, most = 0;
  for (auto [time, bytes] : change)
    most = std::max(most, now += bytes);
  return static_cast<uint64_t>(most);
}
