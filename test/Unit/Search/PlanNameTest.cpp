//===- PlanNameTest.cpp - Names and throughput of plans -------------------===//
#include "../Rule/FlowProgram.h"

#include "partita/Rule/Decide/Decide.h"
#include "partita/Rule/Sharding/OperandForm.h"
#include "partita/Search/Meshes.h"
#include "partita/Search/PlanName.h"
#include "partita/Search/Throughput.h"
#include "partita/Topology/Presets.h"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace partita;
using namespace partita::search;

/// The name of the plan by hints.
static std::string nameBy(
    const Program &program, const std::string &mesh, ShardMode mode,
    const std::string &hints,
    const std::function<void(const FlowGraph &, std::vector<Strategy> &)> &change = {}) {
  FlowGraph graph = program.build(*Mesh::parse(mesh));
  auto json = parseJson(hints, "hints");
  REQUIRE(json);
  auto read = Hints::parse(*json);
  REQUIRE(read);
  auto decision = decide(graph, mode, *read);
  REQUIRE(decision);
  return planName(graph, decision->strategies);
}

static Program mlp() {
  Program p;
  p.argument("x", {16, 12, 8});
  p.source("w1", {8, 32});
  p.source("w2", {32, 8});
  p.contract("h", "x", "w1", "b s k, k n -> b s n");
  p.work("h", 1000);
  p.elementwise("r", {"h"});
  p.contract("y", "r", "w2", "b s k, k n -> b s n");
  p.work("y", 1000);
  p.result("y");
  return p;
}

TEST_CASE("plans have the names that people know") {
  const std::string columns = R"({"tensors": {"w1": [null, "tp"]}})";
  CHECK(nameBy(mlp(), "", ShardMode::DataParallel, "{}") == "1 device");
  CHECK(nameBy(mlp(), "dp=4", ShardMode::DataParallel, "{}") == "DP4");
  CHECK(nameBy(mlp(), "x=2,y=2", ShardMode::DataParallel, "{}") == "DP4");
  CHECK(nameBy(mlp(), "dp=2,tp=4", ShardMode::DataParallel, columns) == "TP4·DP2");
  CHECK(nameBy(mlp(), "dp=2,tp=4", ShardMode::SemiAuto, columns) == "TP4·Replicated2");
  CHECK(nameBy(mlp(), "n=4", ShardMode::SemiAuto,
               R"({"tensors": {"x": [null, "n", null]}})") == "CP4");
  // Between products with split weights, on the same axis.
  CHECK(nameBy(mlp(), "tp=4", ShardMode::SemiAuto, columns) == "TP4");
  Program between = mlp();
  between.elementwise("r1", {"y"});
  between.elementwise("r2", {"r1"});
  between.result("r2");
  const std::string both =
      R"({"tensors": {"w1": [null, "tp"], "r1": [null, "tp", null]}})";
  CHECK(nameBy(between, "tp=4", ShardMode::SemiAuto, columns) == "TP4");
  CHECK(nameBy(between, "tp=4", ShardMode::SemiAuto, both) == "TP/SP4");
  // Half of the work is done so, half so.
  Program mixed = mlp();
  mixed.source("w3", {8, 32});
  mixed.argument("z", {16, 8});
  mixed.contract("v", "z", "w3", "b k, k n -> b n");
  mixed.work("v", 2000);
  mixed.result("v");
  CHECK(nameBy(mixed, "tp=4", ShardMode::SemiAuto,
               R"({"tensors": {"w3": [null, "tp"], "x": ["tp", null, null]}})") ==
        "TP/DP4");
}

TEST_CASE("weights of experts that are apart are expert parallelism") {
  Program p;
  p.argument("x", {64, 8});
  p.argument("dispatch", {64, 4, 16});
  p.source("w", {4, 8, 32});
  p.contract("rows", "dispatch", "x", "t e c, t d -> e c d");
  p.work("rows", 10);
  p.contract("y", "rows", "w", "e c d, e d f -> e c f");
  p.work("y", 1000);
  p.result("y");
  CHECK(nameBy(p, "ep=4", ShardMode::SemiAuto,
               R"({"tensors": {"w": ["ep", null, null]}})") == "EP4");
}

TEST_CASE("what of a training step is in parts over replicas is a level of ZeRO") {
  Program p;
  p.argument("x", {16, 8});
  p.source("w", {8, 32}, FlowKind::State);
  p.source("m", {8, 32}, FlowKind::State);
  p.contract("y", "x", "w", "b k, k n -> b n");
  p.work("y", 1000);
  p.contract("g", "x", "y", "b k, b n -> k n");
  p.work("g", 1000);
  p.backward("y", "g", Phase::Weight);
  p.elementwise("m_next", {"m", "g"});
  p.elementwise("w_next", {"w", "m_next"});
  p.update("m", "m_next");
  p.update("w", "w_next");
  auto splits = [](std::vector<std::string> names) {
    return [names](const FlowGraph &graph, std::vector<Strategy> &strategies) {
      for (size_t o = 0; o < graph.ops.size(); ++o) {
        const FlowOp &op = graph.ops[o];
        if (op.kind != FlowKind::State ||
            !std::ranges::count(names, graph.values[size_t(op.results[0])].name))
          continue;
        Layout layout = Layout::replicated({8, 32});
        layout.dims[0].factors[0].axes = primes({AxisRef{0, 1, 4}});
        strategies[o] = strategyForLayout(op.rule, op.rule.results[0], layout);
      }
    };
  };
  auto nameWith = [&](auto change) {
    FlowGraph graph = p.build(*Mesh::parse("dp=4"));
    for (FlowOp &op : graph.ops) {
      op.isBatch = op.kind == FlowKind::Argument;
      op.isParameter = op.kind == FlowKind::State && op.name == "w";
    }
    auto decision = decide(graph, ShardMode::DataParallel, Hints());
    REQUIRE(decision);
    std::vector<Strategy> strategies = decision->strategies;
    change(graph, strategies);
    return planName(graph, strategies);
  };
  CHECK(nameWith(splits({})) == "DP4");
  CHECK(nameWith(splits({"m"})) == "DP4·ZeRO-1");
  CHECK(nameWith(splits({"m", "w"})) == "DP4·ZeRO-3");
}

TEST_CASE("throughput is of model FLOPs: what is computed again does not count") {
  Program p = mlp();
  p.contract("again", "x", "w1", "b s k, k n -> b s n");
  p.work("again", 1000);
  p.recomputed("h", "again");
  p.repeats("again", "h");
  FlowGraph graph = p.build(*Mesh::parse(""));
  ModelWork work = modelWork(graph);
  REQUIRE(work.flops.size() == 1);
  CHECK(work.flops[0] == std::pair(DType::F32, 2000.0));
  CHECK(work.samples == 16);
  CHECK_FALSE(work.tokens);
  Device device;
  device.peak = {{DType::F32, 1000}};
  Throughput got = throughputOf(work, device, 4, 2);
  CHECK(got.flopsPerDevice == Approx(250));
  CHECK(got.utilization == Approx(0.25));
  CHECK(got.samplesPerSecond == Approx(8));
  CHECK(got.tokensPerSecond == 0);
  // Rows of integers are tokens; two batches are no batch.
  for (FlowValue &value : graph.values)
    if (value.name == "x")
      value.type = DType::I64, value.shape = {16, 12};
  CHECK(modelWork(graph).tokens == 16 * 12);
  Program other = mlp();
  other.argument("z", {3});
  other.result("z");
  CHECK_FALSE(modelWork(other.build(*Mesh::parse(""))).samples);
}

TEST_CASE("the batch is that of the inputs that have one") {
  // Positions of one row for all, and of no row: both belong to s.
  Program p = mlp();
  p.argument("row", {1, 12});
  p.argument("positions", {12});
  p.source("v", {8});
  p.contract("placed", "y", "positions", "b s k, s -> b s k");
  p.contract("scale", "row", "v", "o s, k -> o s k");
  p.elementwise("rowed", {"placed", "scale"});
  p.result("placed");
  p.result("rowed");
  FlowGraph graph = p.build(*Mesh::parse(""));
  CHECK(modelWork(graph).samples == 16);
  // As of a training step: nothing says which dim of what is the batch.
  Program step;
  step.argument("x", {16, 12});
  step.argument("row", {1, 12});
  step.source("w", {12});
  step.contract("loss", "x", "w", "b s, s -> ");
  step.contract("other", "row", "w", "o s, s -> ");
  FlowGraph ofStep = step.build(*Mesh::parse(""));
  for (FlowValue &value : ofStep.values)
    if (value.name == "x" || value.name == "row")
      value.type = DType::I64;
  CHECK(modelWork(ofStep).samples == 16);
  CHECK(modelWork(ofStep).tokens == 16 * 12);
}

TEST_CASE("axes of meshes that a search chooses are called like no loop") {
  Topology topology{*devicePreset("cpu-core"), {*levelPreset("shared-memory")}, {}};
  topology.levels[0].size = 64;
  std::vector<Mesh> meshes = meshesOf(topology, 3);
  CHECK(meshes.size() > 10);
  for (const Mesh &mesh : meshes)
    for (const Mesh::Axis &axis : mesh.axes())
      CHECK(axis.name.starts_with("axis"));
  ShardingRule rule;
  for (int i = 0; i < 200; ++i)
    rule.addFactor(2);
  for (size_t f = 0; f < rule.factors.size(); ++f)
    CHECK_FALSE(rule.loopName(f).starts_with("axis"));
}
