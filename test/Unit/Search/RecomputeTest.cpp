//===- RecomputeTest.cpp - Stretches that a backward pass computes again --===//
#include "partita/Search/Recompute.h"

#include <catch2/catch.hpp>

#include <limits>
#include <random>

using namespace partita::search;

namespace {
constexpr int64_t none = std::numeric_limits<int64_t>::max();

/// Every way, one after the other.
struct Enumeration {
  const StretchProblem &problem;
  int64_t limit;
  Picos fastest = none;
  int64_t leastPeak = none;

  void from(int32_t unit, int64_t kept, Picos time, int64_t peak) {
    if (unit == problem.units) {
      leastPeak = std::min(leastPeak, peak);
      if (peak <= limit)
        fastest = std::min(fastest, time);
      return;
    }
    for (const Stretch &stretch : problem.stretches)
      if (stretch.begin == unit)
        from(stretch.end, kept + stretch.kept, time + stretch.time,
             std::max(peak, kept + stretch.peak));
  }
};

StretchProblem randomProblem(std::mt19937 &random) {
  auto below = [&](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
  };
  StretchProblem problem;
  problem.units = 1 + below(7);
  for (int32_t u = 0; u < problem.units; ++u) {
    int64_t full = below(20);
    problem.stretches.push_back({u, u + 1, false, full, full + below(20), 0});
    for (int32_t end = u + 1; end <= problem.units; ++end)
      if (below(3) != 0)
        problem.stretches.push_back({u, end, true, below(6), below(40), 1 + below(9)});
  }
  return problem;
}
} // namespace

TEST_CASE("the cheapest way that fits is that of an enumeration") {
  std::mt19937 random(7);
  int fits = 0, repeats = 0;
  for (int k = 0; k < 400; ++k) {
    StretchProblem problem = randomProblem(random);
    for (int64_t limit : {20, 35, 50, 80}) {
      Enumeration all{problem, limit};
      all.from(0, 0, 0, 0);
      auto way = cheapestWay(problem, limit);
      REQUIRE(way.has_value() == (all.fastest != none));
      CHECK(leastPeak(problem) == all.leastPeak);
      if (!way)
        continue;
      ++fits;
      repeats += way->time > 0;
      CHECK(way->proved);
      CHECK(way->time == all.fastest);
      int32_t unit = 0;
      int64_t kept = 0, peak = 0;
      Picos time = 0;
      for (const Stretch &stretch : way->stretches) {
        CHECK(stretch.begin == unit);
        unit = stretch.end;
        peak = std::max(peak, kept + stretch.peak);
        kept += stretch.kept;
        time += stretch.time;
      }
      CHECK(unit == problem.units);
      CHECK(kept == way->kept);
      CHECK(peak == way->peak);
      CHECK(peak <= limit);
      CHECK(time == way->time);
    }
  }
  CHECK(fits > 300);
  CHECK(repeats > 100);
}

TEST_CASE("equal layers leave few ways open") {
  // Of 96 layers, each of which may be kept, or computed again in one of three ways.
  StretchProblem problem;
  problem.units = 96;
  for (int32_t u = 0; u < problem.units; ++u) {
    problem.stretches.push_back({u, u + 1, false, 100, 140, 0});
    problem.stretches.push_back({u, u + 1, true, 60, 140, 1});
    problem.stretches.push_back({u, u + 1, true, 30, 145, 4});
    problem.stretches.push_back({u, u + 1, true, 10, 150, 9});
  }
  auto way = cheapestWay(problem, 5000);
  REQUIRE(way);
  CHECK(way->proved);
  // 0.025 of time a byte, 0.1, 0.25: all in the first way, half of them in the second.
  CHECK(way->kept <= 5000);
  CHECK(way->time >= 96 + (96 * 60 - 5000) / 10);
}

TEST_CASE("deep models of many units: no way is left out that may be the cheapest") {
  // 96 layers of twelve units: each is kept, or one to six neighbours are repeated.
  std::mt19937 random(3);
  auto below = [&](unsigned n) { return static_cast<int64_t>(random() % n); };
  constexpr int32_t perLayer = 12, layers = 96;
  std::vector<int64_t> bytes, times;
  for (int32_t u = 0; u < perLayer; ++u) {
    bytes.push_back(1000 + below(9000));
    times.push_back(100 + below(3000));
  }
  StretchProblem problem;
  problem.units = perLayer * layers;
  int64_t all = 0;
  for (int32_t u = 0; u < problem.units; ++u) {
    int64_t sum = 0, time = 0;
    all += bytes[static_cast<size_t>(u % perLayer)];
    problem.stretches.push_back({u, u + 1, false,
                                 bytes[static_cast<size_t>(u % perLayer)],
                                 bytes[static_cast<size_t>(u % perLayer)] + 500, 0});
    for (int32_t end = u + 1; end <= u + 6 && end <= (u / perLayer + 1) * perLayer;
         ++end) {
      sum += bytes[static_cast<size_t>((end - 1) % perLayer)];
      time += times[static_cast<size_t>((end - 1) % perLayer)];
      problem.stretches.push_back({u, end, true,
                                   bytes[static_cast<size_t>((end - 1) % perLayer)] / 2,
                                   sum + 500, time});
    }
  }
  int64_t least = leastPeak(problem);
  CHECK(!cheapestWay(problem, least - 1));
  for (int64_t limit : {least, least + (all - least) / 4, all - all / 10}) {
    auto way = cheapestWay(problem, limit);
    REQUIRE(way);
    CHECK(way->peak <= limit);
    CHECK(way->proved);
  }
}
