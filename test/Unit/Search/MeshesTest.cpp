//===- MeshesTest.cpp - The fastest plan over several meshes --------------===//
#include "RandomProgram.h"

#include "partita/Search/Search.h"

#include <catch2/catch.hpp>

#include <list>

using namespace partita;
using namespace partita::search;

namespace {
/// A random program on three meshes of four devices, one topology for all.
struct Case {
  explicit Case(uint64_t seed) {
    for (const char *text : {"a=4", "a=2,b=2", "a=1,b=4"}) {
      test::RandomProgram make(seed);
      const Mesh mesh = *Mesh::parse(text);
      graphs.push_back(make.make(5).build(mesh));
      if (placements.empty())
        topology = make.topology(*Mesh::parse("a=2,b=2"));
      placements.push_back(*Placement::create(graphs.back().mesh, topology));
      candidates.push_back({graphs.back(), placements.back(), {}});
    }
  }
  std::list<FlowGraph> graphs;
  Topology topology;
  std::list<Placement> placements;
  std::vector<Candidate> candidates;
};
} // namespace

TEST_CASE("over several meshes: the best of each mesh's own search") {
  size_t slower = 0, infeasible = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Case it(seed);
    SearchOptions options;
    if (seed % 3)
      options.memoryLimit = seed % 3 == 1 ? 400 : 1500;
    std::optional<Picos> fastest;
    std::vector<tl::expected<Found, NotFound>> alone;
    for (const Candidate &candidate : it.candidates) {
      alone.push_back(search::search(candidate.graph, candidate.placement, options));
      if (alone.back())
        fastest = std::min(fastest.value_or(alone.back()->cost.total()),
                           alone.back()->cost.total());
    }
    for (int threads : {1, 2}) {
      INFO("seed " << seed << ", threads " << threads);
      options.threads = threads;
      auto all = searchAll(it.candidates, options);
      REQUIRE(all.size() == alone.size());
      std::optional<Picos> best;
      for (size_t i = 0; i < all.size(); ++i) {
        if (all[i]) {
          REQUIRE(alone[i]);
          CHECK(all[i]->cost.total() == alone[i]->cost.total());
          best = std::min(best.value_or(all[i]->cost.total()), all[i]->cost.total());
          continue;
        }
        const NotFound &reason = all[i].error();
        slower += reason.isSlower;
        infeasible += !reason.isSlower;
        // Only what is slower than the best may be left out.
        if (reason.isSlower && alone[i])
          CHECK(alone[i]->cost.total() > *fastest);
        if (reason.isSlower && alone[i])
          CHECK(reason.bound.time <= alone[i]->cost.total());
        if (!reason.isSlower)
          CHECK(!alone[i]);
      }
      CHECK(best == fastest);
      if (!fastest && options.memoryLimit)
        CHECK(all[0].error().least);
    }
  }
  CHECK(slower > 20);
  CHECK(infeasible > 5);
}
