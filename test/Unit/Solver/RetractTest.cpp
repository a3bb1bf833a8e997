//===- RetractTest.cpp - Choices that all variables give up together ------===//
#include "../../../lib/Solver/Retract.h"
#include "../../../lib/Solver/Search.h"
#include "RandomProblem.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::solver;

static constexpr double none = -1;

/// The least cost of a core as it is; `none` where it has no answer.
static double leastCost(Core core) {
  Budget budget;
  core.trail.clear();
  Search search(budget, Cut());
  return search.solve(std::move(core)).choices ? search.upper() : none;
}

static int choicesLeft(const Core &core) {
  int count = 0;
  for (const CoreVar &var : core.vars)
    count += static_cast<int>(std::count_if(var.cost.begin(), var.cost.end(),
                                            [](double c) { return !isInfinite(c); }));
  return count;
}

/// Every choice in several forms, which cost and use the same; neighbours of other forms
/// pay for it, by the edge.
static Problem inForms(const Problem &problem, int forms, std::mt19937_64 &random) {
  Problem result;
  result.memoryLimit = problem.memoryLimit;
  for (const Variable &v : problem.variables) {
    Variable &copy = result.variables.emplace_back();
    for (int form = 0; form < forms; ++form)
      for (int64_t cost : v.costs)
        copy.costs.push_back(cost);
    for (const Usage &u : v.usages) {
      copy.usages.push_back({u.begin, u.end, {}});
      for (int form = 0; form < forms; ++form)
        for (int64_t bytes : u.bytes)
          copy.usages.back().bytes.push_back(bytes);
    }
  }
  for (const Edge &e : problem.edges) {
    const size_t rows = problem.variables[e.first].costs.size(),
                 columns = problem.variables[e.second].costs.size();
    const auto price = static_cast<int64_t>(1 + random() % 9);
    Edge copy{e.first, e.second, {}, {}};
    for (size_t s = 0; s < rows * static_cast<size_t>(forms); ++s)
      for (size_t t = 0; t < columns * static_cast<size_t>(forms); ++t) {
        int64_t cost = e.costs[(s % rows) * columns + t % columns];
        copy.costs.push_back(cost == forbidden || s / rows == t / columns ? cost
                                                                          : cost + price);
      }
    result.edges.push_back(std::move(copy));
  }
  return result;
}

/// Gives choices up and checks that nothing is lost by it. True: there were some.
static bool givesUp(const Problem &problem) {
  Root root = buildCore(problem, {});
  if (!root.infeasible.empty())
    return false;
  Core core = root.core;
  Budget budget;
  const bool isLess = retract(core, budget);
  CHECK(isLess == (choicesLeft(core) < choicesLeft(root.core)));
  const double before = leastCost(root.core), after = leastCost(core);
  CHECK(after == Approx(before).epsilon(1e-12));
  // An answer known before becomes one of what is left that is no worse.
  Budget search;
  if (auto answer = Search(search, Cut()).solve(root.core).choices) {
    Core from = root.core;
    from.trail.clear();
    std::vector<int> known = core.project(*answer, 0);
    CHECK(core.price(known) <= root.core.price(*answer) * (1 + 1e-12));
    CHECK(core.fits(known));
  }
  return isLess;
}

TEST_CASE("Giving choices up together loses no optimum") {
  int some = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    some += givesUp(test::SmallProblem(seed).make());
  }
  CHECK(some > 300);
}

TEST_CASE("Forms of choices that only have to agree are given up, all but one") {
  std::mt19937_64 random(3);
  int all = 0, halved = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    CAPTURE(seed);
    Problem problem = test::SmallProblem(seed).make();
    // Sums of costs with a price are below what is forbidden.
    for (Edge &e : problem.edges)
      e.usages.clear();
    bool isSmall = problem.variables.size() <= 7;
    for (const Variable &v : problem.variables)
      for (int64_t c : v.costs)
        isSmall &= c == forbidden || c <= 1'000'000;
    if (!isSmall || problem.edges.empty())
      continue;
    Problem twice = inForms(problem, 2, random);
    Root root = buildCore(twice, {});
    if (!root.infeasible.empty())
      continue;
    ++all;
    CHECK(givesUp(twice));
    const int before = choicesLeft(root.core);
    Budget budget;
    retract(root.core, budget);
    halved += choicesLeft(root.core) <= before / 2;
  }
  CHECK(all > 500);
  CHECK(halved > all * 9 / 10);
}

TEST_CASE("Choices that differ in more than form are kept") {
  // Two variables that may agree on either of two choices, one of which is dearer alone
  // and cheaper in memory: nothing is better in both.
  Problem problem;
  problem.memoryLimit = 10;
  for (int v = 0; v < 2; ++v)
    problem.variables.push_back({{5, 1}, {{0, 1, {2, 4}}}});
  problem.edges.push_back({0, 1, {0, 9, 9, 0}, {}});
  CHECK_FALSE(givesUp(problem));
  // Without the difference in memory one is enough.
  for (Variable &v : problem.variables)
    v.usages[0].bytes = {4, 4};
  CHECK(givesUp(problem));
  // No work, nothing given up.
  Root root = buildCore(problem, {});
  Budget no;
  no.workLimit = 0;
  CHECK_FALSE(retract(root.core, no));
  CHECK(choicesLeft(root.core) == 4);
}
