//===- PropagationTest.cpp - From a few hints to strategies ---------------===//
#include "Decided.h"

#include "partita/Rule/Decide/ResolveHints.h"

#include <algorithm>
#include <random>

using namespace partita;

namespace {
const char *megatron = R"({"nodes": {"c_attn": {"in": [null, [[], "tp"]]},
                                     "c_fc": {"in": [null, [[], "tp"]]}}})";
const char *sequence = R"({"nodes": {"c_attn": {"in": [null, [[], "tp"]]},
                                     "c_fc": {"in": [null, [[], "tp"]]},
                                     "residual_*": {"out": [[[], "tp", []]]}}})";
} // namespace

TEST_CASE("two weights hinted per block: two all-reduces per layer, nothing else") {
  for (const char *mesh : {"tp=2", "tp=4", "dp=2,tp=2"}) {
    FlowGraph graph = gpt2Layer().build(*Mesh::parse(mesh));
    auto count = steps(graph, megatron);
    CHECK(count[StepKind::AllReduce] == 2);
    for (StepKind kind : {StepKind::AllGather, StepKind::ReduceScatter,
                          StepKind::AllToAll, StepKind::Permute, StepKind::Exchange})
      CHECK(count[kind] == 0);
  }
}

TEST_CASE("with the sequence hinted as well: reduce-scatter and all-gather instead") {
  FlowGraph graph = gpt2Layer().build(*Mesh::parse("tp=2"));
  auto count = steps(graph, sequence);
  CHECK(count[StepKind::ReduceScatter] == 2);
  // One before each half of the layer.
  CHECK(count[StepKind::AllGather] == 2);
  CHECK(count[StepKind::AllReduce] == 0);
  CHECK(count[StepKind::AllToAll] == 0);
}

TEST_CASE("a fused weight is split inside each third, rows into batch and sequence") {
  FlowGraph graph = gpt2Layer().build(*Mesh::parse("dp=2,tp=2"));
  Named named = decideByName(graph, R"({"nodes": {
      "c_attn": {"in": [null, [[], "tp"]]}, "residual_1": {"out": [["dp", [], []]]}}})");
  // Factors of c_attn: rows (batch · sequence), hidden, three times heads · width.
  CHECK(named["c_attn"] == "[{2: dp}*{4}, {16}, {3}*{4: tp}*{4}]");
  CHECK(named["scores"] == "[{2: dp}, {4: tp}, {4}, {4}, {4}]");
}

TEST_CASE("axes are cut where a reshape cuts the dim") {
  Program p;
  p.argument("x", {8, 3});
  p.elementwise("a", {"x"});
  p.reshape("apart", "a", {2, 4, 3});
  p.elementwise("b", {"apart"});
  p.result("b");
  FlowGraph graph = p.build(*Mesh::parse("tp=4"));
  Named named = decideByName(graph, R"({"nodes": {"a": {"out": [["tp", []]]}}})");
  CHECK(named["b"] == "[{2: tp:(1)2}, {4: tp:(2)2}, {3}]");
}

TEST_CASE("a conflict goes to the larger value, wherever it stands") {
  // Both meet in one sum; the wide value costs more to move.
  for (bool wideFirst : {true, false}) {
    Program p;
    p.argument("narrow", {4, 1, 8});
    p.argument("wide", {4, 6, 8});
    p.elementwise("n", {"narrow"});
    p.elementwise("w", {"wide"});
    p.elementwise("sum", wideFirst ? std::vector<std::string>{"w", "n"}
                                   : std::vector<std::string>{"n", "w"});
    p.result("sum");
    FlowGraph graph = p.build(*Mesh::parse("tp=2"));
    Named named = decideByName(graph, R"({"nodes": {"n": {"out": [["tp", [], []]]},
                                                    "w": {"out": [[[], [], "tp"]]}}})");
    CHECK(named["sum"] == "[{4}, {6}, {8: tp}]");
  }
}

TEST_CASE("strategies do not depend on the order of ops or hints") {
  Program program = gpt2Layer();
  const std::string swapped = R"({"nodes": {"residual_*": {"out": [[[], "tp", []]]},
      "c_fc": {"in": [null, [[], "tp"]]}, "c_attn": {"in": [null, [[], "tp"]]}}})";
  std::mt19937 random(3);
  for (const char *mesh : {"tp=2", "dp=2,tp=4"}) {
    Mesh devices = *Mesh::parse(mesh);
    for (const char *hints : {megatron, sequence}) {
      Named expected = decideByName(program.build(devices), hints);
      for (int trial = 0; trial < 50; ++trial)
        CHECK(decideByName(program.build(devices, &random), hints) == expected);
    }
    CHECK(decideByName(program.build(devices, &random), swapped) ==
          decideByName(program.build(devices), sequence));
  }
}

TEST_CASE("which values stay partial does not depend on the order of ops") {
  Program p;
  for (const char *name : {"a", "b"}) {
    p.argument(name, {4, 8});
    p.source(std::string(name) + ".w", {8, 4});
    p.contract(std::string(name) + ".product", name, std::string(name) + ".w",
               "m k, k n -> m n");
  }
  // Not both factors of a product may be partial; one is an op further away. Whether the
  // other user of the near one sees it partial was once a matter of order.
  p.elementwise("negated", {"b.product"}, {{ReduceKind::Sum, {0}}});
  p.elementwise("both", {"a.product", "negated"},
                {{ReduceKind::Sum, {0}}, {ReduceKind::Sum, {1}}});
  p.elementwise("other", {"a.product"}, {{ReduceKind::Sum, {0}}});
  p.result("both");
  p.result("other");
  Mesh mesh = *Mesh::parse("tp=2");
  const char *hints = R"({"nodes": {"*.product": {"in": [[[], "tp"]]}}})";
  Named expected = decideByName(p.build(mesh), hints);
  std::mt19937 random(5);
  for (int trial = 0; trial < 50; ++trial)
    CHECK(decideByName(p.build(mesh, &random), hints) == expected);
}

TEST_CASE("a split spatial dim goes on through windows, in positions") {
  Program program;
  program.argument("x", {2, 3, 27});
  program.windows("conv", "x", 3, 2, 1, 1); // 14 positions
  program.elementwise("relu", {"conv"});
  program.windows("pool", "relu", 3, 2, 1, 0); // 7 positions
  program.windows("point", "pool", 1, 1, 0, 0);
  program.windows("global", "point", 7, 1, 0, 0);
  program.windows("few", "point", 3, 3, 1, 1); // 3 positions
  program.result("global");
  program.result("few");
  FlowGraph graph = program.build(*Mesh::parse("h=4"));
  // One padded extent unit for the whole class, although its dims differ in size.
  for (
      const char *hints :
      {R"({"nodes": {"conv": {"out": [[null, null, "h"]]}}})",
       R"({"nodes": {"conv": {"in": [[null, null, 4]]}}})",
       R"({"nodes": {"point": {"in": [[null, null, "h"]]}}})",
       R"({"nodes": {"conv": {"in": [[null, null, {"factors": [27], "axes": [["h"]]}]]}}})"}) {
    Named found = decideByName(graph, hints);
    INFO(hints);
    CHECK(found["conv"] == "[{2}, {3}, {14/16: h}]");
    CHECK(found["relu"] == "[{2}, {3}, {14/16: h}]");
    CHECK(found["pool"] == "[{2}, {3}, {7/8: h}]");
    CHECK(found["point"] == "[{2}, {3}, {7/8: h}]");
    // Fewer than ranks: the last has none. One alone is not worth a split.
    CHECK(found["few"] == "[{2}, {3}, {3/4: h}]");
    CHECK(found["global"] == "[{2}, {3}, {1}]");
  }
}

TEST_CASE("axes pass between a window and a dim that is cut, where they divide both") {
  Program program;
  program.argument("x", {2, 3, 12});
  program.windows("before", "x", 3, 2, 1, 1); // 6 positions
  program.elementwise("relu", {"before"});
  program.stretch("twice", "relu", 2); // 12
  program.elementwise("more", {"twice"});
  program.windows("after", "more", 3, 1, 1, 1);
  program.result("after");
  FlowGraph even = program.build(*Mesh::parse("h=3"));
  for (const char *hints : {R"({"nodes": {"before": {"out": [[null, null, "h"]]}}})",
                            R"({"nodes": {"after": {"out": [[null, null, "h"]]}}})"}) {
    Named found = decideByName(even, hints);
    INFO(hints);
    CHECK(found["before"] == "[{2}, {3}, {6: h}]");
    CHECK(found["relu"] == "[{2}, {3}, {6: h}]");
    CHECK(found["twice"] == "[{2}, {3}, {6: h}, {2}]");
    // Nothing is cut that a window could not follow.
    CHECK(found["more"] == "[{2}, {3}, {12: h}]");
    CHECK(found["after"] == "[{2}, {3}, {12: h}]");
  }
  // 6 elements on 4 ranks are 2, 2, 2 and 0; their 12 results would be 4, 4, 4 and 0.
  FlowGraph uneven = program.build(*Mesh::parse("h=4"));
  Named found =
      decideByName(uneven, R"({"nodes": {"before": {"out": [[null, null, "h"]]}}})");
  CHECK(found["twice"] == "[{2}, {3}, {6/8: h}, {2}]");
  CHECK(found["more"] == "[{2}, {3}, {12}]");
}

TEST_CASE("windows are priced by the most that one rank fetches") {
  Program program;
  program.argument("x", {2, 5, 16});
  program.elementwise("y", {"x"});
  program.windows("a", "y", 3, 1, 1, 1);
  program.windows("b", "y", 3, 1, 1, 1);
  program.windows("c", "y", 5, 1, 2, 2);
  program.elementwise("z", {"y", "y"});
  for (const char *name : {"a", "b", "c", "z"})
    program.result(name);
  FlowGraph graph = program.build(*Mesh::parse("h=4"));
  auto hints = Hints::parse(*parseJson(
      R"({"nodes": {"y": {"out": [[null, null, "h"]]}},
          "tensors": {"result of *": null, "x": [null, null, "h"]}})",
      "hints"));
  REQUIRE(!resolveHints(graph, *hints)); // results are not tensors to hint
  hints = Hints::parse(*parseJson(
      R"({"nodes": {"y": {"out": [[null, null, "h"]]}}, "tensors": {"x": [null, null, "h"]}})",
      "hints"));
  auto decision = decide(graph, ShardMode::SemiAuto, *hints);
  REQUIRE(decision);
  int32_t y = graph.ops[1].results[0];
  auto served = serveUses(graph, decision->strategies, y);
  // The element-wise user as it is, one buffer for a and b, another for c.
  REQUIRE(served.size() == 3);
  CHECK(!served[0].halo);
  REQUIRE(served[1].halo);
  REQUIRE(served[2].halo);
  CHECK(served[1].uses.size() == 2);
  CHECK(served[1].halo->before == served[0].layout);
  CHECK(haloElements(graph.mesh, *served[1].halo) == 2 * 5 * 2);
  CHECK(haloElements(graph.mesh, *served[2].halo) == 2 * 5 * 4);
}

TEST_CASE("the data-parallel default splits batches, never what windows run over") {
  Program program;
  program.argument("batched", {8, 3, 32});
  program.windows("a", "batched", 3, 1, 1, 1);
  program.result("a");
  program.argument("line", {32});
  program.windows("b", "line", 3, 1, 1, 1);
  program.result("b");
  FlowGraph graph = program.build(*Mesh::parse("dp=2,tp=2"));
  auto decision = decide(graph, ShardMode::DataParallel, Hints());
  REQUIRE(decision);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (graph.ops[i].name == "a")
      CHECK(byNumber(graph.mesh, decision->strategies[i]) == "[{8: dp, tp}, {3}, {32}]");
    if (graph.ops[i].name == "b")
      CHECK(byNumber(graph.mesh, decision->strategies[i]) == "[{32}]");
  }
}

TEST_CASE("a price without all-to-alls is that of gathers and slices") {
  Program program;
  program.argument("x", {8, 16});
  program.elementwise("y", {"x"});
  program.elementwise("z", {"y"});
  program.result("z");
  FlowGraph graph = program.build(*Mesh::parse("tp=4"));
  std::vector<Strategy> strategies;
  for (const FlowOp &op : graph.ops) {
    strategies.push_back(Strategy::replicated(op.rule));
    if (op.kind == FlowKind::Compute)
      strategies.back().factors[op.name == "y" ? 0 : 1].factors[0].axes =
          graph.mesh.all();
  }
  // A rank has 32 of 128 elements of y and fetches 24 others; all are gathered for the
  // result. Without all-to-alls both are gathers of 96.
  CHECK(price(graph, strategies).receivedBytes == (24 + 96) * 4);
  graph.reshard.allToAll = false;
  CHECK(price(graph, strategies).receivedBytes == (96 + 96) * 4);
}
