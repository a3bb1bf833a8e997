//===- HintsTest.cpp - What hints ask is done, or is an error -------------===//
#include "FlowProgram.h"

#include "partita/Base/Layout/Reshard.h"
#include "partita/Rule/Decide/Decide.h"
#include "partita/Rule/Decide/Hints.h"
#include "partita/Rule/Decide/ResolveHints.h"

#include <catch2/catch.hpp>

using namespace partita;

namespace {
/// A program decided by hints.
struct Decided {
  FlowGraph graph;
  Expected<Decision> decision;

  Decided(const Program &program, const std::string &mesh, const std::string &hints)
      : graph(program.build(*Mesh::parse(mesh))),
        decision(decide(graph, ShardMode::SemiAuto,
                        *Hints::parse(*parseJson(hints, "hints")))) {}

  std::string error() const { return decision ? "" : decision.error().message; }
  int32_t producerOf(const std::string &value) const {
    for (const FlowValue &it : graph.values)
      if (it.name == value)
        return it.producer;
    return -1;
  }
  /// The strategy of the op that computes a value.
  std::string of(const std::string &value) const {
    if (!decision)
      return error();
    int32_t op = producerOf(value);
    Layout layout;
    layout.dims = decision->strategies[op].factors;
    return layout.str(graph.mesh);
  }
  /// Every strategy is legal, and every value gets to its users.
  std::string fault() const {
    if (!decision)
      return error();
    for (size_t op = 0; op < graph.ops.size(); ++op)
      if (auto ok =
              verifyStrategy(graph.mesh, graph.ops[op].rule, decision->strategies[op]);
          !ok)
        return graph.ops[op].name + ": " + ok.error().message;
    for (size_t v = 0; v < graph.values.size(); ++v) {
      int32_t producer = graph.values[v].producer;
      Layout produced =
          resultLayout(graph.ops[producer].rule, decision->strategies[producer], 0);
      auto served = serveUses(graph, decision->strategies, static_cast<int32_t>(v));
      for (const ServedLayout &entry : served) {
        auto plan =
            planReshard(graph.mesh, entry.from < 0 ? produced : served[entry.from].layout,
                        entry.halo ? entry.halo->before : entry.layout);
        if (!plan)
          return graph.values[v].name + ": " + plan.error().message;
      }
    }
    return "";
  }
};

/// x · wᵀ + b as one node, with the activations on both sides of it.
Program gemm(int64_t rows = 4, int64_t from = 8, int64_t to = 6) {
  Program p;
  p.argument("x", {rows, from});
  p.source("w", {to, from});
  p.source("b", {to});
  p.elementwise("before", {"x"});
  p.contract("product", "before", "w", "m k, n k -> m n");
  p.elementwise("fc", {"product", "b"}, {{ReduceKind::Sum, {0, 1}}});
  p.partOf("fc", "product");
  p.elementwise("after", {"fc"});
  p.result("after");
  return p;
}

/// Columns that attention cuts into heads, with an op before that knows nothing of them.
Program heads(int64_t count = 4, int64_t width = 16) {
  Program p;
  p.argument("x", {8, 6});
  p.source("w", {6, count * width});
  p.contract("proj", "x", "w", "m k, k n -> m n");
  p.elementwise("act", {"proj"});
  p.reshape("heads", "act", {8, count, width});
  p.elementwise("scaled", {"heads"});
  p.result("scaled");
  return p;
}
} // namespace

TEST_CASE("hints: the bias of a node that became two ops is named by a count") {
  Decided d(gemm(), "tp=2", R"({"nodes": {"fc": {"in": [[1, 1], [2, 1], [2]]}}})");
  CHECK(d.of("product") == "[{4}, {8}, {6: tp}]");
  CHECK(d.of("fc") == "[{4}, {6: tp}]");
  CHECK(d.fault().empty());
  // The result as well, and the weight by its column.
  Decided all(gemm(), "dp=2,tp=2",
              R"({"nodes": {"fc": {"in": [[2, 1], [2, 1], [2]], "out": [[2, 2]]}}})");
  CHECK(all.of("product") == "[{4: dp}, {8}, {6: tp}]");
  CHECK(all.of("fc") == "[{4: dp}, {6: tp}]");
  // Two ops of a node can use one axis for two loops: the sum is scattered.
  Decided scattered(gemm(), "tp=2",
                    R"({"nodes": {"fc": {"in": [[1, 2], [null, 2]], "out": [[1, 2]]}}})");
  CHECK(scattered.of("product") == "[{4}, {8: tp}, {6}]");
  CHECK(scattered.of("fc") == "[{4}, {6: tp}]");
  CHECK(scattered.fault().empty());
}

TEST_CASE("hints: inputs are numbered as in the file, whichever op reads them first") {
  // One node: y · |z|, whose first op is that of z.
  Program p;
  p.argument("y", {4, 6});
  p.argument("z", {6, 8});
  p.elementwise("size", {"z"});
  p.contract("node", "y", "size", "m k, k n -> m n");
  p.partOf("node", "size");
  p.result("node");
  const char *second = R"({"nodes": {"node": {"in": [null, [null, "tp"]]}}})";
  CHECK(Decided(p, "tp=2", second).of("node") == "[{4}, {6: tp}, {8}]");
  p.inputs("node", {"y", "z"});
  Decided file(p, "tp=2", second);
  CHECK(file.of("size") == "[{6}, {8: tp}]");
  CHECK(file.of("node") == "[{4}, {6}, {8: tp}]");
  CHECK(file.fault().empty());
  Decided more(p, "tp=2", R"({"nodes": {"node": {"in": [null, null, [1, 1]]}}})");
  CHECK(more.error() == "hints: hint for node 'node': it has 2 inputs, the hint 3");
}

TEST_CASE("hints: a value that the file gives a node twice is two inputs in its places") {
  // y · |z| · y: two ops read y, a third one z before them.
  Program p;
  p.argument("y", {6, 6});
  p.argument("z", {6, 6});
  p.elementwise("size", {"z"});
  p.contract("product", "y", "size", "m k, k n -> m n");
  p.contract("node", "product", "y", "m k, k n -> m n");
  p.partOf("node", "size");
  p.partOf("node", "product");
  p.inputs("node", {"y", "z", "y"});
  p.result("node");
  Decided d(p, "dp=2,tp=2",
            R"({"nodes": {"node": {"in": [["dp", 1], [1, 1], [1, "tp"]]}}})");
  CHECK(d.of("product") == "[{6: dp}, {6}, {6}]");
  CHECK(d.of("node") == "[{6: dp}, {6}, {6: tp}]");
  CHECK(d.fault().empty());
}

TEST_CASE("hints: dims are those of the node, however the program has them") {
  // A head tied to the table of the embedding: ONNX has its transpose.
  Program p;
  p.argument("x", {1, 4, 8});
  p.source("table", {10, 8});
  p.contract("head", "x", "table", "b m k, n k -> b m n");
  p.reorder("head", 1, {1, 0});
  p.result("head");
  Decided d(p, "tp=2",
            R"({"nodes": {"head": {"in": [[1, 1, 1], [1, 2]], "out": [[1, 1, 2]]}}})");
  CHECK(d.of("head") == "[{4}, {8}, {10: tp}]");
  Decided alone(p, "tp=2", R"({"nodes": {"head": {"in": [null, [2, 1]]}}})");
  CHECK(alone.of("head") == "[{4}, {8: tp}, {10}]");
}

TEST_CASE("hints: what neighbours cut otherwise is detached, and resharded") {
  for (const char *hint : {R"({"nodes": {"act": {"out": [[null, 6]]}}})",
                           R"({"nodes": {"act": {"in": [[null, "tp"]]}}})",
                           R"({"tensors": {"act": [null, "tp"]}})"}) {
    INFO(hint);
    Decided d(heads(), "tp=6", hint);
    CHECK(d.of("act") == "[{8}, {64/66: tp}]");
    // Its other loop is linked as ever, and the neighbours are whole.
    CHECK(d.of("proj") == "[{8}, {6}, {64}]");
    CHECK(d.of("heads") == "[{16}, {4}, {8}]");
    CHECK(d.fault().empty());
  }
  Decided rows(heads(), "dp=2,tp=6", R"({"nodes": {"act": {"out": [["dp", "tp"]]}}})");
  CHECK(rows.of("proj") == "[{8: dp}, {6}, {64}]");
  CHECK(rows.of("act") == "[{8: dp}, {64/66: tp}]");
  CHECK(rows.of("scaled") == "[{8: dp}, {4}, {16}]");
  // 3 ways on two heads of 16, which 3 does not divide.
  Decided kv(heads(2), "tp=3", R"({"tensors": {"w": [null, 3]}})");
  CHECK(kv.of("proj") == "[{8}, {6}, {32/33: tp}]");
  CHECK(kv.fault().empty());
  // Whatever fits the cuts is not detached.
  Decided fits(heads(), "tp=8", R"({"tensors": {"w": [null, 8]}})");
  CHECK(fits.of("proj") == "[{8}, {6}, {4: tp:(1)4}*{16: tp:(4)2}]");
  CHECK(fits.of("scaled") == "[{8}, {4: tp:(1)4}, {16: tp:(4)2}]");
}

TEST_CASE("hints: a node stays one where its loop is detached") {
  Program p = gemm(4, 8, 64);
  p.reshape("heads", "after", {4, 4, 16});
  p.result("heads");
  Decided d(p, "tp=6", R"({"nodes": {"fc": {"in": [null, [6, null]]}}})");
  CHECK(d.of("product") == "[{4}, {8}, {64/66: tp}]");
  CHECK(d.of("fc") == "[{4}, {64/66: tp}]");
  CHECK(d.of("after") == "[{4}, {4}*{16}]");
  CHECK(d.fault().empty());
}

TEST_CASE("hints: what does not divide is padded, where need be detached") {
  Program p;
  p.argument("x", {14, 3});
  p.elementwise("flat", {"x"});
  p.reshape("apart", "flat", {2, 7, 3});
  p.elementwise("rows", {"apart"});
  p.rows("norm", "rows");
  p.result("norm");
  // The 7 is minor in the 14: no room for padding there.
  Decided d(p, "tp=2", R"({"nodes": {"rows": {"out": [[1, 2, 1]]}}})");
  CHECK(d.of("rows") == "[{2}, {7/8: tp}, {3}]");
  CHECK(d.of("apart") == "[{3}, {7}, {2}]");
  CHECK(d.fault().empty());
  // The reshape itself has the 7 inside the 14.
  Decided inside(p, "tp=2", R"({"nodes": {"apart": {"out": [[null, 2, null]]}}})");
  CHECK(inside.error() ==
        "hints: output 0 of 'apart', dim 1: a dim of size 7 cannot be split by {tp} (2 "
        "ways): it does not divide, and is inside another dim of 'apart', where there is "
        "no room for padding");
  Decided both(p, "tp=3", R"({"nodes": {"apart": {"in": [[3, null]]}}})");
  CHECK(both.error() == "hints: input 0 of 'apart', dim 0: a dim of size 14 cannot be "
                        "split by {tp} (3 ways): 'apart' cuts it into 2 x 7");
}

TEST_CASE("hints: what a node cannot do is an error") {
  Program p = gemm();
  p.rows("norm", "after");
  p.result("norm");
  auto error = [&](const char *mesh, const char *hints) {
    return Decided(p, mesh, hints).error();
  };
  CHECK(error("tp=2", R"({"nodes": {"norm": {"out": [[null, 2]]}}})") ==
        "hints: output 0 of 'norm', dim 1: a dim of size 6 cannot be split by {tp} (2 "
        "ways): 'norm' needs all of it on every rank");
  CHECK(error("tp=5", R"({"nodes": {"fc": {"out": [[5, null]]}}})") ==
        "hints: output 0 of 'fc', dim 0: a dim of size 4 cannot be split by {tp} (5 "
        "ways): it has fewer elements");
  CHECK(error("tp=2", R"({"nodes": {"fc": {"in": [null, [2, 1], [1]]}}})") ==
        "hints: input 1 of 'fc', dim 0: 2 shards asked, but no split by input 2 of 'fc', "
        "dim 0, which is the same loop");
  CHECK(error("tp=4,dp=2",
              R"({"nodes": {"fc": {"in": [null, [2, 1]], "out": [[1, 4]]}}})") ==
        "hints: output 0 of 'fc', dim 1: 4 shards asked, but {dp} (2 shards) by input 1 "
        "of 'fc', dim 0, which is the same loop");
  CHECK(error("tp=2,dp=2", R"({"nodes": {"fc": {"in": [null, ["tp", 1]],
                                               "out": [[1, "dp"]]}}})") ==
        "hints: output 0 of 'fc', dim 1: {dp} (2 shards) asked, but {tp} (2 shards) by "
        "input 1 of 'fc', dim 0, which is the same loop");
}

TEST_CASE("hints: an axis used twice is an error, even one of size 1") {
  for (const char *mesh : {"tp=2,one=1", "one=1"}) {
    Decided d(gemm(), mesh, R"({"nodes": {"after": {"out": [["one", "one"]]}}})");
    CHECK(d.error() == "hints: output 0 of 'after', dim 1: {one} is already used by "
                       "output 0 of 'after', dim 0");
    Decided list(gemm(), mesh,
                 R"({"nodes": {"after": {"out": [[["one", "one"], null]]}}})");
    CHECK(list.error() == "hints: output 0 of 'after', dim 0: axis one is used twice");
    // Two hints that meet in one op.
    Decided two(gemm(), mesh, R"({"nodes": {"after": {"out": [["one", null]]}},
                                  "tensors": {"after": [null, "one"]}})");
    CHECK(two.error() == "hints: tensor 'after', dim 1: {one} is already used by "
                         "output 0 of 'after', dim 0");
    // One loop in two tensors of a node is no such thing.
    Decided same(gemm(), mesh, R"({"nodes": {"fc": {"in": [["one", null]],
                                                    "out": [["one", null]]}}})");
    CHECK(same.error().empty());
  }
  Decided d(gemm(), "tp=2", R"({"nodes": {"fc": {"in": [["tp", "tp"]]}}})");
  CHECK(d.error() == "hints: input 0 of 'fc', dim 1: {tp} is already used by input 0 "
                     "of 'fc', dim 0");
}

TEST_CASE("hints: inputs of a node are values from outside, each once") {
  // As a function body comes: x is read twice, and a scalar belongs to the node.
  Program p;
  p.argument("x", {4, 6});
  p.source("y", {6});
  p.source("scale", {});
  p.elementwise("scaled", {"x", "scale"});
  p.elementwise("mixed", {"scaled", "x", "y"});
  for (const char *value : {"scale", "scaled", "mixed"})
    p.partOf("node", value);
  p.result("mixed");
  Decided d(p, "dp=2,tp=2", R"({"nodes": {"node": {"in": [["dp", 1], ["tp"]]}}})");
  CHECK(d.error() == "hints: input 1 of 'node', dim 0: {tp} (2 shards) asked, but no "
                     "split by input 0 of 'node', dim 1, which is the same loop");
  Decided good(p, "dp=2,tp=2", R"({"nodes": {"node": {"in": [["dp", null], ["tp"]]}}})");
  CHECK(good.of("mixed") == "[{4: dp}, {6: tp}]");
  CHECK(good.of("scaled") == "[{4: dp}, {6: tp}]");
}

TEST_CASE("hints: a constant that two nodes' imports made is an input of neither") {
  // Both products are scaled by one number, which is called like the first node.
  Program p;
  p.argument("x", {4, 8});
  p.source("w", {8, 8});
  p.source("v", {8, 6});
  p.source("b", {6});
  p.source("alpha", {});
  p.contract("product", "x", "w", "m k, k n -> m n");
  p.elementwise("first", {"product", "alpha"});
  p.contract("other product", "first", "v", "m k, k n -> m n");
  p.elementwise("scaled", {"other product", "alpha"});
  p.elementwise("second", {"scaled", "b"});
  for (const char *value : {"alpha", "product"})
    p.partOf("first", value);
  for (const char *value : {"other product", "scaled"})
    p.partOf("second", value);
  p.result("second");
  FlowGraph graph = p.build(*Mesh::parse("tp=2"));
  for (FlowOp &op : graph.ops)
    if (op.kind == FlowKind::Source && op.name == "first")
      op.madeFor = {"first", "second"};
  for (const char *node : {"first", "second"}) {
    INFO(node);
    bool hasBias = node == std::string("second");
    std::string in = std::string("[null, [1, 2]") + (hasBias ? ", [2]]" : "]");
    auto hints = *Hints::parse(*parseJson(
        R"({"nodes": {")" + std::string(node) + R"(": {"in": )" + in + "}}}", "hints"));
    auto decision = decide(graph, ShardMode::SemiAuto, hints);
    REQUIRE(decision);
    for (size_t op = 0; op < graph.ops.size(); ++op)
      if (graph.ops[op].name == node && graph.ops[op].kind == FlowKind::Compute) {
        Layout layout;
        layout.dims = decision->strategies[op].factors;
        CHECK_THAT(layout.str(graph.mesh), Catch::EndsWith("tp}]"));
      }
    auto more = *Hints::parse(*parseJson(R"({"nodes": {")" + std::string(node) +
                                             R"(": {"in": [null, null, null, null]}}})",
                                         "hints"));
    CHECK(decide(graph, ShardMode::SemiAuto, more).error().message ==
          "hints: hint for node '" + std::string(node) + "': it has " +
              (hasBias ? "3" : "2") + " inputs, the hint 4");
  }
}

TEST_CASE("hints: a tensor is called by its own name or by its node's") {
  Program p = gemm();
  p.partOf("node of after", "after");
  for (const char *name : {"after", "node of after", "*after"}) {
    Decided d(p, "tp=2", R"({"tensors": {")" + std::string(name) + R"(": ["tp", 1]}})");
    INFO(name);
    CHECK(d.of("after") == "[{4: tp}, {6}]");
  }
  FlowGraph graph = p.build(*Mesh::parse("tp=2"));
  for (FlowValue &value : graph.values)
    if (value.name == "after")
      value.otherNames = {"squeezed"};
  auto seeds = resolveHints(
      graph, *Hints::parse(*parseJson(R"({"tensors": {"sq*": ["tp", 1]}})", "hints")));
  REQUIRE(seeds);
  CHECK(graph.ops[graph.atoms[(*seeds)[0].atom].op].name == "node of after");
  // A step inside a node has a name only where the model gives it one.
  Decided step(p, "tp=2", R"({"tensors": {"product": [null, "tp"]}})");
  CHECK(step.of("product") == "[{4}, {8}, {6: tp}]");
  Decided none(p, "tp=2", R"({"tensors": {"produkt": [null, "tp"]}})");
  CHECK(none.error() == "hints: no tensor is named 'produkt'; did you mean 'product'?");
}

TEST_CASE("hints: what the import of one node has made for two is no tensor of it") {
  Program p;
  p.argument("x", {4, 6});
  p.argument("y", {4, 6});
  p.source("constant", {6});
  p.source("first/scale", {});
  p.elementwise("first/scaled", {"first/scale"});
  p.elementwise("first/out", {"x", "constant", "first/scaled"});
  p.elementwise("second", {"y", "constant", "first/scaled"});
  p.result("first/out");
  p.result("second");
  // The second node reads the equal constant and the equal step of the first.
  for (const char *value : {"constant", "first/scaled", "first/out"})
    p.partOf("first", value);
  FlowGraph graph = p.build(*Mesh::parse("tp=2"));
  for (FlowValue &value : graph.values) {
    if (value.name == "constant")
      value.name = "first";
    if (value.name == "first/scaled")
      value.otherNames = {"first"};
    if (value.name == "first/out")
      value.name = "r1";
  }
  auto hints = *Hints::parse(*parseJson(R"({"tensors": {"first": ["tp", 1]}})", "hints"));
  auto decision = decide(graph, ShardMode::SemiAuto, hints);
  REQUIRE(decision);
  size_t split = 0;
  for (const FlowValue &value : graph.values)
    if (value.name == "r1") {
      Layout layout;
      layout.dims = decision->strategies[value.producer].factors;
      CHECK(layout.str(graph.mesh) == "[{4: tp}, {6}]");
      ++split;
    }
  CHECK(split == 1);
}

TEST_CASE("hints: factors may be written out where nothing cuts the dim") {
  Program p = gemm(4, 8, 12);
  Decided d(
      p, "tp=2",
      R"({"nodes": {"fc": {"out": [[null, {"factors": [3, 4], "axes": [[], ["tp"]]}]]}}})");
  CHECK(d.of("fc") == "[{4}, {3}*{4: tp}]");
  CHECK(d.of("product") == "[{4}, {8}, {3}*{4: tp}]");
  CHECK(d.of("after") == "[{4}, {12}]");
  CHECK(d.fault().empty());
  Decided bad(
      p, "tp=2",
      R"({"nodes": {"fc": {"out": [[null, {"factors": [5, 2], "axes": [[], ["tp"]]}]]}}})");
  CHECK(bad.error() == "hints: output 0 of 'fc', dim 1: the factor 5 does not fall on "
                       "the dim's own cuts: 'fc' has a loop of 12 there");
}

TEST_CASE("hints: given blocks of a dim that other ops cut") {
  Decided d(heads(2, 4), "tp=2",
            R"({"tensors": {"act": [null, {"blocks": [3, 5], "axes": ["tp"]}]}})");
  CHECK(d.of("act") == "[{8}, {8=3+5: tp}]");
  CHECK(d.of("proj") == "[{8}, {6}, {8}]");
  CHECK(d.fault().empty());
}

TEST_CASE("hints: a dim of several loops takes what single ones leave") {
  Program p;
  p.argument("x", {8, 3});
  p.elementwise("flat", {"x"});
  p.reshape("apart", "flat", {2, 4, 3});
  p.result("apart");
  Decided d(p, "tp=2",
            R"({"nodes": {"apart": {"in": [[2, null]], "out": [[1, 2, null]]}}})");
  CHECK(d.of("apart") == "[{3}, {4: tp}, {2}]");
  Decided both(p, "tp=4",
               R"({"nodes": {"apart": {"in": [[4, 1]], "out": [[2, 2, 1]]}}})");
  CHECK(both.of("apart") == "[{3}, {4: tp:(2)2}, {2: tp:(1)2}]");
  Decided bad(p, "tp=2",
              R"({"nodes": {"apart": {"in": [[2, null]], "out": [[1, 1, null]]}}})");
  CHECK(bad.error() ==
        "hints: input 0 of 'apart', dim 0: 2 shards asked, but no split by "
        "output 0 of 'apart', dim 1, which is the same loop");
}

TEST_CASE("hints: a weight that no user can split so is told") {
  Program p;
  p.argument("x", {4, 6});
  p.source("w", {6});
  p.elementwise("sum", {"x", "w"});
  p.rows("norm", "x");
  p.source("v", {3, 5});
  p.rows("softmax", "v");
  p.result("sum");
  p.result("softmax");
  Decided d(p, "tp=2", R"({"tensors": {"v": [null, "tp"], "w": ["tp"]}})");
  REQUIRE(d.decision);
  CHECK(d.of("sum") == "[{4}, {6: tp}]");
  CHECK(d.decision->notes[0] ==
        "the hint for tensor 'v' has no effect: 'softmax' reads it as [{3}, {5}]");
}

TEST_CASE("hints: an input that loses to what reads it is told") {
  Decided d(gemm(), "tp=2", R"({"tensors": {"x": ["tp", null]},
                                "nodes": {"before": {"in": [[1, "tp"]]}}})");
  REQUIRE(d.decision);
  CHECK(d.of("before") == "[{4}, {8: tp}]");
  CHECK(d.decision->notes[0] ==
        "the hint for tensor 'x' has no effect: 'before' reads it as [{4}, {8: tp}]");
  Program p = gemm();
  p.elementwise("other", {"x"});
  p.result("other");
  Decided two(p, "tp=2", R"({"tensors": {"x": ["tp", null]},
                             "nodes": {"before": {"in": [[1, "tp"]]}}})");
  REQUIRE(two.decision);
  CHECK(two.decision->notes[0] ==
        "the hint for tensor 'x' has no effect: it is read in 2 "
        "layouts, so that it is whole on every rank");
  Decided kept(gemm(), "tp=2", R"({"tensors": {"x": ["tp", null]}})");
  REQUIRE(kept.decision);
  CHECK(kept.of("x") == "[{4: tp}, {8}]");
  CHECK(kept.decision->notes.empty());
}

TEST_CASE("hints: data-parallel takes the axes that they leave free, per sub-graph") {
  Program p = gemm();
  p.argument("y", {8, 3});
  p.elementwise("apart", {"y"});
  p.result("apart");
  FlowGraph graph = p.build(*Mesh::parse("dp=2,tp=2"));
  auto decision =
      decide(graph, ShardMode::DataParallel,
             *Hints::parse(*parseJson(R"({"tensors": {"w": ["tp", null]}})", "hints")));
  REQUIRE(decision);
  std::map<std::string, std::string> found;
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    Layout layout;
    layout.dims = decision->strategies[op].factors;
    for (int32_t value : graph.ops[op].results)
      found[graph.values[value].name] = layout.str(graph.mesh);
  }
  // By both axes, rows would be gathered over tp before the product.
  CHECK(found["before"] == "[{4: dp}, {8}]");
  CHECK(found["product"] == "[{4: dp}, {8}, {6: tp}]");
  CHECK(found["after"] == "[{4: dp}, {6: tp}]");
  CHECK(found["apart"] == "[{8: dp, tp}, {3}]");
  CHECK(decision->price.receivedBytes == 0);
  REQUIRE(decision->notes.size() == 1);
  CHECK(decision->notes[0] ==
        "the batch dim of 'x' is split by {dp} alone: hints use the other axes");
}

//===-- Every hint that a node alone can do -------------------------------===//

namespace {
/// A picture through windows with and without strides, and a dim that is read whole.
Program picture() {
  Program p;
  p.argument("x", {2, 3, 27});
  p.windows("conv", "x", 3, 2, 1, 1);
  p.elementwise("relu", {"conv"});
  p.windows("pool", "relu", 3, 2, 1, 0);
  p.windows("point", "pool", 1, 1, 0, 0);
  p.stretch("larger", "point", 2);
  p.windows("global", "larger", 14, 1, 0, 0);
  p.reshape("flat", "global", {6});
  p.result("flat");
  return p;
}

/// Whether the loop is the major one in every dim that it is part of: then it can be
/// padded.
bool isMajor(const ShardingRule &rule, int32_t loop) {
  for (const auto *tensors : {&rule.operands, &rule.results})
    for (const TensorFactors &tensor : *tensors)
      for (const std::vector<int32_t> &dim : tensor)
        if (std::find(dim.begin(), dim.end(), loop) > dim.begin() &&
            std::find(dim.begin(), dim.end(), loop) != dim.end())
          return false;
  return true;
}

/// Counts of what the generator tried.
struct Tried {
  int done = 0, fewer = 0, inside = 0;
};

/// Hints for one dim of one tensor of a program, in every form, 2 to 6 ways.
class DimTrial {
public:
  DimTrial(const Program &program, const FlowGraph &graph, int32_t op, bool isOperand,
           size_t tensor, size_t dim)
      : program(program), it(graph.ops[op]), op(op), isOperand(isOperand),
        tensor(tensor) {
    const TensorFactors &factors =
        isOperand ? it.rule.operands[tensor] : it.rule.results[tensor];
    rank = factors.size();
    this->dim = dim;
    loop = factors[dim].size() == 1 ? factors[dim][0] : -1;
    value = graph.values[isOperand ? it.operands[tensor] : it.results[tensor]].name;
  }

  void run(Tried &tried) const {
    if (loop < 0 || it.rule.factors[loop].kind() == FactorKind::Replicate)
      return;
    for (int64_t ways = 2; ways <= 6; ++ways)
      for (const std::string &entry : {std::to_string(ways), std::string("\"tp\"")})
        for (bool byNode : {true, false})
          if (byNode || !isOperand)
            check(ways, hint(entry, byNode), tried);
  }

private:
  std::string hint(const std::string &entry, bool byNode) const {
    std::string dims;
    for (size_t d = 0; d < rank; ++d)
      dims += (d ? ", " : "") + (d == dim ? entry : "null");
    if (!byNode)
      return R"({"tensors": {")" + value + R"(": [)" + dims + "]}}";
    std::string before;
    for (size_t i = 0; i < tensor; ++i)
      before += "null, ";
    return R"({"nodes": {")" + it.name + R"(": {")" + (isOperand ? "in" : "out") +
           R"(": [)" + before + "[" + dims + "]]}}}";
  }

  void check(int64_t ways, const std::string &hint, Tried &tried) const {
    Decided d(program, "tp=" + std::to_string(ways), hint);
    INFO(hint << " " << ways << " ways");
    const Factor &factor = it.rule.factors[loop];
    if (factor.size < ways) {
      ++tried.fewer;
      CHECK(d.error().find("it has fewer elements") != std::string::npos);
      return;
    }
    if (factor.size % ways != 0 && !isMajor(it.rule, loop)) {
      ++tried.inside;
      CHECK(d.error().find("no room for padding") != std::string::npos);
      return;
    }
    ++tried.done;
    REQUIRE(d.error() == "");
    CHECK(d.fault() == "");
    int64_t shards = 1;
    for (const DimFactor &sub : d.decision->strategies[op].factors[loop].factors)
      shards *= sub.shards();
    CHECK(shards == ways);
  }

  const Program &program;
  const FlowOp &it;
  int32_t op, loop;
  bool isOperand;
  size_t tensor, rank, dim;
  std::string value;
};
} // namespace

TEST_CASE("hints: every loop of every op, 2 to 6 ways, by count, axis and value") {
  Tried tried;
  for (const Program &program :
       {gemm(), gemm(7, 5, 10), heads(), heads(2, 16), picture(), gpt2Layer(2, 4, 4, 4),
        gpt2Layer(1, 7, 2, 16), gpt2Layer(3, 5, 6, 4)}) {
    FlowGraph graph = program.build(*Mesh::parse("tp=2"));
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      const FlowOp &op = graph.ops[i];
      // The first op of a node has all of its inputs that the second has not.
      if (op.kind != FlowKind::Compute || op.name == "fc")
        continue;
      for (bool isOperand : {true, false}) {
        const auto &tensors = isOperand ? op.rule.operands : op.rule.results;
        for (size_t t = 0; t < tensors.size(); ++t)
          for (size_t d = 0; d < tensors[t].size(); ++d)
            DimTrial(program, graph, static_cast<int32_t>(i), isOperand, t, d).run(tried);
      }
    }
  }
  WARN(tried.done << " hints done; refused: " << tried.fewer
                  << " ask for more ways than elements, " << tried.inside
                  << " do not divide a loop inside a dim of its own op");
  CHECK(tried.done > 5000);
}

namespace {
/// Every dim of every tensor of an op spelled out: these loops split, all others not.
std::string wholeNode(const FlowOp &op, const std::map<int32_t, int64_t> &ways) {
  auto entry = [&](const std::vector<int32_t> &dim) -> std::string {
    int64_t shards = 1;
    for (int32_t f : dim)
      shards *= ways.count(f) ? ways.at(f) : 1;
    // Which of several loops has them is said by the other tensors.
    return std::to_string(shards);
  };
  auto list = [&](const std::vector<TensorFactors> &tensors) {
    std::string text;
    for (const TensorFactors &tensor : tensors) {
      std::string dims;
      for (const std::vector<int32_t> &dim : tensor)
        dims += (dims.empty() ? "" : ", ") + entry(dim);
      text += (text.empty() ? "[" : ", [") + dims + "]";
    }
    return "[" + text + "]";
  };
  return R"({"nodes": {")" + op.name + R"(": {"in": )" + list(op.rule.operands) +
         R"(, "out": )" + list(op.rule.results) + "}}}";
}

/// Tries one strategy of one op, written out dim by dim. False if the op has no such.
bool tryWhole(const Program &program, const FlowOp &op, int32_t number,
              const std::map<int32_t, int64_t> &ways) {
  std::string mesh;
  for (const auto &[loop, count] : ways) {
    const Factor &factor = op.rule.factors[loop];
    if (factor.kind() == FactorKind::Replicate || factor.size < count ||
        (factor.size % count != 0 && !isMajor(op.rule, loop)))
      return false;
    mesh += (mesh.empty() ? "a=" : ",b=") + std::to_string(count);
  }
  std::string hint = wholeNode(op, ways);
  INFO(hint << " on " << mesh);
  Decided d(program, mesh, hint);
  REQUIRE(d.error() == "");
  CHECK(d.fault() == "");
  for (size_t f = 0; f < op.rule.factors.size(); ++f) {
    int64_t shards = 1;
    for (const DimFactor &sub : d.decision->strategies[number].factors[f].factors)
      shards *= sub.shards();
    auto asked = ways.find(static_cast<int32_t>(f));
    CHECK(shards == (asked == ways.end() ? 1 : asked->second));
  }
  return true;
}
} // namespace

TEST_CASE("hints: every strategy of one op by two loops, written out dim by dim") {
  int done = 0;
  for (const Program &program : {gemm(7, 5, 10), heads(), heads(2, 16), picture(),
                                 gpt2Layer(2, 4, 4, 4), gpt2Layer(1, 7, 2, 16)}) {
    FlowGraph graph = program.build(*Mesh::parse("tp=2"));
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      const FlowOp &op = graph.ops[i];
      if (op.kind != FlowKind::Compute || op.name == "fc")
        continue;
      auto loops = static_cast<int32_t>(op.rule.factors.size());
      for (int32_t a = 0; a < loops; ++a)
        for (int64_t ways = 2; ways <= 6; ++ways) {
          done += tryWhole(program, op, static_cast<int32_t>(i), {{a, ways}});
          for (int32_t b = 0; b < a; ++b)
            done += tryWhole(program, op, static_cast<int32_t>(i), {{a, ways}, {b, 2}});
        }
    }
  }
  WARN(done << " strategies done, none refused");
  CHECK(done > 1000);
}
