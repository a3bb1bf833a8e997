//===- SplitBoundTest.cpp - Bounds by elimination with split variables ----===//
#include "../../../lib/Solver/SplitBound.h"
#include "RandomProblem.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::solver;

/// Calls body(choices) for all choices of the alive variables.
template <typename Fn> static void enumerate(const Core &core, Fn body) {
  std::vector<int> choices(core.vars.size());
  for (;;) {
    body(choices);
    size_t v = 0;
    for (; v < choices.size(); ++v) {
      if (core.vars[v].alive && ++choices[v] < core.vars[v].size())
        break;
      choices[v] = 0;
    }
    if (v == choices.size())
      return;
  }
}

/// The least costs with memory at the core's prices, by enumeration: of all choices, of
/// those that fit, and of those without the prices.
struct Least {
  double priced = infinite, fitting = infinite, answer = infinite;
};

static Least leastCosts(const Core &core) {
  Least least;
  enumerate(core, [&](const std::vector<int> &choices) {
    double cost = core.price(choices), priced = cost;
    std::vector<Wide> use = core.rowUse(choices);
    for (size_t r = 0; r < core.lambda.size(); ++r)
      priced += core.lambda[r] * static_cast<double>(use[r] - core.slack[r]);
    least.priced = std::min(least.priced, priced);
    if (!core.fits(choices))
      return;
    least.fitting = std::min(least.fitting, priced);
    least.answer = std::min(least.answer, cost);
  });
  return least;
}

TEST_CASE("Elimination with split variables is a bound, and exact where none is split") {
  std::mt19937_64 random(1);
  int split = 0, closer = 0, tighter = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    CAPTURE(seed);
    Problem problem = test::SmallProblem(seed).make();
    Root root = buildCore(problem, {});
    if (!root.infeasible.empty())
      continue;
    Core &core = root.core;
    for (double &price : core.lambda)
      price = static_cast<double>(random() % 50) / 10;
    const Least least = leastCosts(core);
    if (isInfinite(least.answer))
      continue;
    const double margin = 1e-9 * std::max(1.0, std::abs(least.answer));
    Budget budget;
    // Where nothing is split, rows are exact as well, whatever their prices are.
    SplitBound exact(core, 1e9);
    REQUIRE(exact.fits());
    REQUIRE(exact.pass(budget));
    CHECK(exact.bound() == Approx(least.fitting).margin(margin).epsilon(1e-11));
    tighter += least.fitting > least.priced + margin;
    for (int i = 0; i < 30 && exact.step(least.answer) && exact.pass(budget); ++i)
      CHECK(exact.bound() <= least.answer + margin);
    SplitBound small(core, 10);
    REQUIRE(small.pass(budget));
    double first = small.bound();
    CHECK(first <= least.fitting + margin);
    for (int i = 0; i < 30 && small.step(least.answer) && small.pass(budget); ++i)
      CHECK(small.bound() <= least.answer + margin);
    CHECK(small.bound() >= first);
    split += first < least.answer - margin;
    closer += small.bound() > first + margin;
  }
  CHECK(split > 50);
  CHECK(closer > split / 4);
  CHECK(tighter > 50);
}

TEST_CASE("Threads change no bound of split variables") {
  constexpr size_t variables = 7, choices = 16;
  std::mt19937_64 random(3);
  Problem problem;
  for (size_t v = 0; v < variables; ++v) {
    Variable variable;
    for (size_t s = 0; s < choices; ++s)
      variable.costs.push_back(static_cast<int64_t>(random() % 100));
    problem.variables.push_back(std::move(variable));
  }
  for (uint32_t u = 0; u < variables; ++u)
    for (uint32_t v = u + 1; v < variables; ++v) {
      std::vector<int64_t> costs;
      for (size_t i = 0; i < choices * choices; ++i)
        costs.push_back(random() % 9 == 0 ? forbidden
                                          : static_cast<int64_t>(random() % 100));
      problem.edges.push_back({u, v, std::move(costs), {}});
    }
  Root root = buildCore(problem, {});
  // Tables of five variables have a million entries, enough for threads; larger ones are
  // split.
  std::vector<double> bounds;
  for (int threads : {1, 2, 3}) {
    SplitBound split(root.core, 1.1e6, threads);
    REQUIRE(split.fits());
    Budget budget;
    REQUIRE(split.pass(budget));
    for (int i = 0; i < 5 && split.step(2000) && split.pass(budget);)
      ++i;
    bounds.push_back(split.bound());
  }
  CHECK(bounds[0] > 0);
  CHECK(bounds[1] == bounds[0]);
  CHECK(bounds[2] == bounds[0]);
}
