//===- PlacementTest.cpp - Spans against the devices they mean ------------===//
#include "partita/Topology/Placement.h"

#include <catch2/catch.hpp>
#include <set>

using namespace partita;

static Topology cluster(std::vector<int64_t> sizes) {
  Topology topology;
  for (int64_t size : sizes)
    topology.levels.push_back(
        {"l" + std::to_string(topology.levels.size()), size, 1e9, 1e-6});
  return topology;
}

/// The most units of level `level` that any group along `axes` reaches.
static int64_t unitsReached(const Mesh &mesh, const Topology &topology,
                            const AxisList &axes, size_t level) {
  int64_t most = 0;
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
    std::set<int64_t> units;
    for (int64_t member : mesh.group(rank, axes))
      units.insert(member / topology.unit(level));
    most = std::max(most, static_cast<int64_t>(units.size()));
  }
  return most;
}

/// Every span is a factorisation of the group; where exact, members outside a level are
/// exactly the units reached; else at least as many.
static void checkSpan(const Mesh &mesh, const Topology &topology, const AxisList &axes,
                      int64_t &exact, int64_t &bounded) {
  Span span = Placement::create(mesh, topology)->span(axes);
  CHECK(span.size() == product(axes));
  (span.exact ? exact : bounded) += 1;
  for (size_t level = 0; level < topology.levels.size(); ++level) {
    int64_t outside = 1;
    for (size_t l = level + 1; l < topology.levels.size(); ++l)
      outside *= span.members[l];
    int64_t reached = unitsReached(mesh, topology, axes, level);
    INFO(mesh.str() << " " << mesh.str(axes) << " level " << level);
    if (span.exact)
      CHECK(outside == reached);
    else
      CHECK(outside >= reached);
  }
}

TEST_CASE("spans: every pair of axes of every mesh over every row of levels") {
  int64_t exact = 0, bounded = 0;
  for (std::vector<int64_t> sizes : {std::vector<int64_t>{4, 3}, {2, 6}, {12}, {3, 2, 2}})
    for (const char *text : {"a=12", "a=2,b=6", "a=6,b=2", "a=3,b=4", "a=4,b=3",
                             "a=2,b=3,c=2", "a=3,b=2,c=2", "a=2,b=2,c=3"}) {
      Mesh mesh = *Mesh::parse(text);
      Topology topology = cluster(sizes);
      AxisList digits = primes(mesh.all());
      for (size_t mask = 1; mask < size_t(1) << digits.size(); ++mask) {
        AxisList axes;
        for (size_t i = 0; i < digits.size(); ++i)
          if (mask >> i & 1)
            axes.push_back(digits[i]);
        checkSpan(mesh, topology, axes, exact, bounded);
      }
    }
  CHECK(exact > 2 * bounded);
  CHECK(bounded > 0);
}

TEST_CASE("spans: an axis of 6 over 4 and 3") {
  Mesh mesh = *Mesh::parse("a=2,b=6");
  Topology topology = cluster({4, 3});
  Placement placement = *Placement::create(mesh, topology);
  Span b = placement.span(mesh.whole(1));
  CHECK(b.members[0] == 2);
  CHECK(b.members[1] == 3);
  CHECK_FALSE(b.exact);
  // All devices are all devices, whatever the axes.
  Span all = placement.span(mesh.all());
  CHECK(all.members[0] == 4);
  CHECK(all.members[1] == 3);
  CHECK(all.exact);
  CHECK(all.outermost() == 1);
  CHECK(placement.span(AxisList{}).outermost() == -1);
}

TEST_CASE("spans: a mesh has one rank per device") {
  Mesh mesh = *Mesh::parse("dp=2,tp=4");
  Topology topology = cluster({4, 4});
  auto placement = Placement::create(mesh, topology);
  REQUIRE_FALSE(placement);
  CHECK(placement.error().message ==
        "the mesh dp=2,tp=4 has 8 ranks, the cluster 16 devices (l0 4 × l1 4)");
}

TEST_CASE("spans: a mesh without a cluster has its axes as levels") {
  Mesh mesh = *Mesh::parse("dp=2,one=1,tp=3");
  Topology topology = topologyOfMesh(mesh, {}, {"link", 1, 5e9, 2e-6}, {});
  REQUIRE(topology.levels.size() == 2);
  CHECK(topology.levels[0].name == "tp");
  CHECK(topology.levels[0].size == 3);
  CHECK(topology.levels[1].name == "dp");
  CHECK(topology.levels[1].bandwidth == 5e9);
  Span span = Placement::create(mesh, topology)->span(mesh.whole(0));
  CHECK(span.members[0] == 1);
  CHECK(span.members[1] == 2);
}
