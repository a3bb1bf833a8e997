//===- Stretches.cpp - The cheapest stretches that fit --------------------===//
#include "partita/Search/Recompute.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>

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

/// Ways up to one unit, of which each keeps fewer bytes than all faster ones, by time.
using Front = std::vector<Way>;

/// What the rest of a way takes at least. At a price λ per kept byte the cheapest rest is
/// a shortest path without a limit. A way that fits keeps at most `mostKept` bytes in
/// all, so that
///
///     time of the rest ≥ min (time + λ · kept of the rest) − λ · (mostKept − kept so
///     far)
///
/// Handler and Zang, "A dual algorithm for the constrained shortest path problem", 1980.
class RestBound {
public:
  RestBound(const StretchProblem &problem, int64_t limit)
      : problem(problem), limit(limit), startingAt(size_t(problem.units)) {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (size_t s = 0; s < problem.stretches.size(); ++s) {
      const Stretch &it = problem.stretches[s];
      startingAt[static_cast<size_t>(it.begin)].push_back(s);
      if (it.end == problem.units)
        least = std::min(least, it.peak - it.kept);
    }
    mostKept = limit - least;
    price(0);
    // The first price at which the cheapest way keeps few enough bytes is the best one.
    double low = 0, high = 0;
    for (int tries = 0; tries < mostTries && prices.back().kept > mostKept; ++tries) {
      low = prices.back().lambda;
      high = low == 0 ? 1 : low * 16;
      price(high);
    }
    for (int tries = 0; tries < mostTries && high > 0; ++tries) {
      price((low + high) / 2);
      (prices.back().kept > mostKept ? low : high) = prices.back().lambda;
    }
    std::ranges::sort(prices, std::greater(),
                      [&](const Price &it) { return of(it, 0, 0); });
    prices.resize(std::min(prices.size(), mostPrices));
  }

  /// The fastest of the ways that were the cheapest at some price and fit: its stretches,
  /// none if there is none.
  const std::vector<Stretch> &known() const { return fastestWay; }
  bool isFaster(Picos time) const { return fastest < time; }
  /// Whether a way that goes on from here takes longer than `upper`.
  bool isTooLong(int32_t unit, Picos time, int64_t kept) const {
    if (fastest == std::numeric_limits<Picos>::max())
      return false;
    const double most = static_cast<double>(fastest) + 1;
    return std::ranges::any_of(prices, [&](const Price &it) {
      // Differences of large numbers have lost so much.
      double lost = 1e-12 * (it.rest[0] + it.lambda * static_cast<double>(limit));
      return static_cast<double>(time) + of(it, unit, kept) > most + lost;
    });
  }

private:
  struct Price {
    double lambda;
    std::vector<double> rest; ///< by unit
    int64_t kept;             ///< of the cheapest way
  };
  static constexpr int mostTries = 40;
  static constexpr size_t mostPrices = 3;

  double of(const Price &it, int32_t unit, int64_t kept) const {
    return it.rest[static_cast<size_t>(unit)] -
           it.lambda * static_cast<double>(mostKept - kept);
  }

  void price(double lambda) {
    const auto units = static_cast<size_t>(problem.units);
    Price now{lambda, std::vector<double>(units + 1, 0), 0};
    std::vector<size_t> next(units);
    for (size_t unit = units; unit-- > 0;) {
      double best = std::numeric_limits<double>::infinity();
      for (size_t s : startingAt[unit]) {
        const Stretch &it = problem.stretches[s];
        double sum = static_cast<double>(it.time) +
                     lambda * static_cast<double>(it.kept) +
                     now.rest[static_cast<size_t>(it.end)];
        if (it.peak <= limit && sum < best) {
          best = sum;
          next[unit] = s;
        }
      }
      now.rest[unit] = best;
    }
    if (now.rest[0] < std::numeric_limits<double>::infinity())
      walk(next, now);
    prices.push_back(std::move(now));
  }

  /// Along the cheapest way.
  void walk(const std::vector<size_t> &next, Price &now) {
    Picos time = 0;
    bool fits = true;
    std::vector<Stretch> way;
    for (size_t unit = 0; unit < next.size();) {
      way.push_back(problem.stretches[next[unit]]);
      fits &= now.kept + way.back().peak <= limit;
      now.kept += way.back().kept;
      time += way.back().time;
      unit = static_cast<size_t>(way.back().end);
    }
    if (!fits || time >= fastest)
      return;
    fastest = time;
    fastestWay = std::move(way);
  }

  const StretchProblem &problem;
  int64_t limit, mostKept = 0;
  std::vector<std::vector<size_t>> startingAt; ///< by unit
  std::vector<Price> prices;
  Picos fastest = std::numeric_limits<Picos>::max();
  std::vector<Stretch> fastestWay;
};
} // namespace

/// Both together, without the ways that others are no worse than.
static Front merged(const Front &a, const Front &b) {
  Front all;
  all.reserve(a.size() + b.size());
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    bool isFirst = j == b.size() ||
                   (i < a.size() &&
                    std::tuple(a[i].time, a[i].kept) <= std::tuple(b[j].time, b[j].kept));
    const Way &way = isFirst ? a[i++] : b[j++];
    if (way.kept < least)
      all.push_back(way);
    least = std::min(least, way.kept);
  }
  return all;
}

static Front merged(std::vector<Front> fronts) {
  if (fronts.empty())
    return {};
  for (size_t step = 1; step < fronts.size(); step *= 2)
    for (size_t i = 0; i + step < fronts.size(); i += 2 * step)
      fronts[i] = merged(fronts[i], std::exchange(fronts[i + step], {}));
  return std::move(fronts[0]);
}

/// Every second way is dropped, but neither the fastest nor that of fewest bytes.
static bool thin(Front &ways) {
  if (ways.size() <= mostOpen)
    return false;
  Front left;
  for (size_t i = 0; i < ways.size(); ++i)
    if (i % 2 == 0 || i + 1 == ways.size())
      left.push_back(ways[i]);
  ways = std::move(left);
  return true;
}

/// Of the first way that is open at the end.
static std::vector<Stretch> stretchesOf(const StretchProblem &problem,
                                        const std::vector<Front> &open) {
  std::vector<Stretch> result;
  for (int32_t unit = problem.units, way = 0; unit > 0;) {
    const Way &at = open[static_cast<size_t>(unit)][static_cast<size_t>(way)];
    result.push_back(problem.stretches[static_cast<size_t>(at.stretch)]);
    unit = result.back().begin;
    way = at.before;
  }
  std::ranges::reverse(result);
  return result;
}

std::optional<StretchChoice> search::cheapestWay(const StretchProblem &problem,
                                                 int64_t limit) {
  std::vector<std::vector<int32_t>> endingAt(static_cast<size_t>(problem.units) + 1);
  for (size_t s = 0; s < problem.stretches.size(); ++s)
    endingAt[static_cast<size_t>(problem.stretches[s].end)].push_back(
        static_cast<int32_t>(s));
  const RestBound bound(problem, limit);
  std::vector<Front> open(static_cast<size_t>(problem.units) + 1);
  open[0].push_back({});
  StretchChoice choice;
  for (int32_t unit = 1; unit <= problem.units; ++unit) {
    std::vector<Front> fronts;
    for (int32_t s : endingAt[static_cast<size_t>(unit)]) {
      const Stretch &stretch = problem.stretches[static_cast<size_t>(s)];
      const Front &from = open[static_cast<size_t>(stretch.begin)];
      // Ways of more time keep less.
      auto first = std::ranges::partition_point(
          from, [&](const Way &way) { return way.kept + stretch.peak > limit; });
      Front made;
      for (; first != from.end(); ++first) {
        Way way{first->time + stretch.time, first->kept + stretch.kept, s,
                static_cast<int32_t>(first - from.begin())};
        if (!bound.isTooLong(unit, way.time, way.kept))
          made.push_back(way);
      }
      if (!made.empty())
        fronts.push_back(std::move(made));
    }
    Front &here = open[static_cast<size_t>(unit)] = merged(std::move(fronts));
    choice.proved &= !thin(here);
  }
  // Where too many were open, the one that is known may have gone.
  if (open.back().empty() || (!choice.proved && bound.isFaster(open.back()[0].time)))
    choice.stretches = bound.known();
  else
    choice.stretches = stretchesOf(problem, open);
  if (choice.stretches.empty() && problem.units > 0)
    return std::nullopt;
  for (const Stretch &stretch : choice.stretches) {
    choice.peak = std::max(choice.peak, choice.kept + stretch.peak);
    choice.kept += stretch.kept;
    choice.time += stretch.time;
  }
  return choice;
}

/// Whether there is a way whose peak is at most `limit`. The one that keeps least up to
/// each unit is best for every later one.
static bool anyFits(const StretchProblem &problem,
                    const std::vector<std::vector<Stretch>> &endingAt, int64_t limit) {
  constexpr int64_t none = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> kept(static_cast<size_t>(problem.units) + 1, none);
  kept[0] = 0;
  for (size_t unit = 1; unit < kept.size(); ++unit)
    for (const Stretch &stretch : endingAt[unit]) {
      int64_t before = kept[static_cast<size_t>(stretch.begin)];
      if (before != none && before + stretch.peak <= limit)
        kept[unit] = std::min(kept[unit], before + stretch.kept);
    }
  return kept.back() != none;
}

int64_t search::leastPeak(const StretchProblem &problem) {
  std::vector<std::vector<Stretch>> endingAt(static_cast<size_t>(problem.units) + 1);
  int64_t low = 0, high = 0;
  for (const Stretch &stretch : problem.stretches) {
    endingAt[static_cast<size_t>(stretch.end)].push_back(stretch);
    high += stretch.kept + stretch.peak;
  }
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (anyFits(problem, endingAt, middle))
      high = middle;
    else
      low = middle + 1;
  }
  return high;
}
