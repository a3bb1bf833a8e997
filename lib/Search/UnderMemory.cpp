//===- UnderMemory.cpp - Problems under a memory limit --------------------===//
#include "UnderMemory.h"

#include "Collapse.h"

#include <algorithm>
#include <chrono>

using namespace partita;
using namespace partita::search;
using namespace partita::solver;

/// An answer this close to its bound, as a fraction, is taken after about a second.
static constexpr SolveOptions::Enough soonEnough{0.01, 400'000};
/// Of the time, what rounds may take before the solver gets all moments at once.
static constexpr double shareOfRounds = 0.7;
static constexpr int mostRounds = 64;

namespace {
class Rounds {
public:
  Rounds(const Problem &problem, const SolveOptions &options)
      : problem(problem), options(options), collapsed(problem),
        begin(std::chrono::steady_clock::now()) {}

  Expected<Solution> run(int64_t &bytesNeeded);

private:
  /// Solves for the moments so far; keeps the bound, and the answer if it fits. Whether
  /// another moment has to be looked at: it is then among `moments`.
  Expected<bool> round();
  /// What nothing fits into: the least bytes of the last moment.
  Solution infeasible(std::string reason, int64_t &bytesNeeded);
  Expected<Solution> finish(int64_t &bytesNeeded);
  /// All moments at which something begins.
  std::vector<int64_t> allMoments() const;
  SolveOptions limits(double share) const;
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
        .count();
  }

  const Problem &problem;
  const SolveOptions &options;
  Collapsed collapsed;
  std::chrono::steady_clock::time_point begin;
  std::vector<int64_t> moments;
  Solution best; ///< lowerBound holds also before there is an answer
  Solution last;
};
} // namespace

SolveOptions Rounds::limits(double share) const {
  SolveOptions now = options;
  now.enough = soonEnough;
  now.timeLimit = std::max(0.2, (options.timeLimit - seconds()) * share);
  if (now.workLimit)
    *now.workLimit = std::max<int64_t>(
        1, static_cast<int64_t>(static_cast<double>(*now.workLimit - best.work) * share));
  return now;
}

Expected<bool> Rounds::round() {
  auto solution =
      solve(moments.empty() ? collapsed.problem : collapsed.withMemory(problem, moments),
            limits(shareOfRounds));
  if (!solution)
    return tl::unexpected(solution.error());
  last = *solution;
  best.work += solution->work;
  best.lowerBound = std::max(best.lowerBound, solution->lowerBound);
  if (solution->choices.empty())
    return false;
  std::vector<uint32_t> choices = collapsed.expand(solution->choices);
  auto price = priceOf(problem, choices);
  if (!price)
    return tl::unexpected(price.error());
  if (!problem.memoryLimit || price->peakBytes <= *problem.memoryLimit) {
    best.choices = std::move(choices);
    best.cost = price->cost;
    return false;
  }
  auto place = std::lower_bound(moments.begin(), moments.end(), price->peakTime);
  moments.insert(place, price->peakTime);
  return true;
}

Solution Rounds::infeasible(std::string reason, int64_t &bytesNeeded) {
  Solution result;
  result.status = Status::Infeasible;
  result.reason = std::move(reason);
  for (int64_t moment : moments) {
    Problem bytes = collapsed.withMemory(problem, {moment});
    bytes.memoryLimit.reset();
    for (Variable &variable : bytes.variables) {
      std::fill(variable.costs.begin(), variable.costs.end(), 0);
      for (Usage &usage : variable.usages)
        variable.costs.assign(usage.bytes.begin(), usage.bytes.end());
    }
    for (Edge &edge : bytes.edges) {
      std::vector<int64_t> costs(edge.costs.size(), 0);
      for (Usage &usage : edge.usages)
        costs.assign(usage.bytes.begin(), usage.bytes.end());
      for (size_t i = 0; i < costs.size(); ++i)
        if (edge.costs[i] == forbidden)
          costs[i] = forbidden;
      edge.costs = std::move(costs);
    }
    if (auto least = solve(bytes, limits(0.5)))
      bytesNeeded = std::max(bytesNeeded, static_cast<int64_t>(least->lowerBound));
  }
  if (bytesNeeded > *problem.memoryLimit)
    result.reason = "infeasible: a moment needs at least " + std::to_string(bytesNeeded) +
                    " bytes, the limit is " + std::to_string(*problem.memoryLimit);
  return result;
}

std::vector<int64_t> Rounds::allMoments() const {
  std::vector<int64_t> all;
  auto add = [&](const std::vector<Usage> &usages) {
    for (const Usage &usage : usages)
      all.push_back(usage.begin);
  };
  for (const Variable &variable : problem.variables)
    add(variable.usages);
  for (const Edge &edge : problem.edges)
    add(edge.usages);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

Expected<Solution> Rounds::finish(int64_t &bytesNeeded) {
  if (last.status == Status::Infeasible)
    return infeasible(std::move(last.reason), bytesNeeded);
  if (best.choices.empty() && problem.memoryLimit) {
    moments = allMoments();
    auto more = round();
    if (!more)
      return tl::unexpected(more.error());
    if (last.status == Status::Infeasible)
      return infeasible(std::move(last.reason), bytesNeeded);
  }
  best.seconds = seconds();
  if (best.choices.empty()) {
    best.status = Status::Unknown;
    best.reason = "no plan was found that fits, and no proof that there is none";
    return best;
  }
  best.status = best.cost == best.lowerBound ? Status::Optimal : Status::Feasible;
  return best;
}

Expected<Solution> Rounds::run(int64_t &bytesNeeded) {
  for (int i = 0; i < mostRounds; ++i) {
    auto more = round();
    if (!more)
      return tl::unexpected(more.error());
    bool isLate = options.workLimit
                      ? static_cast<double>(best.work) >
                            shareOfRounds * static_cast<double>(*options.workLimit)
                      : seconds() > shareOfRounds * options.timeLimit;
    if (!*more || isLate)
      break;
  }
  return finish(bytesNeeded);
}

Expected<Solution> search::solveUnderMemory(const Problem &problem,
                                            const SolveOptions &options,
                                            int64_t &bytesNeeded) {
  bytesNeeded = 0;
  return Rounds(problem, options).run(bytesNeeded);
}
