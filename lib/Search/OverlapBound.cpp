//===- OverlapBound.cpp - No plan is faster, whatever runs at once --------===//
#include "partita/Search/OverlapBound.h"

#include "Loads.h"
#include "UnderMemory.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace partita;
using namespace partita::search;

namespace {
/// The best convex combination of rows, by what is known: the least over columns of the
/// combined row is to be large.
class Combination {
public:
  explicit Combination(size_t rows) : rows(rows) {}

  /// One number per row.
  void addColumn(std::vector<double> column) { columns.push_back(std::move(column)); }

  struct Found {
    std::vector<double> shares; ///< per row, their sum is 1
    double worth = 0;           ///< the least over columns; infinite without any
  };
  /// From each row in turn: goes on towards the row that leads to most, as far as that
  /// gets better, until none does. Of two rows that is exact, of more nearly so; any
  /// combination is a right one.
  Found best() const {
    Found best;
    for (size_t start = 0; start < rows; ++start) {
      Found now{std::vector<double>(rows, 0), 0};
      now.shares[start] = 1;
      now.worth = worthOf(now.shares);
      while (improve(now))
        ;
      if (best.shares.empty() || now.worth > best.worth * (1 + tiny))
        best = std::move(now);
    }
    return best;
  }

private:
  static constexpr double tiny = 1e-9;

  double worthOf(const std::vector<double> &shares) const {
    double least = std::numeric_limits<double>::infinity();
    for (const std::vector<double> &column : columns) {
      double sum = 0;
      for (size_t r = 0; r < rows; ++r)
        sum += shares[r] * column[r];
      least = std::min(least, sum);
    }
    return least;
  }

  static std::vector<double> towards(const std::vector<double> &shares, size_t row,
                                     double part) {
    std::vector<double> result = shares;
    for (double &share : result)
      share *= 1 - part;
    result[row] += part;
    return result;
  }

  /// The worth along the way to a row is concave: its top is where thirds lead.
  bool improve(Found &now) const {
    Found next = now;
    for (size_t row = 0; row < rows; ++row) {
      double low = 0, high = 1;
      for (int i = 0; i < 40; ++i) {
        double a = low + (high - low) / 3, b = high - (high - low) / 3;
        if (worthOf(towards(now.shares, row, a)) < worthOf(towards(now.shares, row, b)))
          low = a;
        else
          high = b;
      }
      std::vector<double> shares = towards(now.shares, row, (low + high) / 2);
      if (double worth = worthOf(shares); worth > next.worth * (1 + tiny))
        next = {std::move(shares), worth};
    }
    bool isBetter = next.worth > now.worth * (1 + 1e-6);
    now = std::move(next);
    return isBetter;
  }

  size_t rows;
  std::vector<std::vector<double>> columns;
};

/// Cutting planes over combinations of multipliers.
class Planes {
public:
  Planes(Timing &timing, const Model &model, double contention)
      : loads(timing, model), extremes(extremeMultipliers(
                                  timing.placement.topology().levels.size(), contention)),
        combination(extremes.size()) {}

  /// Whether another combination may raise the bound by what is worth it.
  bool isOpen() const {
    return now.shares.empty() ||
           now.worth > static_cast<double>(lowerBound) * (1 + closeEnough) + 1;
  }

  /// The problem for the best combination by what is known.
  solver::Problem next(bool withMemory) {
    Multipliers multipliers;
    if (now.shares.empty())
      multipliers = extremes.front();
    for (size_t e = 0; e < now.shares.size(); ++e)
      multipliers.add(extremes[e], now.shares[e]);
    return loads.weighted(multipliers, withMemory);
  }

  /// What a solver says of it: a bound, and an answer or none.
  void learn(solver::Wide bound, const std::vector<uint32_t> &answer) {
    lowerBound = std::max(lowerBound, static_cast<Picos>(bound));
    if (!answer.empty()) {
      const Loads its = loads.of(answer);
      std::vector<double> column;
      for (const Multipliers &extreme : extremes)
        column.push_back(extreme(its));
      combination.addColumn(std::move(column));
    }
    now = combination.best();
  }

  Picos lowerBound = 0;

private:
  static constexpr double closeEnough = 1e-3;

  ModelLoads loads;
  std::vector<Multipliers> extremes;
  Combination combination;
  Combination::Found now;
};
} // namespace

Expected<Picos> search::overlapBound(Timing &timing, const Model &model,
                                     const OverlapOptions &options) {
  Planes planes(timing, model,
                effectiveContention(options.contention.value_or(contentionOf(timing))));
  for (int round = 0; round < options.mostRounds && planes.isOpen(); ++round) {
    solver::Problem problem = planes.next(false);
    solver::SolveOptions solve;
    solve.workLimit = options.workPerRound;
    auto solution =
        MemoryRounds(problem, solve, {}, {}, 0).run(0, options.workPerRound, {}, true);
    if (!solution)
      return tl::unexpected(solution.error());
    planes.learn(solution->lowerBound, solution->choices);
    if (solution->choices.empty())
      break;
  }
  return planes.lowerBound;
}

Expected<Overlapped> search::planOverlapped(Timing &timing, const Model &model,
                                            const std::vector<Decided> &known,
                                            const SearchOptions &search,
                                            const OverlapOptions &options) {
  Overlapped best;
  auto consider = [&](Decided plan) {
    Picos time = simulate(timing, plan, options.contention).time;
    if (!best.plan || time < best.time)
      best = {std::move(plan), time, 0};
  };
  for (const Decided &plan : known)
    consider(plan);
  auto peakOf = [&](const std::vector<uint32_t> &choices) {
    return memoryOf(timing, model.decide(timing, choices), 0).peak();
  };
  Planes planes(timing, model,
                effectiveContention(options.contention.value_or(contentionOf(timing))));
  for (int round = 0; round < options.mostRounds && planes.isOpen(); ++round) {
    solver::Problem problem = planes.next(true);
    solver::SolveOptions solve;
    solve.threads = search.threads;
    solve.stop = search.stop;
    solve.timeLimit = search.timeLimit / options.mostRounds;
    if (search.workLimit)
      solve.workLimit = std::max<int64_t>(1, *search.workLimit / options.mostRounds);
    auto solution =
        MemoryRounds(problem, solve, peakOf, ownBytes(model), model.fixedBytes)
            .run(solve.timeLimit, solve.workLimit, {}, true);
    if (!solution)
      return tl::unexpected(solution.error());
    planes.learn(solution->lowerBound, solution->choices);
    if (solution->choices.empty())
      break;
    consider(model.decide(timing, solution->choices));
  }
  // A known plan may fit by its own memory only.
  best.lowerBound =
      best.plan ? std::min(planes.lowerBound, best.time) : planes.lowerBound;
  return best;
}
