//===- BufferPlan.cpp - Places of buffers in one arena --------------------===//
#include "passes/Codegen/Common/BufferPlan.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

using namespace partita::codegen;

static uint64_t aligned(uint64_t bytes, uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

namespace {
struct Range {
  uint64_t begin, end;
};

/// Bytes of the arena that are taken: ranges by begin, apart from each other. Values that
/// lie side by side are one range, however many they are.
class Taken {
public:
  void add(Range range) {
    auto first =
        std::ranges::lower_bound(list, range.begin, {}, [](Range r) { return r.end; });
    auto last = first;
    for (; last != list.end() && last->begin <= range.end; ++last) {
      range.begin = std::min(range.begin, last->begin);
      range.end = std::max(range.end, last->end);
    }
    if (first == last)
      list.insert(first, range);
    else
      *first = range, list.erase(first + 1, last);
  }
  void appendTo(std::vector<Range> &ranges) const {
    ranges.insert(ranges.end(), list.begin(), list.end());
  }

private:
  std::vector<Range> list;
};

/// What is placed, by time: a tree over the moments. In a training step every value of
/// the forward pass that a gradient reads is alive at the turn, so that values have as
/// many neighbours in time as there are layers; but what they take together is few
/// ranges. A search looks at those of some nodes per level of the tree.
class Timeline {
public:
  /// Moments are -1 to `last`.
  explicit Timeline(int64_t last) : moments(std::bit_ceil(uint64_t(last + 2))) {
    nodes.resize(2 * moments);
  }

  void add(const Interval &life, Range range) { add(1, whole(), momentsOf(life), range); }

  /// What others take while `wanted` lives, by begin; ranges may overlap.
  std::vector<Range> takenIn(const Interval &wanted) const {
    std::vector<Range> ranges;
    collect(1, whole(), momentsOf(wanted), ranges);
    std::ranges::sort(ranges, {}, &Range::begin);
    return ranges;
  }

private:
  struct Node {
    Taken
        throughout; ///< by what lives in all its moments, and not in all of its parent's
    Taken sometime; ///< by what lives in some of them
  };
  /// Moments from `begin` to before `end`, counted from 0.
  struct Moments {
    uint64_t begin, end;

    bool contains(Moments other) const {
      return begin <= other.begin && other.end <= end;
    }
    bool meets(Moments other) const { return begin < other.end && other.begin < end; }
    Moments firstHalf() const { return {begin, (begin + end) / 2}; }
    Moments secondHalf() const { return {(begin + end) / 2, end}; }
  };

  static Moments momentsOf(const Interval &life) {
    return {static_cast<uint64_t>(life.first + 1), static_cast<uint64_t>(life.last + 2)};
  }
  Moments whole() const { return {0, moments}; }

  void add(size_t node, Moments own, Moments life, Range range) {
    if (!life.meets(own))
      return;
    nodes[node].sometime.add(range);
    if (life.contains(own))
      return nodes[node].throughout.add(range);
    add(2 * node, own.firstHalf(), life, range);
    add(2 * node + 1, own.secondHalf(), life, range);
  }

  void collect(size_t node, Moments own, Moments life, std::vector<Range> &ranges) const {
    if (!life.meets(own))
      return;
    if (life.contains(own))
      return nodes[node].sometime.appendTo(ranges);
    nodes[node].throughout.appendTo(ranges);
    collect(2 * node, own.firstHalf(), life, ranges);
    collect(2 * node + 1, own.secondHalf(), life, ranges);
  }

  uint64_t moments;
  std::vector<Node> nodes; ///< the root is 1, the halves of k are 2k and 2k + 1
};
} // namespace

/// Where `bytes` fit between `others`, which are sorted by begin.
static uint64_t findPlace(const std::vector<Range> &others, uint64_t bytes) {
  uint64_t end = 0, best = 0, bestGap = UINT64_MAX;
  for (Range other : others) {
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
  int64_t last = 0;
  for (const Interval &interval : intervals)
    last = std::max(last, interval.last);
  Timeline placed(last);
  for (size_t i : order) {
    uint64_t bytes = aligned(intervals[i].bytes, alignment);
    uint64_t at = findPlace(placed.takenIn(intervals[i]), bytes);
    plan.offsets[i] = at;
    plan.total = std::max(plan.total, at + bytes);
    if (bytes != 0)
      placed.add(intervals[i], {at, at + bytes});
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
