//===- RowsTest.cpp - Whether rows of a batch are apart -------------------===//
#include "FlowProgram.h"

#include "partita/Rule/Sharding/Rows.h"

#include <catch2/catch.hpp>

using namespace partita;

/// The name of the op that joins rows; "" if none does.
static std::string joiner(const Program &program, const std::string &output) {
  FlowGraph graph = program.build(Mesh());
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (graph.ops[i].name == "result of " + output) {
      int32_t op = joinsRows(graph, static_cast<int32_t>(i));
      return op < 0 ? "" : graph.ops[static_cast<size_t>(op)].name;
    }
  FAIL("no output " << output);
  return "";
}

TEST_CASE("products, positions and heads leave rows of a batch apart") {
  Program program;
  program.argument("x", {6, 4, 8});
  program.source("w", {8, 8});
  program.source("positions", {4, 8});
  program.elementwise("p", {"x", "positions"});
  program.reshape("tokens", "p", {24, 8});
  program.contract("q", "tokens", "w", "t k, k n -> t n");
  program.reshape("heads", "q", {6, 4, 2, 4});
  program.transpose("turned", "heads", {0, 2, 1, 3});
  program.contract("scores", "turned", "turned", "b h s d, b h t d -> b h s t");
  program.rows("softmax", "scores");
  program.result("softmax");
  CHECK(joiner(program, "softmax") == "");
}

TEST_CASE("what joins rows of a batch is named") {
  Program program;
  program.argument("x", {6, 8});
  program.source("w", {8, 6});
  SECTION("a sum over the batch") {
    program.contract("gram", "x", "x", "b k, b n -> k n");
    program.contract("y", "x", "gram", "b k, k n -> b n");
    program.result("y");
    CHECK(joiner(program, "y") == "gram");
  }
  SECTION("rows that meet each other") {
    program.contract("pairs", "x", "x", "b k, c k -> b c");
    program.result("pairs");
    CHECK(joiner(program, "pairs") == "pairs");
  }
  SECTION("a result whose first dim is another") {
    program.transpose("turned", "x", {1, 0});
    program.result("turned");
    CHECK(joiner(program, "turned") == "result of turned");
  }
  SECTION("some of the rows") {
    program.slice("half", "x", {3, 8}, {0, 0});
    program.result("half");
    CHECK(joiner(program, "half") == "half");
  }
  SECTION("rows that are columns too") {
    program.contract("square", "x", "w", "b k, k n -> b n");
    program.transpose("turned", "square", {1, 0});
    program.elementwise("sum", {"square", "turned"});
    program.result("sum");
    CHECK(joiner(program, "sum") != "");
  }
  SECTION("a parameter with rows") {
    program.source("own", {6, 8}, FlowKind::State);
    program.elementwise("y", {"x", "own"});
    program.result("y");
    CHECK(joiner(program, "y") == "own");
  }
}

TEST_CASE("what the output does not depend on may join rows") {
  Program program;
  program.argument("x", {6, 8});
  program.source("w", {8, 4});
  program.contract("gram", "x", "x", "b k, b n -> k n");
  program.contract("y", "x", "w", "b k, k n -> b n");
  program.result("gram");
  program.result("y");
  CHECK(joiner(program, "y") == "");
  CHECK(joiner(program, "gram") == "gram");
}

/// The ends of a program whose arguments all have the batch.
static BatchEnds endsOf(const FlowGraph &graph) {
  BatchEnds ends;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (graph.ops[i].kind == FlowKind::Argument)
      ends.carriers.push_back(static_cast<int32_t>(i));
    if (graph.ops[i].kind == FlowKind::Sink)
      ends.sinks.push_back(static_cast<int32_t>(i));
  }
  return ends;
}

/// "op: layout of its result" of every op that has rows.
static std::string partsText(const Program &program, const std::string &mesh) {
  FlowGraph graph = program.build(*Mesh::parse(mesh));
  auto parts = partsOfRows(graph, endsOf(graph));
  if (!parts)
    return parts.error().message;
  if (parts->joined >= 0)
    return "meet in " + graph.ops[static_cast<size_t>(parts->joined)].name;
  std::string text;
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (!parts->strategies[i].axes().empty() && !graph.ops[i].rule.results.empty())
      text += graph.ops[i].name + ": " +
              resultLayout(graph.ops[i].rule, parts->strategies[i], 0).str(graph.mesh) +
              "\n";
  return text;
}

TEST_CASE("parts of rows: what is flattened, turned and read of constants follows") {
  Program program;
  program.argument("x", {6, 4, 8});
  program.source("w", {8, 8});
  program.source("positions", {6, 4, 8});
  program.elementwise("p", {"x", "positions"});
  program.reshape("tokens", "p", {24, 8});
  program.contract("q", "tokens", "w", "t k, k n -> t n");
  program.reshape("apart", "q", {6, 4, 8});
  program.transpose("turned", "apart", {1, 0, 2});
  program.elementwise("act", {"turned"});
  program.transpose("back", "act", {1, 0, 2});
  program.result("back");
  CHECK(partsText(program, "batch=3") == "x: [{6: batch}, {4}, {8}]\n"
                                         "p: [{6: batch}, {4}, {8}]\n"
                                         "tokens: [{6: batch}*{4}, {8}]\n"
                                         "q: [{6: batch}*{4}, {8}]\n"
                                         "apart: [{6: batch}, {4}, {8}]\n"
                                         "turned: [{4}, {6: batch}, {8}]\n"
                                         "act: [{4}, {6: batch}, {8}]\n"
                                         "back: [{6: batch}, {4}, {8}]\n");
  CHECK(partsText(program, "batch=4") ==
        "dim 0 of 'x' is 6, which 4 parts do not divide");
}

TEST_CASE("parts of rows: groups of rows may meet within a part") {
  Program program;
  program.argument("x", {8, 4});
  program.reshape("groups", "x", {4, 2, 4});
  program.rows("sorted", "groups");
  program.transpose("turned", "sorted", {0, 2, 1});
  program.rows("among", "turned");
  program.transpose("again", "among", {0, 2, 1});
  program.reshape("y", "again", {8, 4});
  program.result("y");
  CHECK(partsText(program, "batch=8") == "meet in among");
  CHECK(partsText(program, "batch=4").find("among: [{4: batch}, {4}, {2}]") !=
        std::string::npos);
  CHECK(joiner(program, "y") == "among");
  Program odd;
  odd.argument("x", {6, 4});
  odd.reshape("groups", "x", {3, 2, 4});
  odd.result("groups");
  CHECK(partsText(odd, "batch=2") ==
        "dim 0 of 'x' is 3 of 2, which 2 parts do not divide");
}

TEST_CASE("parts of rows: one constant may be read in parts and whole") {
  Program program;
  program.argument("x", {4, 4});
  program.source("c", {4, 4});
  program.elementwise("sum", {"x", "c"});
  program.contract("y", "sum", "c", "b k, k n -> b n");
  program.result("y");
  CHECK(partsText(program, "batch=2").find("y: [{4: batch}, {4}]") != std::string::npos);
}
