//===- Collapse.cpp - Tied variables as one -------------------------------===//
#include "Collapse.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace partita;
using namespace partita::search;
using namespace partita::solver;

int64_t search::sumOfCosts(int64_t a, int64_t b) {
  return a >= forbidden || b >= forbidden ? forbidden : std::min(a + b, forbidden - 1);
}

/// The first copy's variable of each position of a class.
static std::vector<uint32_t> representatives(const Problem &problem) {
  std::vector<uint32_t> first(problem.variables.size());
  for (size_t v = 0; v < first.size(); ++v)
    first[v] = static_cast<uint32_t>(v);
  for (const Class &tied : problem.classes)
    for (const std::vector<uint32_t> &copy : tied.copies)
      for (size_t i = 0; i < copy.size(); ++i)
        first[copy[i]] = tied.copies[0][i];
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
    // A copy's variable is never before that of the first copy.
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
/// Usages of one collapsed variable or edge by their moments.
using Sums = std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>>;
} // namespace

static void addUsage(Sums &sums, const Usage &usage, size_t diagonal = 0) {
  std::vector<int64_t> &sum = sums[{usage.begin, usage.end}];
  size_t size = diagonal ? diagonal : usage.bytes.size();
  sum.resize(size, 0);
  for (size_t i = 0; i < size; ++i)
    sum[i] = std::min(maxBytes, sum[i] + usage.bytes[diagonal ? i * diagonal + i : i]);
}

/// Per variable whether its moments are kept: that of the first two copies of a class, of
/// the last, and of what is in none.
static std::vector<bool> keptCopies(const Problem &problem) {
  std::vector<bool> kept(problem.variables.size(), true);
  for (const Class &tied : problem.classes)
    for (size_t c = 2; c + 1 < tied.copies.size(); ++c)
      for (uint32_t v : tied.copies[c])
        kept[v] = false;
  return kept;
}

Problem Collapsed::withMemory(const Problem &original) const {
  Problem result = problem;
  result.memoryLimit = original.memoryLimit;
  std::vector<bool> kept = keptCopies(original);
  int64_t end = 0;
  for (const Variable &it : original.variables)
    for (const Usage &usage : it.usages)
      end = std::max(end, usage.end);
  std::vector<Sums> ofVariables(problem.variables.size()), ofEdges(problem.edges.size());
  auto counts = [&](const Usage &usage, uint32_t v) {
    return kept[v] || (usage.begin == 0 && usage.end == end);
  };
  for (size_t v = 0; v < original.variables.size(); ++v)
    for (const Usage &usage : original.variables[v].usages)
      if (counts(usage, static_cast<uint32_t>(v)))
        addUsage(ofVariables[variable[v]], usage);
  for (size_t e = 0; e < original.edges.size(); ++e) {
    const Edge &edge = original.edges[e];
    for (const Usage &usage : edge.usages) {
      if (!counts(usage, edge.first))
        continue;
      if (places[e] >= 0)
        addUsage(ofEdges[static_cast<size_t>(places[e])], usage);
      else
        addUsage(ofVariables[variable[edge.first]], usage,
                 original.variables[edge.first].costs.size());
    }
  }
  auto write = [](const Sums &sums, std::vector<Usage> &usages) {
    for (const auto &[moments, bytes] : sums)
      usages.push_back({moments.first, moments.second, bytes});
  };
  for (size_t v = 0; v < ofVariables.size(); ++v)
    write(ofVariables[v], result.variables[v].usages);
  for (size_t e = 0; e < ofEdges.size(); ++e)
    write(ofEdges[e], result.edges[e].usages);
  return result;
}

std::vector<uint32_t> Collapsed::expand(const std::vector<uint32_t> &choices) const {
  std::vector<uint32_t> all(variable.size());
  for (size_t v = 0; v < all.size(); ++v)
    all[v] = choices[variable[v]];
  return all;
}

void Collapsed::add(Problem &into, const Edge &edge, size_t number,
                    const std::vector<int64_t> &costs) const {
  if (places[number] < 0) {
    std::vector<int64_t> &sum = into.variables[variable[edge.first]].costs;
    for (size_t c = 0; c < sum.size(); ++c)
      sum[c] = sumOfCosts(sum[c], costs[c * sum.size() + c]);
    return;
  }
  std::vector<int64_t> &sum =
      into.edges[static_cast<size_t>(places[number])].costs.edit();
  for (size_t i = 0; i < sum.size(); ++i)
    sum[i] = sumOfCosts(sum[i], costs[i]);
}
