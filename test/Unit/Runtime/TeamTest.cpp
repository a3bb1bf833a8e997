//===- TeamTest.cpp -------------------------------------------------------===//
#include "partita/Runtime/Team.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

using namespace partita::runtime;

TEST_CASE("parts cover all units, none twice, and differ by one at most") {
  for (int64_t units : {1, 2, 7, 64, 1000})
    for (int parts = 1; parts <= units && parts <= 70; ++parts) {
      int64_t next = 0;
      for (int part = 0; part < parts; ++part) {
        REQUIRE(partBegin(units, part, parts) == next);
        next = partBegin(units, part + 1, parts);
        int64_t size = next - partBegin(units, part, parts);
        CHECK((size == units / parts || size == units / parts + 1));
      }
      CHECK(next == units);
    }
  // No overflow where a table says as many units as there can be.
  CHECK(partBegin(INT64_MAX, 3, 3) == INT64_MAX);
}

TEST_CASE("every part runs once, whatever the size of the team") {
  for (int team : {1, 2, 3}) {
    setTeamSize(team);
    CHECK(teamSize() == team);
    for (int parts : {0, 1, 2, 5}) {
      std::array<std::atomic<int>, 5> runs{};
      runParts(parts, [&](int part) { ++runs[static_cast<size_t>(part)]; });
      for (int part = 0; part < 5; ++part)
        CHECK(runs[static_cast<size_t>(part)] == (part < parts));
    }
  }
  setTeamSize(1);
}

TEST_CASE("ranks in threads have teams of their own") {
  std::atomic<int> wrong = 0;
  auto rank = [&](int team) {
    setTeamSize(team);
    for (int round = 0; round < 200; ++round) {
      std::atomic<int> runs = 0;
      runParts(4, [&](int) { ++runs; });
      wrong += runs != 4 || teamSize() != team;
    }
  };
  std::thread first(rank, 2), second(rank, 3);
  first.join();
  second.join();
  CHECK(wrong == 0);
}

TEST_CASE("the cores are divided by the ranks, and nobody gets none") {
  CHECK(threadsPerRank(1) >= 1);
  CHECK(threadsPerRank(2) == std::max(1, threadsPerRank(1) / 2));
  CHECK(threadsPerRank(1'000'000) == 1);
}
