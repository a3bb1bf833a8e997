//===- CutsTest.cpp - Rounded rows keep every answer ----------------------===//
#include "../../../lib/Solver/Cuts.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

using namespace partita;
using namespace partita::solver;

/// Six variables of three choices that use memory in some of three rows.
static Core randomCore(std::mt19937_64 &random) {
  Core core;
  int64_t largest = random() % 8 == 0 ? maxBytes / 8 : 5 + random() % 60;
  std::vector<int64_t> most(3);
  for (int v = 0; v < 6; ++v) {
    CoreVar &var = core.vars.emplace_back();
    var.cost.assign(3, 0);
    int begin = static_cast<int>(random() % 3);
    Member m{begin, begin + 1 + static_cast<int>(random() % (3 - begin)), {}};
    for (int s = 0; s < 3; ++s)
      m.bytes.push_back(static_cast<int64_t>(random() % largest));
    int64_t least = *std::min_element(m.bytes.begin(), m.bytes.end());
    for (int64_t &b : m.bytes)
      b -= least;
    for (int r = m.begin; r < m.end; ++r)
      most[r] += *std::max_element(m.bytes.begin(), m.bytes.end());
    var.members.push_back(std::move(m));
  }
  for (int64_t bytes : most)
    core.slack.push_back(static_cast<int64_t>(Wide{bytes} * (20 + random() % 60) / 100));
  core.lambda.assign(3, 0);
  return core;
}

/// What the mixture uses of a row.
static double use(const Core &core, const Mixture &mixture, int row) {
  double sum = 0;
  for (size_t v = 0; v < core.vars.size(); ++v)
    for (const Member &m : core.vars[v].members)
      if (m.begin <= row && row < m.end)
        for (size_t s = 0; s < m.bytes.size(); ++s)
          sum += mixture[v][s] * static_cast<double>(m.bytes[s]);
  return sum;
}

TEST_CASE("rounded rows keep every answer and refuse the mixture they are made for") {
  std::mt19937_64 random(1);
  int added = 0;
  for (int round = 0; round < 1500; ++round) {
    Core core = randomCore(random);
    // A mixture of a few answers and of choices that are none.
    Mixture mixture(core);
    for (int i = 0; i < 6; ++i) {
      std::vector<int> choices;
      for (int v = 0; v < 6; ++v)
        choices.push_back(static_cast<int>(random() % 3));
      mixture.add(choices, 1.0 / (i + 1));
    }
    Core with = core;
    int count = addCuts(with, mixture, 3, 10);
    REQUIRE(with.slack.size() == core.slack.size() + static_cast<size_t>(count));
    REQUIRE(with.lambda.size() == with.slack.size());
    added += count;
    for (int r = 3; r < 3 + count; ++r)
      REQUIRE(use(with, mixture, r) > static_cast<double>(with.slack[r]));
    for (int code = 0; code < 729; ++code) {
      std::vector<int> choices;
      for (int v = 0, rest = code; v < 6; ++v, rest /= 3)
        choices.push_back(rest % 3);
      if (core.fits(choices))
        REQUIRE(with.fits(choices));
    }
  }
  CHECK(added > 300);
}
