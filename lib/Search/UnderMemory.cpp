//===- UnderMemory.cpp - Large problems under a memory limit --------------===//
#include "UnderMemory.h"

#include "Collapse.h"

#include <algorithm>
#include <chrono>
#include <cmath>

using namespace partita;
using namespace partita::search;
using namespace partita::solver;

/// Problems of fewer variables are the solver's from the beginning.
static constexpr size_t smallProblem = 250;
/// Gap that is left alone on large problems, as a fraction.
static constexpr double closeEnough = 1e-3;
static constexpr int mostPrices = 24;

static double gapOf(const Solution &solution) {
  return static_cast<double>(solution.cost - solution.lowerBound) /
         std::max(1.0, static_cast<double>(solution.cost));
}

namespace {
class MemoryPricer {
public:
  MemoryPricer(const Problem &problem, const SolveOptions &options)
      : problem(problem), options(options), limit(*problem.memoryLimit),
        collapsed(problem), unlimited(problem), begin(std::chrono::steady_clock::now()) {
    unlimited.memoryLimit.reset();
  }

  Expected<Solution> run(int64_t &bytesNeeded);

private:
  /// Adds to `costs`, the collapsed problem, a price of `perByte` on the bytes in use at
  /// a moment.
  Problem priced(Problem costs, int64_t moment, double perByte) const;
  /// Solves it; keeps the answer if it fits, and the bound. The bytes at the peak of the
  /// answer, or nothing if there was none.
  std::optional<Price> step(int64_t moment, double perByte);
  bool isDone() const {
    double left = options.timeLimit - seconds();
    return (!options.workLimit && left <= 0) || tries >= mostPrices ||
           (!best.choices.empty() && gapOf(best) <= closeEnough);
  }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
        .count();
  }

  const Problem &problem;
  const SolveOptions &options;
  int64_t limit;
  Collapsed collapsed;
  Problem unlimited;
  std::chrono::steady_clock::time_point begin;
  Solution best; ///< lowerBound holds also before there is an answer
  int tries = 0;
};
} // namespace

static bool covers(const Usage &usage, int64_t moment) {
  return usage.begin <= moment && moment < usage.end;
}

/// Rounded down, so that sums are no more than the exact price.
static int64_t priceOf(int64_t bytes, double perByte) {
  return static_cast<int64_t>(
      std::min(std::floor(static_cast<double>(bytes) * perByte), 1e17));
}

Problem MemoryPricer::priced(Problem costs, int64_t moment, double perByte) const {
  for (size_t v = 0; v < problem.variables.size(); ++v)
    for (const Usage &usage : problem.variables[v].usages) {
      if (!covers(usage, moment))
        continue;
      std::vector<int64_t> &sum = costs.variables[collapsed.variable[v]].costs;
      for (size_t c = 0; c < sum.size(); ++c)
        sum[c] = sumOfCosts(sum[c], priceOf(usage.bytes[c], perByte));
    }
  for (size_t e = 0; e < problem.edges.size(); ++e)
    for (const Usage &usage : problem.edges[e].usages) {
      if (!covers(usage, moment))
        continue;
      std::vector<int64_t> prices;
      prices.reserve(usage.bytes.size());
      for (int64_t bytes : usage.bytes)
        prices.push_back(priceOf(bytes, perByte));
      collapsed.add(costs, problem.edges[e], e, prices);
    }
  return costs;
}

std::optional<Price> MemoryPricer::step(int64_t moment, double perByte) {
  ++tries;
  SolveOptions now = options;
  now.timeLimit = std::max(0.5, (options.timeLimit - seconds()) / 2);
  if (now.workLimit)
    *now.workLimit /= 4;
  const Problem &free = collapsed.problem;
  auto solution = solve(perByte == 0 ? free : priced(free, moment, perByte), now);
  if (!solution)
    return std::nullopt;
  auto ofLimit = static_cast<Wide>(std::ceil(static_cast<double>(limit) * perByte));
  best.lowerBound = std::max(best.lowerBound, solution->lowerBound - ofLimit);
  best.work += solution->work;
  if (solution->choices.empty())
    return std::nullopt;
  std::vector<uint32_t> choices = collapsed.expand(solution->choices);
  auto price = verify(unlimited, choices);
  if (!price)
    return std::nullopt;
  if (price->peakBytes <= limit && (best.choices.empty() || price->cost < best.cost)) {
    best.choices = std::move(choices);
    best.cost = price->cost;
    best.status = Status::Feasible;
  }
  return *price;
}

Expected<Solution> MemoryPricer::run(int64_t &bytesNeeded) {
  auto price = step(0, 0);
  if (!price)
    return solve(problem, options);
  int64_t moment = price->peakTime;
  // Too low and high enough; per byte, a thousandth of what all of it costs to begin
  // with.
  double low = 0, high = std::max(1e-9, static_cast<double>(price->cost) /
                                            static_cast<double>(limit) * 1e-3);
  bool bracketed = false;
  while (!isDone()) {
    double now = bracketed ? (low == 0 ? high / 4 : std::sqrt(low * high)) : high;
    price = step(moment, now);
    if (!price)
      break;
    if (price->peakBytes <= limit) {
      bracketed = true;
      high = now;
    } else {
      // Another moment may be the one that does not fit by now.
      moment = price->peakTime;
      low = now;
      if (!bracketed)
        high *= 8;
    }
    if (bracketed && high < low * 1.02)
      break;
  }
  if (best.choices.empty()) {
    // The least that this moment needs, whatever it takes.
    Problem bytes = collapsed.problem;
    for (Variable &variable : bytes.variables)
      std::fill(variable.costs.begin(), variable.costs.end(), 0);
    for (Edge &edge : bytes.edges)
      for (int64_t &cost : edge.costs.edit())
        cost = cost == forbidden ? forbidden : 0;
    auto least = solve(priced(std::move(bytes), moment, 1), options);
    if (least && least->lowerBound > limit) {
      bytesNeeded = static_cast<int64_t>(least->lowerBound);
      best.status = Status::Infeasible;
      best.reason = "infeasible: a moment needs at least " + std::to_string(bytesNeeded) +
                    " bytes, the limit is " + std::to_string(limit);
      return best;
    }
    best.reason = "no plan was found that fits, and no proof that there is none";
  }
  best.lowerBound = std::max<Wide>(best.lowerBound, 0);
  if (!best.choices.empty() && best.cost == best.lowerBound)
    best.status = Status::Optimal;
  best.seconds = seconds();
  return best;
}

/// Of two solutions the cheaper answer that fits, and the higher bound.
static Expected<Solution> better(const Problem &problem, const Solution &first,
                                 Expected<Solution> second) {
  if (!second)
    return second;
  Wide bound = std::max(first.lowerBound, second->lowerBound);
  bool fits = !first.choices.empty() && verify(problem, first.choices);
  if (fits && (second->choices.empty() || first.cost < second->cost))
    *second = first;
  second->lowerBound = bound;
  if (!second->choices.empty())
    second->status = second->cost == bound ? Status::Optimal : Status::Feasible;
  return second;
}

Expected<Solution> search::solveUnderMemory(const Problem &problem,
                                            const SolveOptions &options,
                                            int64_t &bytesNeeded) {
  bytesNeeded = 0;
  if (problem.classes.empty() &&
      (!problem.memoryLimit || problem.variables.size() < smallProblem))
    return solve(problem, options);
  Collapsed collapsed(problem);
  auto expanded = [&](Expected<Solution> solution) {
    if (solution && !solution->choices.empty())
      solution->choices = collapsed.expand(solution->choices);
    return solution;
  };
  if (!problem.memoryLimit)
    return expanded(solve(collapsed.problem, options));
  auto priced = MemoryPricer(problem, options).run(bytesNeeded);
  bool close = priced && (priced->status == Status::Infeasible ||
                          (!priced->choices.empty() && gapOf(*priced) <= closeEnough));
  if (!priced || close || collapsed.problem.variables.size() >= smallProblem)
    return priced;
  SolveOptions rest = options;
  rest.timeLimit = std::max(1.0, (options.timeLimit - priced->seconds) / 2);
  if (rest.workLimit)
    *rest.workLimit /= 2;
  auto exact = expanded(solve(collapsed.withMemory(problem), rest));
  if (!exact || exact->status == Status::Infeasible)
    return exact;
  return better(problem, *exact, std::move(priced));
}
