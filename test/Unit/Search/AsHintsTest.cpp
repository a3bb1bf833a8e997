//===- AsHintsTest.cpp - Plans said in hints ------------------------------===//
#include "RandomProgram.h"

#include "partita/Rule/Decide/Decide.h"
#include "partita/Search/AsHints.h"
#include "partita/Search/Search.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::search;

static size_t differing(const FlowGraph &graph, const Decided &plan, const Hints &hints) {
  FlowGraph copy = graph;
  auto decision = decide(copy, ShardMode::SemiAuto, hints);
  if (!decision)
    return graph.ops.size();
  size_t count = 0;
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    const Strategy &a = plan.strategies[op], &b = decision->strategies[op];
    bool same = a.passing == b.passing;
    for (size_t f = 0; same && f < a.factors.size(); ++f) {
      same = a.factors[f].factors.size() == b.factors[f].factors.size();
      for (size_t i = 0; same && i < a.factors[f].factors.size(); ++i)
        same = a.factors[f].factors[i].axes == b.factors[f].factors[i].axes &&
               a.factors[f].factors[i].size == b.factors[f].factors[i].size;
    }
    count += !same && graph.ops[op].kind != FlowKind::Source;
  }
  return count;
}

TEST_CASE("hints lead to the plan that they were made of, and none can be left out") {
  size_t exact = 0, empty = 0, several = 0, all = 0;
  for (uint64_t seed = 0; seed < 80; ++seed) {
    INFO("seed " << seed);
    test::RandomProgram make(seed);
    Mesh mesh = *Mesh::parse(seed % 2 ? "a=4" : "a=2,b=2");
    FlowGraph graph = make.make(5).build(mesh);
    Topology topology = make.topology(mesh);
    Placement placement = *Placement::create(mesh, topology);
    auto found = search::search(graph, placement, {});
    REQUIRE(found);
    auto hints = asHints(graph, placement, found->plan);
    if (!hints)
      continue;
    ++all;
    // The file says what the hints say.
    auto parsed = parseJson(hints->json, "hints");
    REQUIRE(parsed);
    auto read = Hints::parse(*parsed);
    REQUIRE(read);
    REQUIRE(read->tensors.size() == hints->hints.tensors.size());
    CHECK(differing(graph, found->plan, *read) == hints->differing);
    exact += hints->differing == 0;
    empty += read->tensors.empty();
    several += read->tensors.size() > 1;
    for (size_t i = 0; i < read->tensors.size(); ++i) {
      Hints fewer = *read;
      fewer.tensors.erase(fewer.tensors.begin() + static_cast<int64_t>(i));
      CHECK(differing(graph, found->plan, fewer) > hints->differing);
    }
  }
  CHECK(all > 60);
  CHECK(exact > 30);
  CHECK(several > 10);
  CHECK(empty < all / 2);
}
