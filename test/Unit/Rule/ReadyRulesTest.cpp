//===- ReadyRulesTest.cpp - Hints found by structure ----------------------===//
#include "FlowProgram.h"

#include "partita/Base/Files/Json.h"
#include "partita/Rule/Decide/Decide.h"
#include "partita/Rule/Decide/ReadyRules.h"

#include <catch2/catch.hpp>

using namespace partita;

static const std::vector<LinearSet> sums{{ReduceKind::Sum, {0, 1}}};

/// A layer of attention with `kv` heads of keys and values for 4 heads of queries, and an
/// MLP, around a residual that nothing normalizes.
static Program layer(int64_t heads = 4) {
  Program p;
  p.argument("x", {2, 6, 32});
  for (std::string it : {"q", "k", "v"}) {
    p.source("w" + it, {32, heads * 8});
    p.contract(it, "x", "w" + it, "b s d, d n -> b s n");
    p.reshape(it + " heads", it, {2, 6, heads, 8});
  }
  p.contract("scores", "q heads", "k heads", "b s h w, b t h w -> b h s t");
  p.rows("softmax", "scores");
  p.contract("context", "softmax", "v heads", "b h s t, b t h w -> b s h w");
  p.reshape("joined", "context", {2, 6, heads * 8});
  p.source("wo", {heads * 8, 32});
  p.contract("out", "joined", "wo", "b s n, n d -> b s d");
  p.elementwise("residual", {"x", "out"}, sums);
  p.source("wup", {32, 128});
  p.contract("up", "residual", "wup", "b s d, d n -> b s n");
  p.elementwise("gelu", {"up"});
  p.source("wdown", {128, 32});
  p.contract("down", "gelu", "wdown", "b s n, n d -> b s d");
  p.elementwise("last", {"residual", "down"}, sums);
  p.result("last");
  return p;
}

TEST_CASE("blocks: heads of attention, columns of an MLP, and nothing else") {
  FlowGraph graph = layer().build(*Mesh::parse("tp=2"));
  graph.finalize();
  auto blocks = findBlocks(graph);
  REQUIRE(blocks.size() == 2);
  CHECK(graph.ops[blocks[0].row].name == "out");
  CHECK(blocks[0].isAttention);
  CHECK(blocks[0].columns.size() == 3);
  CHECK(blocks[0].scores.size() == 2);
  // The heads may be split, their width may not.
  CHECK(blocks[0].usable == std::vector<bool>{true, false});
  CHECK(graph.ops[blocks[1].row].name == "down");
  CHECK_FALSE(blocks[1].isAttention);
  CHECK(graph.ops[*blocks[1].columns.begin()].name == "up");
}

TEST_CASE("blocks: a chain of layers is taken in pairs, a product alone is none") {
  Program p;
  p.argument("x", {4, 8});
  std::string last = "x";
  for (std::string n : {"1", "2", "3", "4"}) {
    p.source("w" + n, {8, 8});
    p.contract("fc" + n, last, "w" + n, "m k, k n -> m n");
    last = n == "2" ? "fc2" : "act" + n;
    if (n != "2")
      p.elementwise(last, {"fc" + n});
  }
  p.result(last);
  FlowGraph graph = p.build(*Mesh::parse("tp=2"));
  graph.finalize();
  auto blocks = findBlocks(graph);
  // fc2 and fc3 have no activation between them.
  REQUIRE(blocks.size() == 2);
  CHECK(graph.ops[blocks[0].row].name == "fc2");
  CHECK(graph.ops[blocks[1].row].name == "fc4");
}

static std::string messageOf(Program p, const std::string &mesh,
                             const std::string &rule) {
  FlowGraph graph = p.build(*Mesh::parse(mesh));
  graph.finalize();
  auto hints = readyHints(graph, rule);
  return hints ? "" : hints.error().message;
}

TEST_CASE("megatron: the hints as a file lead to two reductions") {
  FlowGraph graph = layer().build(*Mesh::parse("dp=2,tp=2"));
  graph.finalize();
  auto hints = readyHints(graph, "megatron");
  REQUIRE(hints);
  CHECK(hints->json() == "{\"nodes\": {\n"
                         "  \"out\": {\"in\":[[null,null,\"tp\"]]},\n"
                         "  \"down\": {\"in\":[[null,null,\"tp\"]]}\n"
                         "}}\n");
  auto read = parseJson(hints->json(), "written");
  REQUIRE(read);
  auto again = Hints::parse(*read);
  REQUIRE(again);
  auto decision = decide(graph, ShardMode::SemiAuto, *again);
  REQUIRE(decision);
  for (std::string name : {"q", "scores", "softmax", "context", "out", "up", "down"})
    for (size_t i = 0; i < graph.ops.size(); ++i)
      if (graph.ops[i].name == name)
        CHECK(graph.mesh.str(decision->strategies[i].axes()) == "{tp}");
  // Two all-reduces of 2·6·32 elements: half of each goes and comes, twice.
  CHECK(decision->price.receivedBytes == 2 * 2 * 6 * 32 * 4);
}

TEST_CASE("megatron: what cannot be is said") {
  CHECK(messageOf(layer(), "tp=8", "megatron") ==
        "rule 'megatron': the block of 'out' has 4 heads, which cannot be split by {tp}");
  CHECK(messageOf(layer(), "tp=2", "megatron:dp") ==
        "rule 'megatron:dp': the mesh \"tp=2\" has no axis \"dp\"");
  CHECK(messageOf(layer(), "tp=2", "fsdp:tp") ==
        "rule 'fsdp:tp': the batch is split over all axes; leave ':tp' out");
  Program none;
  none.argument("x", {4, 8});
  none.elementwise("y", {"x"});
  none.result("y");
  CHECK(
      messageOf(none, "tp=2", "megatron") ==
      "rule 'megatron': the model has no attention block (product, softmax, product) and "
      "no MLP (products around an activation)");
}

TEST_CASE("fsdp: the batch over all axes, weights in parts") {
  FlowGraph graph = layer().build(*Mesh::parse("dp=2"));
  graph.finalize();
  auto hints = readyHints(graph, "fsdp");
  REQUIRE(hints);
  CHECK(hints->json() == "{\"tensors\": {\n  \"x\": [\"dp\",null,null]\n},\n"
                         " \"kept\": {\n  \"*\": \"dp\"\n}}\n");
  auto decision = decide(graph, ShardMode::SemiAuto, *hints);
  REQUIRE(decision);
  CHECK(decision->servings.size() == 6);
  // Every rank lacks half of every weight.
  CHECK(decision->price.receivedBytes == (4 * 32 * 32 + 2 * 32 * 128) * 4 / 2);
}

/// A layer and the head of a language model behind it.
static Program withHead(int64_t vocabulary) {
  Program p = layer();
  p.source("whead", {32, vocabulary});
  p.contract("head", "last", "whead", "b s d, d v -> b s v");
  return p;
}

TEST_CASE("megatron: the head by its vocabulary, which may be uneven") {
  Program p = withHead(503);
  p.result("head");
  FlowGraph graph = p.build(*Mesh::parse("tp=4"));
  graph.finalize();
  auto hints = readyHints(graph, "megatron");
  REQUIRE(hints);
  REQUIRE(hints->nodes.size() == 3);
  CHECK(hints->nodes[2].glob == "head");
  auto decision = decide(graph, ShardMode::SemiAuto, *hints);
  REQUIRE(decision);
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (graph.ops[i].name == "head")
      CHECK(resultLayout(graph.ops[i].rule, decision->strategies[i], 0).str(graph.mesh) ==
            "[{2}, {6}, {503/504: tp}]");
  // The two all-reduces of the layer, and nothing for the head.
  CHECK(decision->price.receivedBytes == 2 * 2 * 3 * (2 * 6 * 32) * 4 / 4);
}

TEST_CASE("megatron: what is no vocabulary stays whole, as one that a softmax needs") {
  SECTION("as many columns as it sums over") {
    Program p = withHead(32);
    p.result("head");
    FlowGraph graph = p.build(*Mesh::parse("tp=2"));
    graph.finalize();
    CHECK(findHeads(graph, findBlocks(graph)).empty());
  }
  SECTION("a softmax behind it") {
    Program p = withHead(64);
    p.rows("probabilities", "head");
    p.result("probabilities");
    FlowGraph graph = p.build(*Mesh::parse("tp=2"));
    graph.finalize();
    CHECK(findHeads(graph, findBlocks(graph)).empty());
  }
}

/// Two layers of each of `count` experts, which are one tensor.
static Program experts(int64_t count) {
  Program p;
  p.argument("x", {count, 6, 8});
  p.source("wi", {count, 8, 32});
  p.contract("up", "x", "wi", "e t d, e d f -> e t f");
  p.elementwise("act", {"up"});
  p.source("wo", {count, 32, 8});
  p.contract("down", "act", "wo", "e t f, e f d -> e t d");
  p.result("down");
  return p;
}

TEST_CASE("megatron-ep: experts whole, their columns not") {
  FlowGraph graph = experts(4).build(*Mesh::parse("dp=2,ep=2"));
  graph.finalize();
  CHECK(findExperts(graph).size() == 2);
  auto hints = readyHints(graph, "megatron-ep:ep");
  REQUIRE(hints);
  CHECK(hints->json() == "{\"nodes\": {\n"
                         "  \"up\": {\"in\":[null,[\"ep\",null,null]]},\n"
                         "  \"down\": {\"in\":[null,[\"ep\",null,null]]}\n"
                         "}}\n");
  auto decision = decide(graph, ShardMode::SemiAuto, *hints);
  REQUIRE(decision);
  CHECK(decision->price.receivedBytes == 0);
  CHECK(messageOf(experts(3), "ep=4", "megatron-ep") ==
        "rule 'megatron-ep': 'up' has 3 experts, which cannot be split by {ep}");
  CHECK(messageOf(layer(), "tp=2", "megatron-ep") ==
        "rule 'megatron-ep': the model has no product with a weight for each of several "
        "experts in one tensor; experts that are nodes of their own, or whose weights "
        "each token looks up, are what 'megatron' splits");
}
