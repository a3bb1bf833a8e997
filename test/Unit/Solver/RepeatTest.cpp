//===- RepeatTest.cpp - Equal parts of a problem are solved once ----------===//
#include "partita/Solver/Solve.h"

#include <catch2/catch.hpp>
#include <random>

using namespace partita;
using namespace partita::solver;

namespace {
/// A chain of equal blocks between differing ends. In a block every variable is joined to
/// the one before, the last also to the first; only its last result lives on, to the end
/// of the next block.
struct Chain {
  int blocks, length, choices;
  uint64_t seed;
  /// Equal tables as copies of one, or every one by itself.
  bool shared = true;

  Problem make() const {
    Problem problem;
    TablePool pool;
    int64_t low = 0, high = 0;
    for (int b = 0; b < blocks; ++b) {
      std::mt19937_64 random(b == 0 ? seed + 1 : b == blocks - 1 ? seed + 2 : seed);
      auto table = [&] {
        std::vector<int64_t> costs;
        for (int i = 0; i < choices * choices; ++i)
          costs.push_back(random() % 12 == 0 ? forbidden
                                             : static_cast<int64_t>(random() % 50));
        return shared ? pool.add(std::move(costs)) : CostTable(std::move(costs));
      };
      int base = b * length;
      for (int i = 0; i < length; ++i) {
        Variable v;
        bool last = i == length - 1;
        v.usages.push_back({base + i, base + (last ? 2 * length : length), {}});
        for (int s = 0; s < choices; ++s) {
          v.costs.push_back(static_cast<int64_t>(random() % 30));
          v.usages[0].bytes.push_back(static_cast<int64_t>(random() % 20));
        }
        if (b == 1 || (b == 0 && i == length - 1)) {
          low += *std::min_element(v.usages[0].bytes.begin(), v.usages[0].bytes.end());
          high += *std::max_element(v.usages[0].bytes.begin(), v.usages[0].bytes.end());
        }
        problem.variables.push_back(std::move(v));
        uint32_t now = static_cast<uint32_t>(base + i);
        if (now > 0)
          problem.edges.push_back({now - 1, now, table(), {}});
        if (last && length > 2)
          problem.edges.push_back({static_cast<uint32_t>(base), now, table(), {}});
      }
    }
    problem.memoryLimit = low + (high - low) * 2 / 5 + 1;
    return problem;
  }
};
} // namespace

/// The least cost by enumeration, or -1.
static Wide enumerate(const Problem &problem) {
  std::vector<uint32_t> choices(problem.variables.size());
  Wide least = -1;
  for (;;) {
    if (auto price = verify(problem, choices);
        price && (least < 0 || price->cost < least))
      least = price->cost;
    size_t v = 0;
    while (v < choices.size() && ++choices[v] == problem.variables[v].costs.size())
      choices[v++] = 0;
    if (v == choices.size())
      return least;
  }
}

TEST_CASE("chains of equal blocks equal enumeration, tables shared or not") {
  int feasible = 0, infeasible = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    Chain chain{5, 2 + static_cast<int>(seed % 2), seed % 2 ? 2 : 3, seed * 10};
    if (seed % 2 == 0)
      chain.blocks = 4;
    Problem problem = chain.make();
    Wide truth = enumerate(problem);
    chain.shared = false;
    INFO("seed " << seed);
    for (const Problem &p : {problem, chain.make()}) {
      auto solution = solve(p);
      REQUIRE(solution);
      if (truth < 0) {
        REQUIRE(solution->status == Status::Infeasible);
        continue;
      }
      REQUIRE(solution->status == Status::Optimal);
      REQUIRE(toString(solution->cost) == toString(truth));
    }
    ++(truth < 0 ? infeasible : feasible);
  }
  CHECK(feasible > 60);
  CHECK(infeasible > 5);
}

TEST_CASE("the work for a chain of equal blocks hardly grows with its length") {
  Chain chain{8, 10, 5, 5};
  auto few = solve(chain.make());
  chain.blocks = 256;
  Problem longer = chain.make();
  auto many = solve(longer);
  REQUIRE(few->status == Status::Optimal);
  REQUIRE(many->status == Status::Optimal);
  CHECK(many->work < few->work * 6 / 5);
  // The same with every table by itself: nothing is known to be equal then.
  chain.blocks = 8;
  chain.shared = false;
  auto apart = solve(chain.make());
  CHECK(toString(apart->cost) == toString(few->cost));
}
