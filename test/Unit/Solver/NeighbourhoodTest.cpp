//===- NeighbourhoodTest.cpp - Improving an answer piece by piece ---------===//
#include "../../../lib/Solver/Neighbourhood.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::solver;

TEST_CASE("A neighbourhood without a choice is searched to its end") {
  Core core;
  for (int v = 0; v < 3; ++v)
    core.vars.emplace_back().cost.assign(1, v);
  Neighbourhood search(core, {0, 0, 0}, 1);
  Budget budget;
  for (size_t round = 1; round <= 5; ++round) {
    CHECK(!search.round(budget, 2));
    CHECK(search.tried() >= round);
  }
  CHECK(search.answerCost() == 3);
}
