//===- KernelTest.cpp - Few choices, and equal choices of what looks alike ===//
#include "../../../lib/Solver/Kernel.h"
#include "../../../lib/Solver/Alike.h"
#include "../../../lib/Solver/Search.h"
#include "RandomProblem.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::solver;

/// The best answer of a core as it is, and its cost.
static std::optional<std::vector<int>> solved(Core core, double &cost) {
  Budget budget;
  core.trail.clear();
  Search search(budget, Cut());
  auto choices = search.solve(std::move(core)).choices;
  cost = search.upper();
  return choices;
}

TEST_CASE("Answers of a kernel are answers, and with all choices the best ones") {
  int smaller = 0, kept = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    Problem problem = test::SmallProblem(seed).make();
    Root root = buildCore(problem, {});
    if (!root.infeasible.empty())
      continue;
    double best = infinite;
    auto answer = solved(root.core, best);
    if (!answer)
      continue;
    const double margin = 1e-9 * std::max(1.0, best);
    for (size_t most : {1, 100}) {
      Kernel kernel(root.core, *answer, most);
      // What it was made from is in it.
      CHECK(kernel.core().price(kernel.answer()) == Approx(best).margin(margin));
      CHECK(kernel.core().fits(kernel.answer()));
      double least = infinite;
      auto found = solved(kernel.core(), least);
      REQUIRE(found);
      CHECK(least == Approx(best).margin(margin));
      std::vector<int> full = kernel.expand(*found);
      CHECK(root.core.price(full) == Approx(least).margin(margin));
      CHECK(root.core.fits(full));
      ++kept;
    }
    Kernel one(root.core, *answer, 1);
    smaller += one.core().aliveVars() < root.core.aliveVars();
  }
  CHECK(kept > 400);
  CHECK(smaller > 100);
}

TEST_CASE("The kernel of a bad answer has the best pair of choices") {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) {
    Problem problem;
    for (int v = 0; v < 2; ++v) {
      Variable variable;
      for (int s = 0; s < 9; ++s)
        variable.costs.push_back(static_cast<int64_t>(random() % 1000));
      problem.variables.push_back(std::move(variable));
    }
    std::vector<int64_t> costs;
    for (int s = 0; s < 81; ++s)
      costs.push_back(static_cast<int64_t>(random() % 1000));
    problem.edges.push_back({0, 1, std::move(costs), {}});
    Root root = buildCore(problem, {});
    double best = infinite, least = infinite;
    REQUIRE(solved(root.core, best));
    std::vector<int> bad{static_cast<int>(random() % 9), static_cast<int>(random() % 9)};
    Kernel kernel(root.core, bad, 1);
    REQUIRE(solved(kernel.core(), least));
    CHECK(least == best);
  }
}

TEST_CASE("Layers inside a stretch of equal ones look alike, its ends do not") {
  constexpr uint32_t layers = 12, perLayer = 2;
  Problem problem;
  TablePool tables;
  for (uint32_t v = 0; v < layers * perLayer; ++v)
    problem.variables.push_back({{1, 2, 3}, {{v, v + 2, CostTable{4, v % perLayer, 1}}}});
  for (uint32_t v = 0; v + 1 < layers * perLayer; ++v)
    problem.edges.push_back(
        {v, v + 1, tables.add({0, 1, v % perLayer, 1, 0, 1, 1, 1, 0}), {}});
  auto tied = [&](int steps) {
    std::vector<bool> result(problem.variables.size());
    for (auto [a, b] : tiesOfAlike(problem, steps)) {
      CHECK(a % perLayer == b % perLayer);
      result[a] = result[b] = true;
    }
    return result;
  };
  // Without a look at neighbours only what they are by themselves counts.
  std::vector<bool> byThemselves = tied(0), near = tied(3);
  CHECK(std::count(byThemselves.begin(), byThemselves.end(), true) == layers * perLayer);
  for (uint32_t v = 0; v < near.size(); ++v)
    CHECK(near[v] == (v >= 3 && v + 3 < near.size()));
  CHECK(tiesOfAlike(problem, 30).empty());
}
