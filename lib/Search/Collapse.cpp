//===- Collapse.cpp - Tied variables as one -------------------------------===//
#include "Collapse.h"

#include <algorithm>
#include <map>
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

Collapsed::Collapsed(const Problem &original) {
  std::vector<uint32_t> first = representatives(original);
  variable.resize(first.size());
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
  std::vector<int64_t> times;
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
}

namespace {
/// How often each table of bytes is in use over some time steps, for one collapsed
/// variable or edge. `diagonal`: choices of an edge whose ends are one variable.
struct Counted {
  CostTable bytes;
  size_t diagonal;
  int64_t times = 0;
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

Problem Collapsed::withMemory(const Problem &original,
                              const std::vector<int64_t> &moments) const {
  Problem result = problem;
  result.memoryLimit = original.memoryLimit;
  std::vector<Counts> ofVariables(problem.variables.size()),
      ofEdges(problem.edges.size());
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
      count(ofVariables[variable[v]], usage);
  for (size_t e = 0; e < original.edges.size(); ++e)
    for (const Usage &usage : original.edges[e].usages) {
      uint32_t first = original.edges[e].first;
      if (places[e] >= 0)
        count(ofEdges[static_cast<size_t>(places[e])], usage);
      else
        count(ofVariables[variable[first]], usage,
              original.variables[first].costs.size());
    }
  for (size_t v = 0; v < ofVariables.size(); ++v)
    writeUsages(ofVariables[v], result.variables[v].costs.size(),
                result.variables[v].usages);
  for (size_t e = 0; e < ofEdges.size(); ++e)
    writeUsages(ofEdges[e], result.edges[e].costs.size(), result.edges[e].usages);
  return result;
}

std::vector<uint32_t> Collapsed::expand(const std::vector<uint32_t> &choices) const {
  std::vector<uint32_t> all(variable.size());
  for (size_t v = 0; v < all.size(); ++v)
    all[v] = choices[variable[v]];
  return all;
}
