//===- PartTest.cpp - Parts of a topology, device by device ---------------===//
#include "partita/Topology/Part.h"

#include <catch2/catch.hpp>
#include <random>

using namespace partita;

static Topology cluster(const std::vector<int64_t> &sizes) {
  Topology topology;
  for (int64_t size : sizes)
    topology.levels.push_back(
        {"l" + std::to_string(topology.levels.size()), size, 1e9, 1e-6});
  return topology;
}

static std::string text(const Topology &topology) {
  std::string result;
  for (const LinkLevel &level : topology.levels)
    result += (result.empty() ? "" : " ") + level.name + ":" + std::to_string(level.size);
  return result;
}

TEST_CASE("parts of a topology") {
  Topology servers = cluster({8, 2});
  CHECK(text(partOf(servers, 8, 8)) == "l0:8");
  CHECK(text(partOf(servers, 4, 4)) == "l0:4");
  CHECK(text(partOf(servers, 4, 8)) == "l0:4 l1:2");
  CHECK(text(partOf(servers, 1, 3)) == "l0:3");
  CHECK(text(partOf(servers, 7, 2)) == "l1:2");
  CHECK(text(partOf(servers, 0, 16)) == "l0:8 l1:2");
  CHECK(text(partOf(servers, 3, 1)).empty());
}

TEST_CASE("devices of a part are never nearer than they are") {
  std::mt19937 random(3);
  int same = 0, all = 0;
  for (int k = 0; k < 500; ++k) {
    std::vector<int64_t> sizes;
    for (size_t l = 0; l < 1 + random() % 3; ++l)
      sizes.push_back(1 + static_cast<int64_t>(random() % 6));
    Topology whole = cluster(sizes);
    int64_t count = 1 + static_cast<int64_t>(random()) % whole.numDevices();
    int64_t first = static_cast<int64_t>(random()) % (whole.numDevices() - count + 1);
    Topology part = partOf(whole, first, count);
    REQUIRE(part.numDevices() == count);
    for (int64_t a = 0; a < count; ++a)
      for (int64_t b = 0; b < a; ++b) {
        size_t level = levelBetween(whole, first + a, first + b);
        std::string priced = part.levels[levelBetween(part, a, b)].name;
        INFO(text(whole) << ", from " << first << ": " << text(part));
        CHECK(priced >= whole.levels[level].name);
        same += priced == whole.levels[level].name;
        ++all;
      }
  }
  CHECK(same > all / 2);
}
