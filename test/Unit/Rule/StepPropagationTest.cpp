//===- StepPropagationTest.cpp - Hints through a step, and conflicts ------===//
#include "Decided.h"

#include <random>

using namespace partita;

namespace {
/// A step of one MLP with a residual, its cotangent larger than its weights: rows of x
/// are positions. An op of the backward pass is called after its node.
Program step(int64_t rows = 64) {
  Program p;
  p.argument("x", {rows, 8});
  p.argument("up.w", {8, 16});
  p.argument("down.w", {16, 8});
  p.rows("norm", "x");
  p.contract("up", "norm", "up.w", "m k, k n -> m n");
  p.elementwise("act", {"up"});
  p.contract("down", "act", "down.w", "m k, k n -> m n");
  p.elementwise("y", {"x", "down"}, {{ReduceKind::Sum, {0, 1}}});
  p.result("y");
  p.elementwise("dy", {"y"});
  p.contract("dact", "dy", "down.w", "m n, k n -> m k");
  p.contract("ddown", "act", "dy", "m k, m n -> k n");
  p.elementwise("dup", {"dact", "up"});
  p.contract("dnorm", "dup", "up.w", "m n, k n -> m k");
  p.contract("dw", "norm", "dup", "m k, m n -> k n");
  p.elementwise("new down", {"down.w", "ddown"}, {{ReduceKind::Sum, {0, 1}}});
  p.elementwise("new up", {"up.w", "dw"}, {{ReduceKind::Sum, {0, 1}}});
  p.elementwise("dx", {"dnorm", "dy"}, {{ReduceKind::Sum, {0, 1}}});
  p.result("dx");
  p.learn("down.w", "new down");
  p.learn("up.w", "new up");
  p.backward("loss", "dy");
  p.backward("down", "dact");
  p.backward("down", "ddown", Phase::Weight);
  p.backward("act", "dup");
  p.backward("up", "dnorm");
  p.backward("up", "dw", Phase::Weight);
  p.backward("down.w", "new down", Phase::Update);
  p.backward("up.w", "new up", Phase::Update);
  p.backward("x", "dx");
  return p;
}

const char *rowsAndColumns = R"({"tensors": {"x": ["tp", null], "up.w": [null, "tp"]}})";
} // namespace

TEST_CASE("the forward pass settles first, and the backward pass follows it") {
  for (int64_t rows : {16, 64, 1024}) {
    FlowGraph graph = step(rows).build(*Mesh::parse("tp=2"));
    Named found = decideByName(graph, rowsAndColumns);
    INFO(rows);
    const std::string all = "{" + std::to_string(rows) + "}";
    // A hint for a weight is for its readers, however many rows there are.
    CHECK(found["up"] == "[" + all + ", {8}, {16: tp}]");
    CHECK(found["down"] == "[" + all + ", {16: tp}, {8}]");
    // The rows of the cotangent arrive in fewer steps of data flow, and lose.
    CHECK(found["down/backward"] == "[" + all + ", {8}, {16: tp}]");
    CHECK(found["act/backward"] == "[" + all + ", {16: tp}]");
    CHECK(found["up/backward"] == "[" + all + ", {16: tp}, {8}]");
    CHECK(found["up/weight"] == "[" + all + ", {8}, {16: tp}]");
    CHECK(found["down/weight"] == "[" + all + ", {16: tp}, {8}]");
    auto count = steps(graph, rowsAndColumns);
    CHECK(count[StepKind::AllGather] == 2); // of the norm, and of the cotangent
    CHECK(count[StepKind::ReduceScatter] == 2);
    CHECK(count[StepKind::AllToAll] + count[StepKind::AllReduce] == 0);
  }
}

TEST_CASE("an op chooses when all its operands have") {
  // The rows of this attention are positions; its values come in fewer steps than its
  // weights do.
  Program p;
  p.argument("x", {16, 8});
  p.elementwise("q", {"x"});
  p.elementwise("k", {"x"});
  p.elementwise("v", {"x"});
  p.contract("scores", "q", "k", "s d, t d -> s t");
  p.rows("weights", "scores");
  p.contract("mixed", "weights", "v", "s t, t d -> s d");
  p.result("mixed");
  Mesh mesh = *Mesh::parse("tp=2");
  const char *hints = R"({"tensors": {"x": ["tp", null]}})";
  Named found = decideByName(p.build(mesh), hints);
  CHECK(found["weights"] == "[{16: tp}, {16}]");
  CHECK(found["mixed"] == "[{16: tp}, {16}, {8}]");
  std::mt19937 random(7);
  for (int trial = 0; trial < 20; ++trial)
    CHECK(decideByName(p.build(mesh, &random), hints) == found);
}

TEST_CASE("to split a sum costs its reduction") {
  // The result of the experts has more bytes than the shares by which it is combined, and
  // changes its split for less than a sum over all places would take.
  Program p;
  p.argument("shares", {4, 16, 8});
  p.argument("made", {4, 8, 32});
  p.elementwise("combine", {"shares"});
  p.elementwise("done", {"made"});
  p.contract("back", "combine", "done", "g t s, g s d -> g t d");
  p.result("back");
  Named found = decideByName(p.build(*Mesh::parse("ep=4")),
                             R"({"tensors": {"shares": ["ep", null, null],
                                             "made": [null, "ep", null]}})");
  CHECK(found["back"] == "[{4: ep}, {16}, {8}, {32}]");
  // A small result is worth it: one row per group.
  Program small;
  small.argument("shares", {4, 1, 8});
  small.argument("made", {4, 8, 32});
  small.elementwise("combine", {"shares"});
  small.elementwise("done", {"made"});
  small.contract("back", "combine", "done", "g t s, g s d -> g t d");
  small.result("back");
  found = decideByName(small.build(*Mesh::parse("ep=4")),
                       R"({"tensors": {"shares": ["ep", null, null],
                                       "made": [null, "ep", null]}})");
  CHECK(found["back"] == "[{4}, {8: ep}, {32}]");
}

TEST_CASE("of axes of which a part is taken, those before it go on") {
  Program p;
  p.argument("tokens", {16, 8});
  p.argument("w", {4, 8, 8});
  p.elementwise("routed", {"tokens"});
  p.reshape("apart", "routed", {4, 4, 8});
  p.contract("experts", "apart", "w", "g e k, e k n -> g e n");
  p.result("experts");
  Named found = decideByName(
      p.build(*Mesh::parse("dp=2,ep=2")),
      R"({"nodes": {"routed": {"out": [[{"factors": [4, 4], "axes": [["dp", "ep"], []]}, null]]}},
          "tensors": {"w": ["ep", null, null]}})");
  CHECK(found["routed"] == "[{4: dp, ep}*{4}, {8}]");
  CHECK(found["experts"] == "[{4: dp}, {4: ep}, {8}, {8}]");
}
