//===- RunnersUpTest.cpp - The best plans without a conversion ------------===//
#include "RandomProgram.h"

#include "partita/Search/Compare.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::search;

TEST_CASE("without a conversion of the best plan no plan is faster, and it is not made") {
  size_t others = 0, slower = 0, none = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    INFO("seed " << seed);
    test::RandomProgram make(seed);
    Mesh mesh = *Mesh::parse(seed % 2 ? "a=4" : "a=2,b=2");
    FlowGraph graph = make.make(5).build(mesh);
    Topology topology = make.topology(mesh);
    Placement placement = *Placement::create(mesh, topology);
    SearchOptions options;
    if (seed % 4 == 0) {
      options.memoryLimit = 1200;
      options.model.smallSource = options.model.leastGathered = 1;
    }
    auto found = search::search(graph, placement, options);
    if (!found)
      continue;
    REQUIRE(found->proved);
    Timing timing(graph, placement);
    auto reshards = costliestReshards(timing, found->plan, 5);
    auto model = modelOf(timing, options);
    REQUIRE(model);
    auto other = runnersUp(timing, *model, options, reshards);
    REQUIRE(other.size() == reshards.size());
    for (size_t i = 0; i < other.size(); ++i) {
      if (!other[i]) {
        ++none;
        continue;
      }
      ++others;
      CHECK(other[i]->time >= found->cost.total());
      CHECK(other[i]->lowerBound >= found->bound.time);
      slower += other[i]->time > found->cost.total();
      for (const std::string &text : other[i]->instead)
        CHECK(text != "from " + reshards[i].from + " to " + reshards[i].to);
    }
  }
  CHECK(others > 60);
  CHECK(slower > 30);
  CHECK(none < others / 2);
}
