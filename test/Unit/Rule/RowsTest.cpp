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
