//===- StatesTest.cpp - Tensors that stay in their place ------------------===//
#include "FlowProgram.h"

#include "partita/Rule/Sharding/AssignStrategies.h"
#include "partita/Rule/Sharding/OperandForm.h"

#include <catch2/catch.hpp>

using namespace partita;

namespace {
/// A step of gradient descent: y = x w; w becomes w − xᵀ y.
Program step() {
  Program program;
  program.argument("x", {8, 12});
  program.argument("w", {12, 6});
  program.contract("y", "x", "w", "b k, k n -> b n");
  program.contract("g", "x", "y", "b k, b n -> k n");
  program.elementwise("next", {"w", "g"}, {{ReduceKind::Sum, {0, 1}}});
  program.result("y");
  program.update("w", "next");
  return program;
}

int32_t opNamed(const FlowGraph &graph, const std::string &name) {
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (graph.ops[i].name == name)
      return static_cast<int32_t>(i);
  FAIL("no op " << name);
  return -1;
}

/// Atoms of the dim of a tensor that an op gives, or takes.
std::vector<int32_t> given(const FlowGraph &graph, const std::string &name, size_t dim) {
  int32_t op = opNamed(graph, name);
  return graph.dimAtoms(op, graph.ops[op].rule.results[0][dim]);
}
std::vector<int32_t> taken(const FlowGraph &graph, const std::string &name, size_t dim) {
  int32_t op = opNamed(graph, name);
  return graph.dimAtoms(op, graph.ops[op].rule.operands[0][dim]);
}

std::vector<Strategy> decided(const FlowGraph &graph, const std::vector<Seed> &seeds) {
  auto propagated = propagate(graph, seeds);
  REQUIRE(propagated);
  return strategiesOf(graph, propagated->axes, seeds);
}

std::string layoutOf(const FlowGraph &graph, const std::vector<Strategy> &strategies,
                     const std::string &name, bool asOperand = false) {
  int32_t op = opNamed(graph, name);
  const ShardingRule &rule = graph.ops[op].rule;
  return (asOperand ? operandLayout(rule, strategies[op], 0)
                    : resultLayout(rule, strategies[op], 0))
      .canonicalized()
      .str(graph.mesh);
}
} // namespace

TEST_CASE("a state goes out in the layout in which it came, whoever asks for it") {
  FlowGraph graph = step().build(*Mesh::parse("dp=2"));
  const std::string sink = "result of next";
  auto seed = [&](const std::vector<int32_t> &dim) {
    return std::vector<Seed>{{dim[0], {{0, 1, 2}}, "hint", 0}};
  };
  for (const auto &seeds : {seed(given(graph, "w", 0)), seed(taken(graph, sink, 0)),
                            seed(given(graph, "next", 0))}) {
    auto strategies = decided(graph, seeds);
    CHECK(layoutOf(graph, strategies, "w") == "[{12: dp}, {6}]");
    CHECK(layoutOf(graph, strategies, sink, true) == "[{12: dp}, {6}]");
    CHECK(layoutOf(graph, strategies, "next") == "[{12: dp}, {6}]");
  }
}

TEST_CASE("a state is not settled from its users, and is not made partial for them") {
  FlowGraph graph = step().build(*Mesh::parse("dp=2"));
  // Data parallel: the gradient is partial, what becomes of the weight is not.
  auto strategies = decided(graph, {{given(graph, "x", 0)[0], {{0, 1, 2}}, "batch", 0}});
  CHECK(layoutOf(graph, strategies, "w") == "[{12}, {6}]");
  CHECK(layoutOf(graph, strategies, "g") == "[{12}, {6}] partial sum {dp}");
  CHECK(strategies[opNamed(graph, "next")].passing.empty());
}

TEST_CASE("cuts go through a state, from what it becomes to what reads it") {
  Program program;
  program.argument("w", {12, 6});
  program.rows("read", "w");
  program.argument("d", {3, 4, 6});
  program.reshape("next", "d", {12, 6});
  program.result("read");
  program.update("w", "next");
  FlowGraph graph = program.build(*Mesh::parse("tp=3"));
  auto sizes = [&](const std::vector<int32_t> &atoms) {
    std::vector<int64_t> list;
    for (int32_t a : atoms)
      list.push_back(graph.atoms[a].size);
    return list;
  };
  CHECK(sizes(given(graph, "w", 0)) == std::vector<int64_t>{3, 4});
  CHECK(sizes(given(graph, "read", 0)) == std::vector<int64_t>{3, 4});
}

TEST_CASE("an uneven state has one padded extent at both ends") {
  FlowGraph graph = step().build(*Mesh::parse("dp=5"));
  auto strategies = decided(graph, {{given(graph, "w", 0)[0], {{0, 1, 5}}, "hint", 0}});
  CHECK(layoutOf(graph, strategies, "w") == "[{12/15: dp}, {6}]");
  CHECK(layoutOf(graph, strategies, "result of next", true) == "[{12/15: dp}, {6}]");
}

TEST_CASE("a state that nothing changes is one") {
  Program program;
  program.argument("w", {4, 6});
  program.update("w", "w");
  FlowGraph graph = program.build(*Mesh::parse("tp=2"));
  auto strategies = decided(graph, {{given(graph, "w", 0)[0], {{0, 1, 2}}, "hint", 0}});
  CHECK(layoutOf(graph, strategies, "result of w", true) == "[{4: tp}, {6}]");
}
