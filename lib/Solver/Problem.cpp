//===- Problem.cpp - Checking problems and pricing answers ----------------===//
#include "partita/Solver/Problem.h"

#include <algorithm>
#include <span>
#include <unordered_set>

using namespace partita;
using namespace partita::solver;

std::string solver::toString(Wide value) {
  bool negative = value < 0;
  unsigned __int128 rest = negative ? -static_cast<unsigned __int128>(value)
                                    : static_cast<unsigned __int128>(value);
  std::string digits;
  do {
    digits.push_back(static_cast<char>('0' + static_cast<int>(rest % 10)));
    rest /= 10;
  } while (rest != 0);
  if (negative)
    digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

CostTable TablePool::add(std::vector<int64_t> &&costs) {
  uint64_t hash = costs.size();
  for (int64_t c : costs)
    hash = (hash ^ static_cast<uint64_t>(c) ^ (hash >> 29)) * 0x9e3779b97f4a7c15ull;
  std::vector<CostTable> &same = known[hash];
  for (const CostTable &table : same)
    if (std::equal(table.begin(), table.end(), costs.begin(), costs.end()))
      return table;
  costs.shrink_to_fit();
  return same.emplace_back(std::move(costs));
}

static std::string number(size_t value) { return std::to_string(value); }

static Expected<void> checkCosts(std::span<const int64_t> costs, const char *kind,
                                 size_t owner) {
  for (size_t i = 0; i < costs.size(); ++i)
    if (costs[i] < 0 || costs[i] > forbidden)
      return makeError(std::string(kind) + " " + number(owner) + ": cost " + number(i) +
                       " is " + std::to_string(costs[i]) + ", expected 0 to " +
                       std::to_string(forbidden));
  return {};
}

/// `checked`: the shared tables that need no second look.
using Checked = std::unordered_set<const void *>;

static Expected<void> checkUsages(const std::vector<Usage> &usages, size_t entries,
                                  const std::string &owner, Checked &checked) {
  for (const Usage &usage : usages) {
    if (usage.begin < 0 || usage.end < usage.begin || usage.end > maxTime)
      return makeError(owner + ": the interval [" + std::to_string(usage.begin) + ", " +
                       std::to_string(usage.end) + ") is not inside [0, " +
                       std::to_string(maxTime) + ")");
    if (usage.bytes.size() != entries)
      return makeError(owner + ": " + number(usage.bytes.size()) + " usages for " +
                       number(entries) + " costs");
    if (!checked.insert(usage.bytes.id()).second)
      continue;
    for (int64_t bytes : usage.bytes)
      if (bytes < 0 || bytes > maxBytes)
        return makeError(owner + ": a usage of " + std::to_string(bytes) +
                         " bytes, expected 0 to " + std::to_string(maxBytes));
  }
  return {};
}

static Expected<void> checkEdge(const Problem &problem, size_t e, Checked &checked,
                                Checked &checkedBytes) {
  const Edge &edge = problem.edges[e];
  std::string owner = "edge " + number(e);
  for (uint32_t v : {edge.first, edge.second})
    if (v >= problem.variables.size())
      return makeError(owner + ": there is no variable " + number(v) + ", only " +
                       number(problem.variables.size()));
  if (edge.first == edge.second)
    return makeError(owner + ": joins variable " + number(edge.first) + " to itself");
  size_t a = problem.variables[edge.first].costs.size();
  size_t b = problem.variables[edge.second].costs.size();
  if (edge.costs.size() != a * b)
    return makeError(owner + ": " + number(edge.costs.size()) + " costs, expected " +
                     number(a) + " x " + number(b));
  if (checked.insert(edge.costs.id()).second)
    if (auto ok = checkCosts(edge.costs, "edge", e); !ok)
      return ok;
  return checkUsages(edge.usages, edge.costs.size(), owner, checkedBytes);
}

static Expected<void> checkClass(const Problem &problem, size_t c,
                                 std::vector<bool> &seen) {
  const Class &tied = problem.classes[c];
  std::string owner = "class " + number(c);
  if (tied.copies.empty())
    return makeError(owner + ": has no copies");
  if (tied.runs == 0)
    return makeError(owner + ": may be split into 0 runs, expected at least 1");
  const std::vector<uint32_t> &model = tied.copies.front();
  for (size_t i = 0; i < tied.copies.size(); ++i) {
    const std::vector<uint32_t> &copy = tied.copies[i];
    std::string place = owner + ", copy " + number(i);
    if (copy.size() != model.size())
      return makeError(place + ": " + number(copy.size()) + " variables, expected " +
                       number(model.size()) + " as in copy 0");
    for (size_t j = 0; j < copy.size(); ++j) {
      uint32_t v = copy[j];
      if (v >= problem.variables.size())
        return makeError(place + ": there is no variable " + number(v) + ", only " +
                         number(problem.variables.size()));
      if (seen[v])
        return makeError(place + ": variable " + number(v) + " is in a class already");
      seen[v] = true;
      size_t choices = problem.variables[v].costs.size();
      size_t expected = problem.variables[model[j]].costs.size();
      if (choices != expected)
        return makeError(place + ": variable " + number(v) + " has " + number(choices) +
                         " choices, expected " + number(expected) + " as variable " +
                         number(model[j]) + " of copy 0 has");
    }
  }
  return {};
}

static Expected<void> checkClasses(const Problem &problem) {
  std::vector<bool> seen(problem.variables.size());
  for (size_t c = 0; c < problem.classes.size(); ++c)
    if (auto ok = checkClass(problem, c, seen); !ok)
      return ok;
  return {};
}

Expected<void> solver::check(const Problem &problem) {
  if (problem.variables.empty())
    return makeError("the problem is empty: it has no variables");
  if (problem.memoryLimit &&
      (*problem.memoryLimit < 1 || *problem.memoryLimit > maxBytes))
    return makeError("the memory limit is " + std::to_string(*problem.memoryLimit) +
                     ", expected 1 to " + std::to_string(maxBytes));
  Checked checked, checkedBytes;
  for (size_t v = 0; v < problem.variables.size(); ++v) {
    const Variable &variable = problem.variables[v];
    std::string owner = "variable " + number(v);
    if (variable.costs.empty())
      return makeError(owner + ": has no choices");
    if (auto ok = checkCosts(variable.costs, "variable", v); !ok)
      return ok;
    if (auto ok =
            checkUsages(variable.usages, variable.costs.size(), owner, checkedBytes);
        !ok)
      return ok;
  }
  for (size_t e = 0; e < problem.edges.size(); ++e)
    if (auto ok = checkEdge(problem, e, checked, checkedBytes); !ok)
      return ok;
  return checkClasses(problem);
}

namespace {
/// Bytes added to or taken from the sum at a time step.
struct Step {
  int64_t time;
  Wide change;
};
} // namespace

static void addUsages(std::vector<Step> &steps, const std::vector<Usage> &usages,
                      size_t entry) {
  for (const Usage &usage : usages)
    if (usage.begin < usage.end && usage.bytes[entry] != 0) {
      steps.push_back({usage.begin, usage.bytes[entry]});
      steps.push_back({usage.end, -usage.bytes[entry]});
    }
}

/// The largest sum over the time steps and the first where it occurs.
static void findPeak(std::vector<Step> &steps, Price &price) {
  std::sort(steps.begin(), steps.end(),
            [](const Step &a, const Step &b) { return a.time < b.time; });
  Wide now = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    now += steps[i].change;
    bool last = i + 1 == steps.size() || steps[i + 1].time != steps[i].time;
    if (last && now > price.peakBytes) {
      price.peakBytes = now;
      price.peakTime = steps[i].time;
    }
  }
}

Expected<Price> solver::priceOf(const Problem &problem,
                                const std::vector<uint32_t> &choices) {
  if (choices.size() != problem.variables.size())
    return makeError("the answer has " + number(choices.size()) + " choices for " +
                     number(problem.variables.size()) + " variables");
  Price price;
  std::vector<Step> steps;
  for (size_t v = 0; v < choices.size(); ++v) {
    const Variable &variable = problem.variables[v];
    if (choices[v] >= variable.costs.size())
      return makeError("variable " + number(v) + " has no choice " + number(choices[v]));
    if (variable.costs[choices[v]] == forbidden)
      return makeError("choice " + number(choices[v]) + " of variable " + number(v) +
                       " is forbidden");
    price.cost += variable.costs[choices[v]];
    addUsages(steps, variable.usages, choices[v]);
  }
  for (size_t e = 0; e < problem.edges.size(); ++e) {
    const Edge &edge = problem.edges[e];
    size_t entry = choices[edge.first] * problem.variables[edge.second].costs.size() +
                   choices[edge.second];
    if (edge.costs[entry] == forbidden)
      return makeError(
          "edge " + number(e) + " forbids choice " + number(choices[edge.first]) +
          " of variable " + number(edge.first) + " with choice " +
          number(choices[edge.second]) + " of variable " + number(edge.second));
    price.cost += edge.costs[entry];
    addUsages(steps, edge.usages, entry);
  }
  findPeak(steps, price);
  return price;
}

Expected<Price> solver::verifyWithoutClasses(const Problem &problem,
                                             const std::vector<uint32_t> &choices) {
  Expected<Price> price = priceOf(problem, choices);
  if (price && problem.memoryLimit && price->peakBytes > *problem.memoryLimit)
    return makeError("at time step " + std::to_string(price->peakTime) +
                     " the answer uses " + toString(price->peakBytes) +
                     " bytes, the limit is " + std::to_string(*problem.memoryLimit));
  return price;
}

/// An error where a class falls into more runs than it may.
static Expected<void> verifyRuns(const Class &tied, size_t c,
                                 const std::vector<uint32_t> &choices) {
  uint32_t runs = 1;
  for (size_t i = 1; i < tied.copies.size(); ++i) {
    const std::vector<uint32_t> &before = tied.copies[i - 1], &copy = tied.copies[i];
    size_t j = 0;
    while (j < copy.size() && choices[copy[j]] == choices[before[j]])
      ++j;
    if (j == copy.size() || ++runs <= tied.runs)
      continue;
    return makeError("class " + number(c) + ": copy " + number(i) + " begins run " +
                     number(runs) + " of at most " + number(tied.runs) + ": variable " +
                     number(copy[j]) + " takes choice " + number(choices[copy[j]]) +
                     ", variable " + number(before[j]) +
                     " of the copy before takes choice " + number(choices[before[j]]));
  }
  return {};
}

Expected<Price> solver::verify(const Problem &problem,
                               const std::vector<uint32_t> &choices) {
  Expected<Price> price = verifyWithoutClasses(problem, choices);
  if (!price)
    return price;
  for (size_t c = 0; c < problem.classes.size(); ++c)
    if (auto ok = verifyRuns(problem.classes[c], c, choices); !ok)
      return tl::unexpected(ok.error());
  return price;
}
