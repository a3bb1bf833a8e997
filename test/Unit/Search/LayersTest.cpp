//===- LayersTest.cpp - Programs of equal layers --------------------------===//
#include "RandomProgram.h"

#include "partita/Rule/Sharding/Served.h"
#include "partita/Search/Search.h"
#include "partita/Solver/Solve.h"
#include "partita/Topology/Presets.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::search;

/// Residual blocks of a normalization and two products.
static FlowGraph stack(int layers, const Mesh &mesh, int64_t rows = 64,
                       int64_t width = 64) {
  Program program;
  program.argument("x", {rows, width});
  std::string in = "x";
  for (int l = 0; l < layers; ++l) {
    std::string n = std::to_string(l);
    program.rows("norm" + n, in);
    program.work("norm" + n, 4 * rows * width);
    program.source("up.w" + n, {width, 4 * width});
    program.contract("up" + n, "norm" + n, "up.w" + n, "m k, k n -> m n");
    program.work("up" + n, 8 * rows * width * width);
    program.elementwise("act" + n, {"up" + n});
    program.source("down.w" + n, {4 * width, width});
    program.contract("down" + n, "act" + n, "down.w" + n, "m k, k n -> m n");
    program.work("down" + n, 8 * rows * width * width);
    program.elementwise("sum" + n, {in, "down" + n}, {{ReduceKind::Sum, {0, 1}}});
    in = "sum" + n;
  }
  program.result(in);
  return program.build(mesh);
}

static Topology host(const Mesh &mesh) {
  return topologyOfMesh(mesh, *devicePreset("cpu-core"), *levelPreset("shared-memory"),
                        Host{});
}

TEST_CASE("equal layers are found and planned alike; the price is that of all of them") {
  Mesh mesh = *Mesh::parse("dp=2,tp=2");
  Topology topology = host(mesh);
  Placement placement = *Placement::create(mesh, topology);
  Picos perLayer = 0;
  for (int layers : {6, 12, 48}) {
    FlowGraph graph = stack(layers, mesh);
    auto found = search::search(graph, placement, {});
    REQUIRE(found);
    INFO(layers << " layers");
    // The first layer reads the argument, the last is read by the result.
    CHECK(found->tiedLayers + 2 >= static_cast<size_t>(layers));
    // The cost is counted from the plan, the bound is the solver's of one layer.
    CHECK(found->proved);
    if (perLayer)
      CHECK(found->cost.total() == Approx(perLayer * layers).epsilon(0.02));
    perLayer = found->cost.total() / layers;
  }
}

TEST_CASE("equal layers under a memory limit: fits, and the bound holds") {
  Mesh mesh = *Mesh::parse("dp=2,tp=2");
  Topology topology = host(mesh);
  Placement placement = *Placement::create(mesh, topology);
  FlowGraph graph = stack(8, mesh, 512, 64);
  SearchOptions options;
  options.timeLimit = 2;
  auto free = search::search(graph, placement, options);
  REQUIRE(free);
  int64_t most = free->memory.peak();
  Picos before = free->bound.time;
  int fitting = 0;
  for (int percent : {100, 90, 70, 60, 50, 30}) {
    INFO(percent << "% of " << most);
    options.memoryLimit = most * percent / 100;
    auto found = search::search(graph, placement, options);
    if (!found) {
      CHECK(found.error().message.find("infeasible") != std::string::npos);
      continue;
    }
    ++fitting;
    CHECK(found->memory.peak() <= *options.memoryLimit);
    CHECK(found->bound.time <= found->cost.total());
    // A plan for less memory cannot be faster than what is proved for more.
    CHECK(found->cost.total() >= before);
    before = std::max(before, found->bound.time);
    // Plans that may differ from layer to layer are no slower than the bound of the
    // whole program, whoever finds it.
    Timing timing(graph, placement);
    auto model = buildModel(timing, {options.memoryLimit, {}});
    REQUIRE(model);
    solver::SolveOptions solve;
    solve.timeLimit = 1;
    auto untied = solver::solve(model->problem, solve);
    REQUIRE(untied);
    CHECK(static_cast<Picos>(untied->lowerBound) <= found->cost.total());
  }
  CHECK(fitting >= 3);
}

/// A training step of residual products: weights and moments are states, the backward
/// layers follow each other the other way round, each with its updates.
static Program trained(int layers, int64_t rows, int64_t width) {
  Program program;
  auto product = [&](const std::string &name, const std::string &a, const std::string &b,
                     const char *equation) {
    program.contract(name, a, b, equation);
    program.work(name, 2 * rows * width * width);
  };
  program.argument("x", {rows, width});
  for (int l = 0; l < layers; ++l)
    for (const char *state : {"w", "m"})
      program.argument(state + std::to_string(l), {width, width});
  std::string in = "x";
  for (int l = 0; l < layers; ++l) {
    std::string n = std::to_string(l);
    product("up" + n, in, "w" + n, "m k, k n -> m n");
    program.rows("act" + n, "up" + n);
    program.work("act" + n, 4 * rows * width);
    program.elementwise("sum" + n, {in, "act" + n}, {{ReduceKind::Sum, {0, 1}}});
    in = "sum" + n;
  }
  program.elementwise("loss", {in});
  std::string back = "loss";
  for (int l = layers; l-- > 0;) {
    std::string n = std::to_string(l);
    program.elementwise("dact" + n, {back, "up" + n}, {{ReduceKind::Sum, {0}}});
    product("dw" + n, l == 0 ? "x" : "sum" + std::to_string(l - 1), "dact" + n,
            "m k, m n -> k n");
    product("din" + n, "dact" + n, "w" + n, "m n, k n -> m k");
    program.elementwise("m" + n + "'", {"m" + n, "dw" + n}, {{ReduceKind::Sum, {0, 1}}});
    program.elementwise("w" + n + "'", {"w" + n, "m" + n + "'"},
                        {{ReduceKind::Sum, {0, 1}}});
    program.update("m" + n, "m" + n + "'");
    program.update("w" + n, "w" + n + "'");
    program.elementwise("d" + n, {back, "din" + n}, {{ReduceKind::Sum, {0, 1}}});
    back = "d" + n;
  }
  return program;
}

TEST_CASE("layers of a training step are one class, forward and backward, at any depth") {
  Mesh mesh = *Mesh::parse("dp=2,tp=2");
  Topology topology = host(mesh);
  Placement placement = *Placement::create(mesh, topology);
  Picos perLayer = 0;
  for (int layers : {8, 16, 64}) {
    INFO(layers << " layers");
    FlowGraph graph = trained(layers, 256, 256).build(mesh);
    auto found = search::search(graph, placement, {});
    REQUIRE(found);
    CHECK(found->tiedLayers + 2 >= static_cast<size_t>(layers));
    CHECK(found->gap() <= 1e-6);
    if (perLayer)
      CHECK(found->cost.total() == Approx(perLayer * layers).epsilon(0.03));
    perLayer = found->cost.total() / layers;
    // A layer's parameter lies as the next one's, and is updated there as it is.
    std::set<std::string> weights, updates;
    for (size_t op = 0; op < graph.ops.size(); ++op) {
      const FlowOp &it = graph.ops[op];
      std::string strategy = found->plan.strategies[op].str(mesh, it.rule);
      if (it.kind == FlowKind::State && it.name[0] == 'w')
        weights.insert(strategy);
      if (it.kind == FlowKind::Compute && it.name[0] == 'w')
        updates.insert(strategy);
    }
    CHECK(weights.size() <= 3);
    CHECK(updates.size() <= 3);
  }
}

TEST_CASE("tying the layers of a step does not make its plan slower") {
  Mesh mesh = *Mesh::parse("dp=2,tp=2");
  Topology topology = host(mesh);
  Placement placement = *Placement::create(mesh, topology);
  FlowGraph graph = trained(6, 128, 128).build(mesh);
  SearchOptions options;
  options.timeLimit = 10;
  auto tied = search::search(graph, placement, options);
  options.tieLayers = false;
  auto free = search::search(graph, placement, options);
  REQUIRE(tied);
  REQUIRE(free);
  CHECK(static_cast<double>(tied->cost.total()) <=
        1.01 * static_cast<double>(free->cost.total()));
  CHECK(tied->cost.total() >= free->bound.time);
}

TEST_CASE("a step that cannot keep its gathered weights gathers them for each pass") {
  Mesh mesh = *Mesh::parse("dp=8");
  Topology topology = host(mesh);
  Placement placement = *Placement::create(mesh, topology);
  // Rows are many, so that products want them split; of 16 layers the gathered weights
  // are a third of what is in use.
  FlowGraph graph = trained(16, 2048, 512).build(mesh);
  Timing timing(graph, placement);
  SearchOptions options;
  auto free = search::search(graph, placement, options);
  REQUIRE(free);
  options.memoryLimit = free->memory.peak() * 3 / 4;
  auto found = search::search(graph, placement, options);
  REQUIRE(found);
  CHECK(free->memory.peak() > *options.memoryLimit);
  CHECK(found->memory.peak() <= *options.memoryLimit);
  CHECK(found->cost.total() == evaluate(timing, found->plan).total());
  size_t again = 0;
  for (const auto &[value, served] : found->plan.servings) {
    std::map<std::string, int> readings;
    for (const ServedLayout &entry : served)
      ++readings[entry.layout.str(mesh)];
    again += std::any_of(readings.begin(), readings.end(),
                         [](const auto &it) { return it.second > 1; });
    // As plan files say it, it is the same.
    auto entries = servedEntries(graph, found->plan.strategies, value, served);
    auto read = serveBy(graph, found->plan.strategies, value, entries);
    REQUIRE(read);
    REQUIRE(read->size() == served.size());
    for (size_t i = 0; i < served.size(); ++i)
      CHECK((*read)[i].uses == served[i].uses);
  }
  CHECK(again > 0);
}
