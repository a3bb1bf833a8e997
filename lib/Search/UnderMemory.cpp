//===- UnderMemory.cpp - Problems under a memory limit --------------------===//
#include "UnderMemory.h"

#include "PricedMemory.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

using namespace partita;
using namespace partita::search;
using namespace partita::solver;

/// An answer this close to its bound, as a fraction, is taken after two or three seconds,
/// and after some tenths of one if there is only rounding left.
static constexpr SolveOptions::Enough soonEnough{0.01, 200'000, 1e-6, 50'000};
/// While it is not known which moments decide, an answer this close is taken at once:
/// the next round is another problem.
static constexpr SolveOptions::Enough whileExploring{0.05, 30'000, 1e-6, 30'000};
/// Of the time, what rounds may take before the solver gets all moments at once.
static constexpr double shareOfRounds = 0.7;
static constexpr int mostRounds = 64;
/// Moments of which it is looked at how many bytes they need at least, those that were
/// found last, and the work for each.
static constexpr size_t mostExplained = 3;
static constexpr int64_t explanationWork = 20'000;
/// Prices of memory that are tried, the part of the time for each, and what is enough.
static constexpr int mostPrices = 8;
static constexpr double shareOfPrice = 0.05;
static constexpr SolveOptions::Enough whilePricing{0.02, 50'000, 1e-6, 50'000};

std::vector<char> search::ownBytes(const Model &model) {
  std::vector<char> isOwn(model.problem.variables.size(), true);
  for (const SharedValue &shared : model.values)
    isOwn[shared.variable] = false;
  for (const SharedSource &shared : model.sources)
    for (uint32_t copy : shared.copies)
      isOwn[copy] = false;
  return isOwn;
}

MemoryRounds::MemoryRounds(const Problem &problem, const SolveOptions &options,
                           PeakOf peakOf, const std::vector<char> &isOwn, int64_t beside,
                           Rows rows)
    : problem(problem), options(options), peakOf(std::move(peakOf)), beside(beside),
      rows(rows), collapsed(problem), own(collapsed.problem) {
  if (rows == Rows::Least)
    return;
  for (size_t v = 0; v < isOwn.size(); ++v)
    if (!isOwn[v])
      own.variables[collapsed.variable[v]].usages.clear();
  for (Edge &edge : own.edges)
    edge.usages.clear();
}

SolveOptions MemoryRounds::limits(double share) const {
  SolveOptions now = options;
  now.enough = isExploring && !moments.empty() ? whileExploring : soonEnough;
  now.timeLimit = std::max(0.2, (options.timeLimit - best.seconds) * share);
  if (now.workLimit)
    *now.workLimit = std::max<int64_t>(
        1, static_cast<int64_t>(
               static_cast<double>(*now.workLimit - (best.work - workBefore)) * share));
  if (hasAnswer())
    now.upper = static_cast<int64_t>(best.cost);
  if (isOffered && hasAnswer()) {
    now.upper = static_cast<int64_t>(best.cost) + 1;
    now.start = best.choices;
  }
  return now;
}

bool MemoryRounds::isLate() const {
  return options.workLimit ? static_cast<double>(best.work - workBefore) >
                                 shareOfRounds * static_cast<double>(*options.workLimit)
                           : best.seconds > shareOfRounds * options.timeLimit;
}

Expected<bool> MemoryRounds::offer(const std::vector<uint32_t> &choices) {
  std::vector<uint32_t> tied(collapsed.problem.variables.size());
  for (size_t v = 0; v < choices.size(); ++v)
    tied[collapsed.variable[v]] = choices[v];
  if (collapsed.expand(tied) != choices || !priceOf(collapsed.problem, tied))
    return false;
  int64_t ignored = 0;
  auto fits = keepIfItFits(std::move(tied), ignored);
  isOffered |= fits && *fits;
  return fits;
}

Expected<void> MemoryRounds::round() {
  ++rounds;
  isOpen = false;
  auto solution = solve(collapsed.withMemory(moments), limits(shareOfRounds));
  if (!solution)
    return tl::unexpected(solution.error());
  last = std::move(*solution);
  best.work += last.work;
  best.seconds += last.seconds;
  best.lowerBound = std::max(best.lowerBound, last.lowerBound);
  if (moments.empty())
    relaxed = best.lowerBound;
  if (last.choices.empty())
    return {};
  int64_t moment = 0;
  auto fits = keepIfItFits(last.choices, moment);
  if (!fits)
    return tl::unexpected(fits.error());
  if (*fits) {
    // The moments are known: now it is worth to look closer.
    isOpen = std::exchange(isExploring, false) && !moments.empty() &&
             !isWithin(soonEnough.gap);
    return {};
  }
  const auto place = std::lower_bound(moments.begin(), moments.end(), moment);
  // An answer that fits by least rows may not fit, and no row says why.
  if (place != moments.end() && *place == moment)
    return {};
  isOpen = isExploring = true;
  moments.insert(place, moment);
  latest.push_back(moment);
  if (latest.size() > mostExplained)
    latest.erase(latest.begin());
  return {};
}

Expected<bool> MemoryRounds::keepIfItFits(std::vector<uint32_t> choices,
                                          int64_t &moment) {
  auto price = priceOf(collapsed.problem, choices);
  if (!price)
    return tl::unexpected(price.error());
  moment = price->peakTime;
  const bool fitsByUsages =
      !problem.memoryLimit ||
      (rows == Rows::Most && price->peakBytes <= *problem.memoryLimit);
  if (!fitsByUsages && !fitsByItself(choices))
    return false;
  if (best.choices.empty() || price->cost < best.cost) {
    isBestByUsages = fitsByUsages || rows == Rows::Least;
    best.choices = std::move(choices);
    best.cost = price->cost;
  }
  return true;
}

bool MemoryRounds::fitsByItself(const std::vector<uint32_t> &choices) const {
  auto least = priceOf(own, choices);
  return peakOf && least && least->peakBytes <= *problem.memoryLimit &&
         peakOf(collapsed.expand(choices)) - beside <= *problem.memoryLimit;
}

Expected<void> MemoryRounds::seed() {
  isSeeded = true;
  double paid =
      last.choices.empty() ? 0 : pricedBytes(problem, collapsed.expand(last.choices));
  if (paid <= 0)
    return {};
  // Of what answers cost and what they pay for memory neither should hide the other.
  double price = static_cast<double>(last.cost) / paid, low = 0, high = 0;
  for (int tries = 0; tries < mostPrices; ++tries) {
    Collapsed priced(withPricedMemory(problem, 1, price));
    SolveOptions now = limits(shareOfPrice);
    now.upper.reset();
    now.enough = whilePricing;
    auto solution = solve(priced.problem, now);
    if (!solution)
      return tl::unexpected(solution.error());
    best.work += solution->work;
    best.seconds += solution->seconds;
    bool fits = false;
    if (!solution->choices.empty()) {
      int64_t ignored = 0;
      auto kept = keepIfItFits(solution->choices, ignored);
      if (!kept)
        return tl::unexpected(kept.error());
      fits = *kept;
    }
    (fits ? high : low) = price;
    price = low == 0 ? price / 8 : high == 0 ? price * 8 : std::sqrt(low * high);
  }
  return {};
}

/// The bytes that a problem's usages have as its costs; its one moment.
static Problem bytesAsCosts(Problem problem) {
  problem.memoryLimit.reset();
  for (Variable &variable : problem.variables) {
    std::fill(variable.costs.begin(), variable.costs.end(), 0);
    for (const Usage &usage : variable.usages)
      variable.costs.assign(usage.bytes.begin(), usage.bytes.end());
  }
  for (Edge &edge : problem.edges) {
    std::vector<int64_t> costs(edge.costs.size(), 0);
    for (const Usage &usage : edge.usages)
      costs.assign(usage.bytes.begin(), usage.bytes.end());
    for (size_t i = 0; i < costs.size(); ++i)
      if (edge.costs[i] == forbidden)
        costs[i] = forbidden;
    edge.costs = std::move(costs);
  }
  return problem;
}

Solution MemoryRounds::infeasible(bool isLast) {
  // Most rows prove nothing of plans.
  if (options.upper || rows == Rows::Most || !isLast)
    return std::move(last);
  int64_t needed = 0;
  for (int64_t moment : latest) {
    SolveOptions now = options;
    now.workLimit = explanationWork;
    now.upper.reset();
    if (auto least = solve(bytesAsCosts(collapsed.withMemory({moment})), now))
      needed = std::max(needed, static_cast<int64_t>(least->lowerBound));
  }
  if (problem.memoryLimit && needed > *problem.memoryLimit)
    last.reason = "infeasible: any plan needs " + std::to_string(needed + beside) +
                  " bytes or more at one moment, the limit is " +
                  std::to_string(*problem.memoryLimit + beside);
  else
    last.reason = "infeasible: no plan has room for every moment, the limit is " +
                  std::to_string(*problem.memoryLimit + beside) + " bytes";
  return std::move(last);
}

Expected<Solution> MemoryRounds::finish(bool isLast) {
  if (isLast && best.choices.empty() && last.status != Status::Infeasible && !isSeeded)
    if (auto ok = seed(); !ok)
      return tl::unexpected(ok.error());
  if (isLast && isOpen && best.choices.empty()) {
    moments.resize(static_cast<size_t>(collapsed.steps()));
    std::iota(moments.begin(), moments.end(), 0);
    if (auto ok = round(); !ok)
      return tl::unexpected(ok.error());
  }
  if (last.status == Status::Infeasible && !hasAnswer())
    return infeasible(isLast);
  if (best.choices.empty()) {
    best.status = Status::Unknown;
    best.reason = "no plan was found that fits, and no proof that there is none";
    return best;
  }
  // Bounds of rounds are of answers that fit by the problem's usages.
  if (!isBestByUsages)
    best.lowerBound = std::min(best.lowerBound, relaxed);
  best.status = best.cost == best.lowerBound ? Status::Optimal : Status::Feasible;
  Solution whole = best;
  whole.choices = collapsed.expand(best.choices);
  return whole;
}

Expected<void> MemoryRounds::relax() { return round(); }

Expected<Solution> MemoryRounds::run(double timeLimit, std::optional<int64_t> workLimit,
                                     std::optional<int64_t> upper, bool isLast) {
  options.timeLimit = timeLimit;
  options.workLimit = workLimit;
  options.upper = upper;
  best.seconds = 0;
  workBefore = best.work;
  isOpen =
      rounds == 0 || (last.status != Status::Infeasible && !isWithin(soonEnough.gap));
  if (upper && best.lowerBound >= *upper) {
    Solution none;
    none.status = Status::Infeasible;
    none.reason = "no answer costs less than " + std::to_string(*upper);
    none.lowerBound = best.lowerBound;
    return none;
  }
  for (bool any = false; isOpen && rounds < mostRounds && !(any && isLate()); any = true)
    if (auto ok = round(); !ok)
      return tl::unexpected(ok.error());
  return finish(isLast);
}
