//===- SolveTest.cpp - Answers, bounds and refusals -----------------------===//
#include "RandomProblem.h"

#include "partita/Solver/Solve.h"

#include <algorithm>
#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::solver;

static Variable variable(std::vector<int64_t> costs, std::vector<int64_t> bytes,
                         int64_t begin = 0, int64_t end = 1) {
  return {std::move(costs), {{begin, end, std::move(bytes)}}};
}

TEST_CASE("verify refuses what breaks the problem") {
  Problem p;
  p.variables = {variable({1, forbidden}, {4, 1}), variable({2, 3}, {4, 1})};
  p.edges = {{0, 1, {0, 5, 1, forbidden}, {{0, 1, {0, 3, 0, 0}}}}};
  p.memoryLimit = 8;
  REQUIRE(check(p));
  CHECK(verify(p, {0, 0})->cost == 3);
  CHECK(verify(p, {0, 0})->peakBytes == 8);
  CHECK(verify(p, {0, 1})->peakBytes == 8);
  CHECK(verify(p, {0}).error().message == "the answer has 1 choices for 2 variables");
  CHECK(verify(p, {0, 2}).error().message == "variable 1 has no choice 2");
  CHECK(verify(p, {1, 0}).error().message == "choice 1 of variable 0 is forbidden");
  p.variables[0].costs[1] = 1;
  CHECK(verify(p, {1, 1}).error().message ==
        "edge 0 forbids choice 1 of variable 0 with choice 1 of variable 1");
  p.memoryLimit = 7;
  CHECK(verify(p, {0, 0}).error().message ==
        "at time step 0 the answer uses 8 bytes, the limit is 7");
  p.classes = {{{{0}, {1}}, 1}};
  CHECK(
      verify(p, {1, 0}).error().message ==
      "class 0: copy 1 begins run 2 of at most 1: variable 1 takes choice 0, variable 0 "
      "of the copy before takes choice 1");
  CHECK(verifyWithoutClasses(p, {1, 0}));
  p.classes[0].runs = 2;
  CHECK(verify(p, {1, 0}));
}

TEST_CASE("infeasible problems say why") {
  Problem memory;
  memory.variables = {variable({1, 1}, {6, 5}, 3, 9), variable({1}, {7}, 5, 6)};
  memory.memoryLimit = 11;
  auto a = solve(memory);
  CHECK(a->status == Status::Infeasible);
  CHECK(a->reason == "infeasible: at time step 5 every answer needs at least 12 bytes, "
                     "the limit is 11");
  Problem pairs;
  pairs.variables = {variable({1, 1}, {0, 0}), variable({1}, {0})};
  pairs.edges = {{0, 1, {forbidden, forbidden}, {}}};
  auto b = solve(pairs);
  CHECK(b->status == Status::Infeasible);
  CHECK(b->reason == "infeasible: the forbidden choices and pairs of variables 0 and 1 "
                     "leave no answer");
  // Each variable alone would fit; together with the pairs nothing does.
  Problem both;
  both.variables = {variable({1, 1}, {9, 1}), variable({1, 1}, {1, 9})};
  both.edges = {{0, 1, {0, 0, 0, forbidden}, {}}};
  both.edges[0].costs = {forbidden, 0, forbidden, 0};
  both.memoryLimit = 9;
  auto c = solve(both);
  CHECK(c->status == Status::Infeasible);
  CHECK(c->reason.find("infeasible") == 0);
}

TEST_CASE("variables that clash are named, and no others") {
  // A chain of free variables, and three in it that cannot all differ in two choices.
  Problem p;
  for (uint32_t v = 0; v < 60; ++v) {
    p.variables.push_back(variable({1, 2}, {0, 0}));
    if (v > 0)
      p.edges.push_back({v - 1, v, {0, 3, 3, 0}, {}});
  }
  CostTable differ{forbidden, 0, 0, forbidden};
  p.edges.push_back({7, 23, differ, {}});
  p.edges.push_back({23, 51, differ, {}});
  REQUIRE(solve(p)->status == Status::Optimal);
  p.edges.push_back({7, 51, differ, {}});
  auto s = solve(p);
  CHECK(s->status == Status::Infeasible);
  CHECK(s->reason == "infeasible: the forbidden choices and pairs of variables 7, 23 and "
                     "51 leave no answer");
  p.edges.pop_back();
  p.variables[40].costs = {forbidden, forbidden};
  CHECK(solve(p)->reason == "infeasible: all choices of variable 40 are forbidden");
  // Of ten that must all differ in three choices, any four are named.
  Problem crowd;
  for (uint32_t v = 0; v < 10; ++v) {
    crowd.variables.push_back(variable({0, 0, 0}, {0, 0, 0}));
    for (uint32_t u = 0; u < v; ++u)
      crowd.edges.push_back(
          {u, v, {forbidden, 0, 0, 0, forbidden, 0, 0, 0, forbidden}, {}});
  }
  auto c = solve(crowd);
  CHECK(c->status == Status::Infeasible);
  CHECK(std::count(c->reason.begin(), c->reason.end(), ',') == 2);
}

TEST_CASE("costs up to the largest add without wrapping") {
  Problem p;
  for (uint32_t v = 0; v < 100; ++v) {
    p.variables.push_back(variable({forbidden - 1, forbidden - 2}, {1, 2}));
    if (v > 0)
      p.edges.push_back({v - 1, v, {forbidden - 1, 5, 5, forbidden - 1}, {}});
  }
  auto s = solve(p);
  REQUIRE(s);
  REQUIRE(!s->choices.empty());
  CHECK(s->cost == Wide(50) * (forbidden - 1) + Wide(50) * (forbidden - 2) + 99 * 5);
  CHECK(s->lowerBound <= s->cost);
}

TEST_CASE("a work limit gives the same answer every time") {
  for (uint64_t seed : {11, 12, 13}) {
    std::mt19937_64 random(seed);
    Problem p;
    for (uint32_t v = 0; v < 60; ++v) {
      std::vector<int64_t> costs, bytes;
      for (int s = 0; s < 5; ++s) {
        costs.push_back(static_cast<int64_t>(random() % 100));
        bytes.push_back(static_cast<int64_t>(random() % 100));
      }
      p.variables.push_back(variable(costs, bytes, v, v + 8));
      for (int n = 0; n < 3 && v > 0; ++n) {
        Edge e{static_cast<uint32_t>(random() % v), v, {}, {}};
        for (int i = 0; i < 25; ++i)
          e.costs.push_back(static_cast<int64_t>(random() % 100));
        p.edges.push_back(e);
      }
    }
    p.memoryLimit = 250;
    SolveOptions options;
    options.workLimit = 3000;
    options.threads = 2;
    auto a = solve(p, options), b = solve(p, options);
    REQUIRE(a);
    CHECK(a->choices == b->choices);
    CHECK(a->cost == b->cost);
    CHECK(a->lowerBound == b->lowerBound);
    CHECK(a->work == b->work);
  }
}

/// Variables joined to the three before them, each alive for ten steps.
static Problem banded(uint64_t seed) {
  std::mt19937_64 random(seed);
  Problem p;
  for (uint32_t v = 0; v < 36; ++v) {
    std::vector<int64_t> costs, bytes;
    for (int s = 0; s < 4; ++s) {
      costs.push_back(static_cast<int64_t>(random() % 1000));
      bytes.push_back(1000 - costs.back() + static_cast<int64_t>(random() % 100));
    }
    p.variables.push_back(variable(costs, bytes, v, v + 10));
    for (uint32_t u = v < 3 ? 0 : v - 3; u < v; ++u) {
      Edge e{u, v, {}, {}};
      for (int i = 0; i < 16; ++i)
        e.costs.push_back(static_cast<int64_t>(random() % 1000));
      p.edges.push_back(e);
    }
  }
  p.memoryLimit = 4600;
  return p;
}

/// Solves below an upper bound and checks what is said about it.
static Solution solvedBelow(const Problem &problem, Wide upper) {
  SolveOptions options;
  options.workLimit = 2'000'000;
  options.upper = static_cast<int64_t>(upper);
  Solution s = *solve(problem, options);
  if (s.status == Status::Infeasible) {
    CHECK(s.choices.empty());
    CHECK(s.lowerBound == upper);
    CHECK(s.reason ==
          "no answer costs less than " + std::to_string(static_cast<int64_t>(upper)));
  }
  return s;
}

TEST_CASE("a search ends as soon as its bound passes the upper bound it is given") {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    CAPTURE(seed);
    Problem problem = banded(seed);
    SolveOptions options;
    options.workLimit = 2'000'000;
    Solution best = *solve(problem, options);
    REQUIRE(best.status == Status::Optimal);
    CHECK(solvedBelow(problem, best.cost).status == Status::Infeasible);
    Solution same = solvedBelow(problem, best.cost + 1);
    CHECK(same.status == Status::Optimal);
    CHECK(same.cost == best.cost);
    // What the first sweeps refute takes no more than they do.
    Solution low = solvedBelow(problem, best.cost / 2);
    CHECK(low.status == Status::Infeasible);
    CHECK(low.work < best.work / 20);
  }
}

TEST_CASE("a search begins from an answer that is given") {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    CAPTURE(seed);
    Problem problem = banded(seed);
    std::mt19937_64 random(seed); // pairs that use memory are variables of the core alone
    for (size_t e = 0; e < problem.edges.size(); e += 20) {
      std::vector<int64_t> bytes;
      for (int i = 0; i < 16; ++i)
        bytes.push_back(static_cast<int64_t>(random() % 40));
      const int64_t begin = problem.edges[e].second;
      problem.edges[e].usages.push_back({begin, begin + 3, std::move(bytes)});
    }
    SolveOptions options;
    options.workLimit = 2'000'000;
    const Solution best = *solve(problem, options);
    REQUIRE(best.status == Status::Optimal);
    options.workLimit = 1;
    const Solution alone = *solve(problem, options);
    CHECK((alone.choices.empty() || alone.cost > best.cost));
    options.start = best.choices;
    const Solution begun = *solve(problem, options);
    CHECK(begun.cost == best.cost);
    CHECK(begun.lowerBound <= best.lowerBound);
    // Too many bytes: it is no answer.
    for (size_t v = 0; v < options.start.size(); ++v) {
      const auto &bytes = problem.variables[v].usages[0].bytes;
      options.start[v] =
          static_cast<uint32_t>(std::ranges::max_element(bytes) - bytes.begin());
    }
    REQUIRE(!verify(problem, options.start));
    options.workLimit = 2'000'000;
    CHECK(solve(problem, options)->cost == best.cost);
  }
}

TEST_CASE("the upper bound holds where classes are split into runs, too") {
  int refuted = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Problem problem = test::LayeredProblem(seed).make();
    Solution best = *solve(problem);
    if (best.status != Status::Optimal || best.cost == 0)
      continue;
    Solution none = solvedBelow(problem, best.cost);
    CHECK(none.status == Status::Infeasible);
    Solution same = solvedBelow(problem, best.cost + 1);
    CHECK(same.status == Status::Optimal);
    CHECK(same.cost == best.cost);
    ++refuted;
  }
  CHECK(refuted > 100);
}

TEST_CASE("the bound of a search that is cut short is that of its open nodes") {
  int rose = 0;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Problem p = banded(seed);
    auto whole = solve(p);
    REQUIRE(whole->status == Status::Optimal);
    for (int64_t part = 2; part <= 7; ++part) {
      SolveOptions options;
      options.workLimit = whole->work * part / 8;
      std::vector<double> bounds;
      options.progress = [&](const Progress &now) { bounds.push_back(now.lowerBound); };
      auto cut = solve(p, options);
      INFO("seed " << seed << ", part " << part);
      CHECK(cut->lowerBound <= whole->cost);
      REQUIRE(!bounds.empty());
      CHECK(std::is_sorted(bounds.begin(), bounds.end()));
      CHECK(bounds.back() <= static_cast<double>(whole->cost) + 1e-6);
      // Progress is reported after the root's bounds, and then during the search.
      if (cut->status != Status::Optimal && bounds.size() > 4)
        rose += bounds.back() > bounds[3];
    }
  }
  CHECK(rose > 6);
}

TEST_CASE("check refuses problems that break the contract") {
  Problem p;
  CHECK(!check(p));
  p.variables = {variable({1}, {1})};
  CHECK(check(p));
  p.memoryLimit = 0;
  CHECK(!check(p));
  p.memoryLimit = 1;
  p.variables[0].costs[0] = -1;
  CHECK(!check(p));
  p.variables[0].costs[0] = forbidden + 1;
  CHECK(!check(p));
  p.variables[0].costs[0] = 1;
}

/// What `check` says about a problem of five variables, the last of other choices.
static std::string classError(std::vector<Class> classes) {
  Problem p;
  for (int v = 0; v < 5; ++v)
    p.variables.push_back(variable({1, 2}, {1, 1}));
  p.variables.push_back(variable({1}, {1}));
  p.classes = std::move(classes);
  auto ok = check(p);
  return ok ? "" : ok.error().message;
}

TEST_CASE("classes that do not fit together are refused, naming class and copy") {
  CHECK(classError({{{{0, 1}, {2, 3}}, 2}, {{{4}}, 1}}) == "");
  CHECK(classError({{{}, 1}}) == "class 0: has no copies");
  CHECK(classError({{{{0}, {1}}, 0}}) ==
        "class 0: may be split into 0 runs, expected at least 1");
  CHECK(classError({{{{0, 1}, {2}}, 1}}) ==
        "class 0, copy 1: 1 variables, expected 2 as in copy 0");
  CHECK(classError({{{{0}, {6}}, 1}}) ==
        "class 0, copy 1: there is no variable 6, only 6");
  CHECK(classError({{{{0}, {1}}, 1}, {{{2}, {1}}, 1}}) ==
        "class 1, copy 1: variable 1 is in a class already");
  CHECK(classError({{{{0}, {0}}, 1}}) ==
        "class 0, copy 1: variable 0 is in a class already");
  CHECK(classError({{{{0, 1}, {2, 5}}, 1}}) ==
        "class 0, copy 1: variable 5 has 1 choices, expected 2 as variable 1 of copy 0 "
        "has");
}
