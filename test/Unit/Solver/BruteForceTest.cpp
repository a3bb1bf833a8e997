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
