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
