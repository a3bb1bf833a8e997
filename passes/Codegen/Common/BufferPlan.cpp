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

/// What is placed, found by time. Level k has windows of 16·4^k tasks; a buffer is in the
/// (at most two) windows that its life touches on the lowest level whose windows are no
/// shorter. Most lives are a few tasks, so that a search sees only neighbours in time:
/// trying all others takes quadratic time in the layers of a model.
class Timeline {
public:
  void add(const Placed &placed) {
    size_t level = 0;
    while (placed.last - placed.first >= width(level))
      ++level;
    if (level >= levels.size())
      levels.resize(level + 1);
    int64_t first = window(placed.first, level), last = window(placed.last, level);
    for (int64_t w = first; w <= last; ++w)
      levels[level][w].push_back(placed);
  }

  /// Those that live at the same time as `wanted`, by begin; some may come twice.
  std::vector<Placed> neighbours(const Interval &wanted) const {
    std::vector<Placed> found;
    for (size_t level = 0; level < levels.size(); ++level) {
      auto end = levels[level].upper_bound(window(wanted.last, level));
      for (auto it = levels[level].lower_bound(window(wanted.first, level)); it != end;
           ++it)
        for (const Placed &other : it->second)
          if (other.last >= wanted.first && other.first <= wanted.last)
            found.push_back(other);
    }
    std::sort(found.begin(), found.end(),
              [](const Placed &a, const Placed &b) { return a.begin < b.begin; });
    return found;
  }

private:
  static int64_t width(size_t level) { return int64_t(16) << (2 * level); }
  /// Times begin at -1.
  static int64_t window(int64_t time, size_t level) { return (time + 1) / width(level); }

  std::vector<std::map<int64_t, std::vector<Placed>>> levels;
};
} // namespace

/// Where `bytes` fit between the buffers of `others`, which are sorted by begin.
static uint64_t findPlace(const std::vector<Placed> &others, uint64_t bytes) {
  uint64_t end = 0, best = 0, bestGap = UINT64_MAX;
  for (const Placed &other : others) {
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
  Timeline placed;
  for (size_t i : order) {
    uint64_t bytes = aligned(intervals[i].bytes, alignment);
    uint64_t at = findPlace(placed.neighbours(intervals[i]), bytes);
    plan.offsets[i] = at;
    plan.total = std::max(plan.total, at + bytes);
    placed.add({at, at + bytes, intervals[i].first, intervals[i].last});
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
