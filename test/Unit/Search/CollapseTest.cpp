//===- CollapseTest.cpp - Tied variables as one ---------------------------===//
#include "../../../lib/Search/Collapse.h"
#include "../Solver/RandomProblem.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::search;
using namespace partita::solver;

/// Layers of a step: forward ops one after the other, each with a weight that is there
/// all the time, then their backward ops in the other order, until which what a forward
/// op makes is kept. Gradients stay to the end, buffers of edges while two ops run.
static Problem stepOf(int64_t layers, std::mt19937_64 &random) {
  auto table = [&](size_t entries, uint64_t most) {
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < entries; ++i)
      numbers.push_back(static_cast<int64_t>(random() % most));
    return CostTable(std::move(numbers));
  };
  CostTable weight = table(3, 50), kept = table(3, 40), gradient = table(3, 60),
            scratch = table(3, 90), buffer = table(9, 70), moved = table(9, 20),
            turned = table(9, 20);
  std::vector<int64_t> forwardCosts{4, 2, 7}, backwardCosts{1, 9, 3};
  Problem problem;
  Class forward, backward;
  const int64_t end = 4 * layers;
  for (int64_t l = 0; l < layers; ++l) {
    int64_t runs = 2 * l, returns = end - 2 * l - 2;
    forward.copies.push_back({static_cast<uint32_t>(problem.variables.size())});
    problem.variables.push_back(
        {forwardCosts,
         {{0, end, weight}, {runs, returns + 1, kept}, {runs, runs + 1, scratch}}});
    backward.copies.push_back({static_cast<uint32_t>(problem.variables.size())});
    problem.variables.push_back({backwardCosts, {{returns, end, gradient}}});
  }
  for (uint32_t l = 0; l < layers; ++l) {
    problem.edges.push_back({2 * l, 2 * l + 1, turned, {}});
    if (l == 0)
      continue;
    problem.edges.push_back({2 * l - 2, 2 * l, moved, {{2 * l - 1, 2 * l + 1, buffer}}});
    problem.edges.push_back({2 * l + 1, 2 * l - 1, moved, {}});
  }
  problem.classes = {std::move(forward), std::move(backward)};
  problem.memoryLimit = 1000;
  return problem;
}

/// An answer of the collapsed problem costs and needs what it does in the original.
static void checkAnswers(const Problem &problem, std::mt19937_64 &random) {
  Collapsed collapsed(problem);
  for (int i = 0; i < 20; ++i) {
    std::vector<uint32_t> choices;
    for (const Variable &variable : collapsed.problem.variables)
      choices.push_back(static_cast<uint32_t>(random() % variable.costs.size()));
    auto here = priceOf(collapsed.problem, choices),
         there = priceOf(problem, collapsed.expand(choices));
    REQUIRE(here.has_value() == there.has_value());
    if (!here)
      continue;
    CHECK(here->cost == there->cost);
    CHECK(here->peakBytes == there->peakBytes);
    // Fewer moments never need more.
    if (collapsed.steps() > 1) {
      int64_t step = static_cast<int64_t>(random()) % collapsed.steps();
      auto some = priceOf(collapsed.withMemory({std::abs(step)}), choices);
      REQUIRE(some);
      CHECK(some->cost == here->cost);
      CHECK(some->peakBytes <= here->peakBytes);
      CHECK((some->peakBytes == here->peakBytes || std::abs(step) != here->peakTime));
    }
  }
}

TEST_CASE("An answer of tied variables has the cost and the peak of all of them") {
  std::mt19937_64 random(5);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Problem problem = test::LayeredProblem(seed).make();
    for (Class &tied : problem.classes)
      tied.runs = 1;
    checkAnswers(problem, random);
  }
  for (int64_t layers : {1, 2, 3, 7, 40}) {
    CAPTURE(layers);
    for (int i = 0; i < 10; ++i)
      checkAnswers(stepOf(layers, random), random);
  }
}

TEST_CASE("How many moments decide does not depend on the number of layers") {
  std::mt19937_64 random(1);
  Collapsed few(stepOf(8, random)), many(stepOf(1024, random));
  CHECK(few.steps() == many.steps());
  CHECK(few.problem.variables.size() == 2);
  CHECK(many.problem.variables.size() == 2);
  CHECK(few.problem.edges.size() == many.problem.edges.size());
}
