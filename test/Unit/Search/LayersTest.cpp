//===- LayersTest.cpp - Programs of equal layers --------------------------===//
#include "RandomProgram.h"

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
  Picos before = free->lowerBound;
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
    CHECK(found->lowerBound <= found->cost.total());
    // A plan for less memory cannot be faster than what is proved for more.
    CHECK(found->cost.total() >= before);
    before = std::max(before, found->lowerBound);
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
