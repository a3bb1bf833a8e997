//===- KernelPriceTest.cpp - What a plan takes by its kernels -------------===//
#include "../Rule/FlowProgram.h"

#include "partita/Cost/Compute.h"
#include "partita/Search/KernelPrice.h"
#include "partita/Topology/Presets.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::search;
using kernels::OpFacts;
using kernels::Post;

namespace {
/// A program on one rank, priced both ways.
struct OneRank {
  OneRank(const Program &program, Topology of)
      : graph(program.build(*Mesh::parse("r=1"))), topology(std::move(of)),
        placement(*Placement::create(graph.mesh, topology)) {
    for (FlowOp &op : graph.ops)
      if (op.kind == FlowKind::Compute)
        op.facts =
            isMatmul(op) ? OpFacts::engine(true) : OpFacts::pointwise(1, Post::Add);
    for (const FlowOp &op : graph.ops)
      plan.strategies.push_back(Strategy::replicated(op.rule));
    timing.emplace(graph, placement);
    byPairs = evaluate(*timing, plan);
    byKernels = priceKernels(*timing, plan, kernelTarget(topology.device));
  }

  FlowGraph graph;
  Topology topology;
  Placement placement;
  Decided plan;
  std::optional<Timing> timing;
  PlanCost byPairs, byKernels;
};
} // namespace

static Topology oneDevice() { return {*devicePreset("A100-80GB"), {}, {}}; }

static constexpr double bytes = 4.0 * 1024 * 1024;

/// a, b, c, d of one size; b and c are read twice.
static Program diamond() {
  Program program;
  program.argument("x", {1024, 1024});
  program.elementwise("a", {"x"});
  program.elementwise("b", {"a", "a"});
  program.elementwise("c", {"b"});
  program.elementwise("d", {"b", "c"});
  program.result("d");
  return program;
}

TEST_CASE("kernel price: what one kernel reads twice is neither written nor read") {
  const OneRank it(diamond(), oneDevice());
  CHECK(it.byKernels.passes[0].launches == 1);
  CHECK(it.byKernels.compute == picosOf(groupSeconds(it.topology.device, 2 * bytes)));
  CHECK(it.byPairs.compute > it.byKernels.compute);
}

TEST_CASE("kernel price: a function of a product is a post-op, or a kernel") {
  Program program;
  program.argument("x", {1024, 256});
  program.source("w", {256, 1024});
  program.source("r", {1024, 1024});
  program.contract("y", "x", "w", "m k, k n -> m n");
  program.work("y", 2 * 1024 * 1024 * 256);
  program.elementwise("z", {"y", "r"});
  program.result("z");
  Topology topology = oneDevice();
  const double product = matmulSeconds(topology.device, DType::F32, {1, 1024, 1024, 256});
  const OneRank joined(program, topology);
  CHECK(joined.byKernels.passes[0].launches == 1);
  CHECK(joined.byKernels.compute ==
        picosOf(product + streamSeconds(topology.device, bytes)));
  topology.device.matmul.functionsApart = true;
  const OneRank apart(program, topology);
  CHECK(apart.byKernels.passes[0].launches == 2);
  CHECK(apart.byKernels.compute ==
        picosOf(product + groupSeconds(topology.device, 3 * bytes)));
}

TEST_CASE("kernel price: a step takes the longer of the device and its host") {
  Topology topology = oneDevice();
  topology.stack = {"slow", 1e-3, 5e-3, false};
  const OneRank slow(diamond(), topology);
  // Launches of a backward pass that is not there do not count.
  CHECK(slow.byKernels.total() == picosOf(1e-3));
  CHECK(slow.byKernels.waiting == picosOf(1e-3) - slow.byKernels.compute);
  CHECK(slow.byPairs.waiting == 0);
  topology.stack.launch = 1e-9;
  const OneRank fast(diamond(), topology);
  CHECK(fast.byKernels.waiting == 0);
  CHECK(fast.byKernels.total() == fast.byKernels.compute);
}
