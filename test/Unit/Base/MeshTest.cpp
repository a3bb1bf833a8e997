//===- MeshTest.cpp - Axes, sub-axes, groups ------------------------------===//
#include "partita/Base/Layout/Mesh.h"

#include <catch2/catch.hpp>

using namespace partita;

TEST_CASE("a mesh parses, prints and refuses nonsense") {
  auto mesh = Mesh::parse("dp=2, tp=4");
  REQUIRE(mesh);
  CHECK(mesh->str() == "dp=2,tp=4");
  CHECK(mesh->numRanks() == 8);
  CHECK(mesh->find("tp") == 1);
  CHECK(mesh->find("pp") == -1);
  CHECK(Mesh::parse("")->numRanks() == 1);
  CHECK(Mesh::parse("dp").error().message ==
        "expected NAME=SIZE in the mesh \"dp\", got \"dp\"");
  CHECK(Mesh::parse("dp=2,").error().message == "the mesh \"dp=2,\" ends with a comma");
  CHECK(Mesh::parse("dp=0").error().message ==
        "the mesh axis dp has size 0; sizes are at least 1");
  CHECK(Mesh::parse("dp=2,dp=2").error().message == "the mesh axis dp appears twice");
  CHECK(Mesh::parse("2x=2").error().message ==
        "the mesh axis name \"2x\" is not an identifier");
  CHECK(!Mesh::parse("a=65536,b=65536"));
  CHECK(!Mesh::parse("a=99999999999999999999"));
}

TEST_CASE("coordinates and groups along sub-axes") {
  Mesh mesh = *Mesh::parse("a=2,b=12");
  AxisRef major{1, 1, 2}, middle{1, 2, 3}, minor{1, 6, 2};
  // Rank 12 + 9: a = 1, b = 9 = 1·6 + 1·2 + 1.
  CHECK(mesh.coordinate(21, mesh.whole(0)) == 1);
  CHECK(mesh.coordinate(21, mesh.whole(1)) == 9);
  CHECK(mesh.coordinate(21, major) == 1);
  CHECK(mesh.coordinate(21, middle) == 1);
  CHECK(mesh.coordinate(21, minor) == 1);
  CHECK(mesh.coordinate(16, middle) == 2);
  CHECK(mesh.coordinate(21, AxisList{minor, mesh.whole(0), middle}) == 1 * 6 + 1 * 3 + 1);
  CHECK(mesh.group(21, {major}) == std::vector<int64_t>{15, 21});
  CHECK(mesh.group(21, {minor, mesh.whole(0)}) == std::vector<int64_t>{8, 20, 9, 21});
  CHECK(mesh.group(21, {}) == std::vector<int64_t>{21});
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
    AxisList axes{middle, mesh.whole(0)};
    std::vector<int64_t> group = mesh.group(rank, axes);
    REQUIRE(group.size() == 6);
    CHECK(group[mesh.coordinate(rank, axes)] == rank);
    for (size_t i = 0; i < group.size(); ++i)
      CHECK(mesh.coordinate(group[i], axes) == static_cast<int64_t>(i));
  }
}

TEST_CASE("sub-axes print and parse") {
  Mesh mesh = *Mesh::parse("dp=2,tp=8");
  CHECK(mesh.str(AxisRef{1, 2, 4}) == "tp:(2)4");
  CHECK(mesh.str(AxisList{{0, 1, 2}, {1, 1, 8}}) == "{dp, tp}");
  CHECK(*mesh.parseAxis("tp:(2)4") == AxisRef{1, 2, 4});
  CHECK(*mesh.parseAxis(" tp ") == AxisRef{1, 1, 8});
  CHECK(mesh.parseAxis("tp:(2)3").error().message ==
        "the sub-axis \"tp:(2)3\" does not divide axis tp of size 8");
  CHECK(mesh.parseAxis("pp").error().message ==
        "the mesh \"dp=2,tp=8\" has no axis \"pp\"");
  CHECK(!mesh.parseAxis("tp:(0)2"));
  CHECK(!mesh.parseAxis("tp:2"));
}

TEST_CASE("overlap, primes and the canonical form") {
  CHECK(overlap(AxisRef{0, 1, 4}, AxisRef{0, 2, 4}));
  CHECK(!overlap(AxisRef{0, 1, 2}, AxisRef{0, 2, 4}));
  CHECK(!overlap(AxisRef{0, 1, 2}, AxisRef{1, 1, 2}));
  CHECK(overlap(AxisRef{0, 1, 2}, AxisRef{0, 1, 3}));
  // On 6: the halves and the parity are not independent coordinates.
  CHECK(overlap(AxisRef{0, 1, 2}, AxisRef{0, 3, 2}));
  CHECK(overlap(AxisRef{0, 3, 2}, AxisRef{0, 1, 2}));
  CHECK(primes({{0, 1, 12}}) == AxisList{{0, 1, 2}, {0, 2, 2}, {0, 4, 3}});
  CHECK(primes({{0, 2, 1}, {1, 1, 7}}) == AxisList{{1, 1, 7}});
  CHECK(canonical({{0, 1, 2}, {0, 2, 2}, {1, 1, 1}, {0, 4, 3}}) == AxisList{{0, 1, 12}});
  CHECK(canonical({{0, 2, 2}, {0, 1, 2}}) == AxisList{{0, 2, 2}, {0, 1, 2}});
}
