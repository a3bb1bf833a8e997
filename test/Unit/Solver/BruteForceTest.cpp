//===- BruteForceTest.cpp - Every small problem solved by enumeration -----===//
#include "RandomProblem.h"

#include "partita/Solver/Solve.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::solver;

namespace {
struct Truth {
  bool feasible = false;
  Wide cost = 0;
};
} // namespace

/// The least cost over all combinations, priced by `verify` alone.
static Truth enumerate(const Problem &problem) {
  Truth truth;
  std::vector<uint32_t> choices(problem.variables.size());
  for (;;) {
    if (auto price = verify(problem, choices);
        price && (!truth.feasible || price->cost < truth.cost)) {
      truth.feasible = true;
      truth.cost = price->cost;
    }
    size_t v = 0;
    while (v < choices.size() && ++choices[v] == problem.variables[v].costs.size())
      choices[v++] = 0;
    if (v == choices.size())
      return truth;
  }
}

TEST_CASE("5,000 random small problems equal enumeration") {
  int infeasible = 0, withMemory = 0;
  for (uint64_t seed = 0; seed < 5000; ++seed) {
    test::SmallProblem small(seed);
    Problem problem = small.make();
    REQUIRE(check(problem));
    Truth truth = enumerate(problem);
    INFO("seed " << seed);
    auto solution = solve(problem);
    REQUIRE(solution);
    if (!truth.feasible) {
      ++infeasible;
      REQUIRE(solution->status == Status::Infeasible);
      REQUIRE(solution->reason.find("infeasible") != std::string::npos);
      continue;
    }
    withMemory += problem.memoryLimit.has_value();
    REQUIRE(solution->status == Status::Optimal);
    REQUIRE(toString(solution->cost) == toString(truth.cost));
    REQUIRE(toString(solution->lowerBound) == toString(truth.cost));
  }
  // The generator must keep making hard ones.
  CHECK(infeasible > 200);
  CHECK(infeasible < 2500);
  CHECK(withMemory > 1000);
}

TEST_CASE("3,000 random problems with classes and runs equal enumeration") {
  int infeasible = 0, split = 0, tied = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Problem problem = test::LayeredProblem(seed).make();
    REQUIRE(check(problem));
    Truth truth = enumerate(problem);
    INFO("seed " << seed);
    SolveOptions options;
    options.threads = 1 + static_cast<int>(seed % 2);
    auto solution = solve(problem, options);
    REQUIRE(solution);
    if (!truth.feasible) {
      ++infeasible;
      REQUIRE(solution->status == Status::Infeasible);
      REQUIRE(solution->reason.rfind("infeasible: ", 0) == 0);
      continue;
    }
    REQUIRE(solution->status == Status::Optimal);
    REQUIRE(toString(solution->cost) == toString(truth.cost));
    REQUIRE(toString(solution->lowerBound) == toString(truth.cost));
    // How often the classes matter, and how often an answer uses more than one run.
    for (Class &c : problem.classes)
      c.runs = 1;
    split += !verify(problem, solution->choices);
    problem.classes.clear();
    tied += solve(problem)->cost < truth.cost;
  }
  CHECK(infeasible > 100);
  CHECK(split > 500);
  CHECK(tied > 500);
}

TEST_CASE("a search for runs cut short gives bounds that hold, and never lower ones") {
  int open = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Problem problem = test::LayeredProblem(seed).make();
    Truth truth = enumerate(problem);
    INFO("seed " << seed);
    for (int64_t work : {1, 2, 4, 16}) {
      SolveOptions options;
      options.workLimit = work;
      double last = 0;
      bool fell = false;
      options.progress = [&](const Progress &p) {
        fell |= p.lowerBound < last;
        last = p.lowerBound;
      };
      auto solution = solve(problem, options);
      REQUIRE(solution);
      REQUIRE(!fell);
      if (!truth.feasible) {
        REQUIRE(solution->choices.empty());
        continue;
      }
      open += solution->status != Status::Optimal;
      REQUIRE(solution->status != Status::Infeasible);
      REQUIRE(solution->lowerBound <= truth.cost);
      REQUIRE(last <= static_cast<double>(truth.cost) + 1e-6);
      if (solution->status != Status::Unknown)
        REQUIRE(solution->cost >= truth.cost);
    }
  }
  CHECK(open > 50);
}

TEST_CASE("a search for runs gives the same answer for the same work") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Problem problem = test::LayeredProblem(seed).make();
    SolveOptions options;
    options.threads = 2;
    options.workLimit = 3 + static_cast<int64_t>(seed % 5);
    auto a = solve(problem, options), b = solve(problem, options);
    INFO("seed " << seed);
    REQUIRE(a->status == b->status);
    REQUIRE(a->choices == b->choices);
    REQUIRE(a->lowerBound == b->lowerBound);
    REQUIRE(a->work == b->work);
  }
}

TEST_CASE("a search cut short gives bounds that hold") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Problem problem = test::SmallProblem(seed).make();
    Truth truth = enumerate(problem);
    SolveOptions options;
    options.workLimit = 1 + static_cast<int64_t>(seed % 4);
    auto solution = solve(problem, options);
    REQUIRE(solution);
    INFO("seed " << seed);
    if (!truth.feasible) {
      REQUIRE((solution->status == Status::Infeasible ||
               solution->status == Status::Unknown));
      continue;
    }
    REQUIRE(solution->status != Status::Infeasible);
    REQUIRE(solution->lowerBound <= truth.cost);
    if (solution->status != Status::Unknown)
      REQUIRE(solution->cost >= truth.cost);
  }
}

namespace {
/// Variables without edges under one row: costs fall nearly as bytes rise, so that the
/// priced row alone leaves a gap everywhere.
struct Knapsack {
  Problem problem;
  Wide optimum = 0;

  explicit Knapsack(uint64_t seed) {
    std::mt19937_64 random(seed);
    int64_t low = 0, high = 0;
    for (int v = 0; v < 40; ++v) {
      Variable variable;
      Usage use{0, 1, {}};
      for (int s = 0; s < 4; ++s) {
        use.bytes.push_back(20 + static_cast<int64_t>(random() % 200));
        variable.costs.push_back(300 - use.bytes[static_cast<size_t>(s)] +
                                 (s == 0 ? 0 : 17) + static_cast<int64_t>(random() % 5));
      }
      low += *std::min_element(use.bytes.begin(), use.bytes.end());
      high += *std::max_element(use.bytes.begin(), use.bytes.end());
      variable.usages.push_back(use);
      problem.variables.push_back(variable);
    }
    problem.memoryLimit = (low + high) / 2;
    optimum = least();
  }

  /// Dynamic programming over the bytes used so far.
  int64_t least() const {
    size_t limit = static_cast<size_t>(*problem.memoryLimit);
    std::vector<int64_t> now(limit + 1, forbidden);
    now[0] = 0;
    for (const Variable &v : problem.variables) {
      std::vector<int64_t> next(limit + 1, forbidden);
      for (size_t used = 0; used <= limit; ++used)
        for (size_t s = 0; s < v.costs.size() && now[used] < forbidden; ++s) {
          size_t sum = used + static_cast<size_t>(v.usages[0].bytes[s]);
          if (sum <= limit)
            next[sum] = std::min(next[sum], now[used] + v.costs[s]);
        }
      now = std::move(next);
    }
    return *std::min_element(now.begin(), now.end());
  }
};
} // namespace

TEST_CASE("knapsacks end at the optimum, with bounds that never exceed it") {
  int proved = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Knapsack knapsack(seed);
    SolveOptions options;
    options.workLimit = 400'000;
    double highest = 0;
    options.progress = [&](const Progress &p) {
      highest = std::max(highest, p.lowerBound);
    };
    auto solution = solve(knapsack.problem, options);
    INFO("seed " << seed);
    REQUIRE(!solution->choices.empty());
    REQUIRE(solution->cost >= knapsack.optimum);
    REQUIRE(solution->lowerBound <= knapsack.optimum);
    REQUIRE(highest <= static_cast<double>(knapsack.optimum) + 1e-6);
    proved += solution->status == Status::Optimal;
  }
  CHECK(proved >= 15);
}
