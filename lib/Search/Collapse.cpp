//===- Collapse.cpp - Tied variables as one -------------------------------===//
#include "Collapse.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

using namespace partita;
using namespace partita::search;
using namespace partita::solver;

static int64_t sumOfCosts(int64_t a, int64_t b) {
  return a >= forbidden || b >= forbidden ? forbidden : std::min(a + b, forbidden - 1);
}

/// Of each variable the first, by number, of those at its position of a class.
static std::vector<uint32_t> representatives(const Problem &problem) {
  std::vector<uint32_t> first(problem.variables.size());
  for (size_t v = 0; v < first.size(); ++v)
    first[v] = static_cast<uint32_t>(v);
  for (const Class &tied : problem.classes)
    for (size_t i = 0; i < tied.copies[0].size(); ++i) {
      uint32_t least = tied.copies[0][i];
      for (const std::vector<uint32_t> &copy : tied.copies)
        least = std::min(least, copy[i]);
      for (const std::vector<uint32_t> &copy : tied.copies)
        first[copy[i]] = least;
    }
  return first;
}

namespace {
/// How often each table of bytes is in use over some time steps, for one collapsed
/// variable or edge. `diagonal`: choices of an edge whose ends are one variable.
struct Counted {
  CostTable bytes;
  size_t diagonal;
  int64_t times = 0;
};
/// Where the variables and edges of a problem are in another one. An edge that is at -1
/// has two ends that are one variable there, which has its costs and its usages.
struct Places {
  const std::vector<uint32_t> &variables;
  const std::vector<int64_t> &edges;
};
using Steps = std::pair<int64_t, int64_t>;
using Counts = std::map<Steps, std::map<const void *, Counted>>;
} // namespace

/// Adds up what was counted.
static void writeUsages(const Counts &counts, size_t choices,
                        std::vector<Usage> &usages) {
  for (const auto &[steps, tables] : counts) {
    if (tables.size() == 1 && tables.begin()->second.times == 1 &&
        tables.begin()->second.diagonal == 0) {
      usages.push_back({steps.first, steps.second, tables.begin()->second.bytes});
      continue;
    }
    std::vector<int64_t> sum(choices, 0);
    for (const auto &[id, it] : tables)
      for (size_t i = 0; i < choices; ++i) {
        int64_t bytes = it.bytes[it.diagonal ? i * it.diagonal + i : i];
        sum[i] =
            std::min(maxBytes, sum[i] + std::min(bytes, maxBytes / it.times) * it.times);
      }
    usages.push_back({steps.first, steps.second, std::move(sum)});
  }
}

/// Gives `result` the memory that `original` has in use at some moments (ascending), one
/// time step each.
static void writeMemory(const Problem &original, const Places &places,
                        const std::vector<int64_t> &moments, Problem &result) {
  result.memoryLimit = original.memoryLimit;
  std::vector<Counts> ofVariables(result.variables.size()), ofEdges(result.edges.size());
  auto stepOf = [&](int64_t moment) {
    return std::lower_bound(moments.begin(), moments.end(), moment) - moments.begin();
  };
  auto count = [&](Counts &counts, const Usage &usage, size_t diagonal = 0) {
    Steps steps{stepOf(usage.begin), stepOf(usage.end)};
    if (steps.first == steps.second)
      return;
    Counted &counted = counts[steps][usage.bytes.id()];
    counted.bytes = usage.bytes;
    counted.diagonal = diagonal;
    ++counted.times;
  };
  for (size_t v = 0; v < original.variables.size(); ++v)
    for (const Usage &usage : original.variables[v].usages)
      count(ofVariables[places.variables[v]], usage);
  for (size_t e = 0; e < original.edges.size(); ++e)
    for (const Usage &usage : original.edges[e].usages) {
      uint32_t first = original.edges[e].first;
      if (places.edges[e] >= 0)
        count(ofEdges[static_cast<size_t>(places.edges[e])], usage);
      else
        count(ofVariables[places.variables[first]], usage,
              original.variables[first].costs.size());
    }
  for (size_t v = 0; v < ofVariables.size(); ++v) {
    result.variables[v].usages.clear();
    writeUsages(ofVariables[v], result.variables[v].costs.size(),
                result.variables[v].usages);
  }
  for (size_t e = 0; e < ofEdges.size(); ++e) {
    result.edges[e].usages.clear();
    writeUsages(ofEdges[e], result.edges[e].costs.size(), result.edges[e].usages);
  }
}

namespace {
/// What is in use at a moment, as a sum of numbers drawn for each table of each place:
/// sums are equal where the same is in use, and sums of sums where that adds up. Others
/// are equal once in 2^128.
struct Sum {
  uint64_t low = 0, high = 0;
  Sum operator+(const Sum &other) const { return {low + other.low, high + other.high}; }
  Sum operator-(const Sum &other) const { return {low - other.low, high - other.high}; }
  auto operator<=>(const Sum &) const = default;
};

/// Finds the moments at which a peak may be.
class Moments {
public:
  Moments(const Problem &original, const Places &places) {
    for (size_t v = 0; v < original.variables.size(); ++v)
      for (const Usage &usage : original.variables[v].usages)
        add({places.variables[v], 0, usage.bytes.id()}, usage);
    for (size_t e = 0; e < original.edges.size(); ++e)
      for (const Usage &usage : original.edges[e].usages)
        add(places.edges[e] >= 0
                ? Key{places.edges[e], 1, usage.bytes.id()}
                : Key{places.variables[original.edges[e].first], 2, usage.bytes.id()},
            usage);
  }

  std::vector<int64_t> run() {
    sweep();
    std::vector<char> isBetween = findBetween();
    std::set<Sum> known;
    std::vector<int64_t> result;
    for (size_t i = 0; i < found.size(); ++i)
      if (!isBetween[i] && known.insert(found[i].inUse).second)
        result.push_back(found[i].moment);
    return result;
  }

private:
  using Key = std::tuple<int64_t, int, const void *>;
  struct Event {
    int64_t moment;
    bool begins;
    Sum sum;
  };
  struct Found {
    int64_t moment;
    Sum inUse;
  };

  void add(const Key &key, const Usage &usage) {
    if (usage.begin >= usage.end)
      return;
    auto [place, added] = drawn.try_emplace(key);
    if (added)
      place->second = {random(), random()};
    events.push_back({usage.begin, true, place->second});
    events.push_back({usage.end, false, place->second});
  }

  /// What is in use at every moment at which something begins: peaks are nowhere else.
  void sweep() {
    std::sort(events.begin(), events.end(),
              [](const Event &a, const Event &b) { return a.moment < b.moment; });
    Sum now;
    for (size_t i = 0; i < events.size();) {
      int64_t moment = events[i].moment;
      bool any = false;
      for (; i < events.size() && events[i].moment == moment; ++i) {
        any |= events[i].begins;
        now = events[i].begins ? now + events[i].sum : now - events[i].sum;
      }
      if (any)
        found.push_back({moment, now});
    }
  }

  /// Equal moments of equal layers change the same. Where each of them has as much more
  /// in use than the one before, whatever the answer, none but the first and the last can
  /// be the only peak.
  std::vector<char> findBetween() const {
    std::map<Sum, std::vector<size_t>> byChange;
    for (size_t i = 1; i < found.size(); ++i)
      byChange[found[i].inUse - found[i - 1].inUse].push_back(i);
    std::vector<char> isBetween(found.size());
    for (const auto &[change, alike] : byChange)
      for (size_t i = 1; i + 1 < alike.size(); ++i) {
        const Sum &before = found[alike[i - 1]].inUse, &at = found[alike[i]].inUse,
                  &behind = found[alike[i + 1]].inUse;
        isBetween[alike[i]] = behind - at == at - before;
      }
    return isBetween;
  }

  std::map<Key, Sum> drawn;
  std::mt19937_64 random{1};
  std::vector<Event> events;
  std::vector<Found> found;
};
} // namespace

Collapsed::Collapsed(const Problem &original) {
  variable.resize(original.variables.size());
  std::vector<uint32_t> first = representatives(original);
  for (size_t v = 0; v < first.size(); ++v) {
    const std::vector<int64_t> &costs = original.variables[v].costs;
    if (first[v] == v) {
      variable[v] = static_cast<uint32_t>(problem.variables.size());
      problem.variables.push_back({costs, {}});
      continue;
    }
    variable[v] = variable[first[v]];
    std::vector<int64_t> &sum = problem.variables[variable[v]].costs;
    for (size_t c = 0; c < costs.size(); ++c)
      sum[c] = sumOfCosts(sum[c], costs[c]);
  }
  // Equal tables between equal ends become one, as many times as dear.
  std::map<std::tuple<uint32_t, uint32_t, const void *>, int64_t> known;
  std::vector<int64_t> times, places;
  places.reserve(original.edges.size());
  for (const Edge &edge : original.edges) {
    uint32_t a = variable[edge.first], b = variable[edge.second];
    if (a == b) {
      places.push_back(-1);
      std::vector<int64_t> &sum = problem.variables[a].costs;
      for (size_t c = 0; c < sum.size(); ++c)
        sum[c] = sumOfCosts(sum[c], edge.costs[c * sum.size() + c]);
      continue;
    }
    auto [place, added] = known.try_emplace({a, b, edge.costs.id()},
                                            static_cast<int64_t>(problem.edges.size()));
    if (added) {
      problem.edges.push_back({a, b, edge.costs, {}});
      times.push_back(0);
    }
    ++times[static_cast<size_t>(place->second)];
    places.push_back(place->second);
  }
  // Tables that repeat are still shared.
  std::map<std::pair<const void *, int64_t>, CostTable> multiples;
  for (size_t e = 0; e < problem.edges.size(); ++e) {
    if (times[e] == 1)
      continue;
    CostTable &table = problem.edges[e].costs;
    CostTable &multiple = multiples[{table.id(), times[e]}];
    if (multiple.empty()) {
      std::vector<int64_t> costs(table.begin(), table.end());
      for (int64_t &cost : costs)
        if (cost < forbidden)
          cost = std::min(cost, (forbidden - 1) / times[e]) * times[e];
      multiple = CostTable(std::move(costs));
    }
    table = multiple;
  }
  Places all{variable, places};
  std::vector<int64_t> moments = Moments(original, all).run();
  numSteps = static_cast<int64_t>(moments.size());
  writeMemory(original, all, moments, problem);
}

Problem Collapsed::withMemory(const std::vector<int64_t> &steps) const {
  std::vector<uint32_t> variables(problem.variables.size());
  std::vector<int64_t> edges(problem.edges.size());
  std::iota(variables.begin(), variables.end(), 0);
  std::iota(edges.begin(), edges.end(), 0);
  Problem result = problem;
  writeMemory(problem, {variables, edges}, steps, result);
  if (steps.empty())
    result.memoryLimit.reset();
  return result;
}

std::vector<uint32_t> Collapsed::expand(const std::vector<uint32_t> &choices) const {
  std::vector<uint32_t> all(variable.size());
  for (size_t v = 0; v < all.size(); ++v)
    all[v] = choices[variable[v]];
  return all;
}
