//===- LocalProgramTest.cpp - What one rank runs of a decided program -----===//
//
// That it is what partitioning makes, for whole models: test/E2E/plan-figures.
//
//===----------------------------------------------------------------------===//
#include "../Rule/FlowProgram.h"

#include "partita/Search/LocalProgram.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::search;
using namespace partita::kernels;

/// x [12, 4] · w [4, 6], then a function, over rows that two ranks have.
static Decided splitRows(const FlowGraph &graph) {
  Decided plan;
  for (const FlowOp &op : graph.ops) {
    plan.strategies.push_back(Strategy::replicated(op.rule));
    for (size_t f = 0; f < op.rule.factors.size(); ++f)
      if (op.kind == FlowKind::Compute && op.rule.factors[f].size == 12)
        plan.strategies.back().factors[f].factors[0].axes = graph.mesh.all();
  }
  return plan;
}

static FlowGraph productGraph(const std::string &mesh) {
  Program program;
  program.argument("x", {12, 4});
  program.source("w", {4, 6});
  program.contract("y", "x", "w", "m k, k n -> m n");
  program.elementwise("z", {"y", "y"});
  program.result("z");
  return program.build(*Mesh::parse(mesh));
}

TEST_CASE("local program: slices behind an argument, gathers before a result") {
  FlowGraph graph = productGraph("dp=2");
  std::vector<LocalFunction> functions = localProgram(graph, splitRows(graph));
  REQUIRE(functions.size() == 1);
  const LocalProgram &program = functions[0].program;
  // slice x; read w; product; function; gather; the result.
  REQUIRE(program.ops.size() == 6);
  auto shapeOf = [&](int32_t op) { return program.result(op).shape; };
  CHECK(shapeOf(0) == Shape{6, 4});
  CHECK(program.operand(0, 0).producer == -1);
  CHECK(shapeOf(1) == Shape{4, 6});
  CHECK(program.op(1).operands.empty());
  CHECK(shapeOf(2) == Shape{6, 6});
  CHECK(shapeOf(3) == Shape{6, 6});
  CHECK(program.op(3).operands[0] == program.op(3).operands[1]);
  CHECK(shapeOf(4) == Shape{12, 6});
  CHECK(program.op(5).results.empty());
  CHECK(program.operand(5, 0).producer == 4);
}

TEST_CASE("local program: nothing is converted on one rank") {
  FlowGraph graph = productGraph("dp=1");
  std::vector<LocalFunction> functions = localProgram(graph, splitRows(graph));
  CHECK(functions[0].program.ops.size() == 4);
}

TEST_CASE("local program: padding that is summed is masked, once for all that read it") {
  Program program;
  program.argument("x", {5, 4});
  program.elementwise("y", {"x", "x"});
  program.source("w", {5, 6});
  program.contract("a", "y", "w", "k m, k n -> m n");
  program.contract("b", "y", "w", "k m, k n -> m n");
  program.result("a");
  program.result("b");
  FlowGraph graph = program.build(*Mesh::parse("dp=2"));
  Decided plan;
  for (const FlowOp &op : graph.ops) {
    plan.strategies.push_back(Strategy::replicated(op.rule));
    for (size_t f = 0; f < op.rule.factors.size(); ++f)
      if (op.kind == FlowKind::Compute && op.rule.factors[f].size == 5)
        plan.strategies.back().factors[f] =
            Layout::parse("[{5/6: dp}]", graph.mesh)->dims[0];
  }
  std::vector<LocalFunction> functions = localProgram(graph, plan);
  const LocalProgram &local = functions[0].program;
  std::map<Shape, int> moves; // ops of one operand and as many elements
  for (const LocalOp &op : local.ops)
    if (op.operands.size() == 1 && !op.results.empty() &&
        local.value(op.operands[0]).shape == local.value(op.results[0]).shape)
      ++moves[local.value(op.results[0]).shape];
  // Of y and of w one each; the sums over ranks of a and of b.
  CHECK(moves == std::map<Shape, int>{{{3, 4}, 1}, {{3, 6}, 1}, {{4, 6}, 2}});
}
