//===- Stretches.cpp - The cheapest stretches that fit --------------------===//
#include "partita/Search/Recompute.h"

#include <algorithm>
#include <limits>
#include <tuple>

using namespace partita;
using namespace partita::search;

/// Ways that are open at one unit at most; of more, those near others go.
static constexpr size_t mostOpen = 4096;

namespace {
/// A way up to some unit.
struct Way {
  Picos time = 0;
  int64_t kept = 0;
  int32_t stretch = -1; ///< its last one, of the problem
  int32_t before = -1;  ///< the way up to there, at the unit where it begins
};

/// Sorts by time; keeps those that keep fewer bytes than all faster ones.
void dropWorse(std::vector<Way> &ways) {
  std::ranges::sort(ways, {}, [](const Way &way) {
    return std::tuple(way.time, way.kept, way.stretch, way.before);
  });
  int64_t least = std::numeric_limits<int64_t>::max();
  std::erase_if(ways, [&](const Way &way) {
    bool isWorse = way.kept >= least;
    least = std::min(least, way.kept);
    return isWorse;
  });
}
} // namespace

/// Every second way is dropped, but neither the fastest nor that of fewest bytes.
static bool thin(std::vector<Way> &ways) {
  if (ways.size() <= mostOpen)
    return false;
  std::vector<Way> left;
  for (size_t i = 0; i < ways.size(); ++i)
    if (i % 2 == 0 || i + 1 == ways.size())
      left.push_back(ways[i]);
  ways = std::move(left);
  return true;
}

std::optional<StretchChoice> search::cheapestWay(const StretchProblem &problem,
                                                 int64_t limit) {
  std::vector<std::vector<int32_t>> endingAt(static_cast<size_t>(problem.units) + 1);
  for (size_t s = 0; s < problem.stretches.size(); ++s)
    endingAt[static_cast<size_t>(problem.stretches[s].end)].push_back(
        static_cast<int32_t>(s));
  std::vector<std::vector<Way>> open(static_cast<size_t>(problem.units) + 1);
  open[0].push_back({});
  StretchChoice choice;
  for (int32_t unit = 1; unit <= problem.units; ++unit) {
    std::vector<Way> &here = open[static_cast<size_t>(unit)];
    for (int32_t s : endingAt[static_cast<size_t>(unit)]) {
      const Stretch &stretch = problem.stretches[static_cast<size_t>(s)];
      const auto &from = open[static_cast<size_t>(stretch.begin)];
      for (size_t w = 0; w < from.size(); ++w)
        if (from[w].kept + stretch.peak <= limit)
          here.push_back({from[w].time + stretch.time, from[w].kept + stretch.kept, s,
                          static_cast<int32_t>(w)});
    }
    dropWorse(here);
    choice.proved &= !thin(here);
  }
  if (open.back().empty())
    return std::nullopt;
  choice.time = open.back()[0].time;
  choice.kept = open.back()[0].kept;
  int32_t unit = problem.units, way = 0;
  while (unit > 0) {
    const Way &at = open[static_cast<size_t>(unit)][static_cast<size_t>(way)];
    const Stretch &stretch = problem.stretches[static_cast<size_t>(at.stretch)];
    choice.peak = std::max(choice.peak, at.kept - stretch.kept + stretch.peak);
    choice.stretches.push_back(stretch);
    unit = stretch.begin;
    way = at.before;
  }
  std::ranges::reverse(choice.stretches);
  return choice;
}

/// Without times only the way that keeps least is open at each unit, which is best for
/// every later one.
int64_t search::leastPeak(const StretchProblem &problem) {
  StretchProblem untimed = problem;
  int64_t low = 0, high = 0;
  for (Stretch &stretch : untimed.stretches) {
    stretch.time = 0;
    high += stretch.kept + stretch.peak;
  }
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (auto way = cheapestWay(untimed, middle))
      high = way->peak;
    else
      low = middle + 1;
  }
  return high;
}
