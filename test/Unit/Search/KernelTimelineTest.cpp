//===- KernelTimelineTest.cpp - Kernels beside communication --------------===//
#include "../Rule/FlowProgram.h"

#include "partita/Rule/Sharding/OperandForm.h"
#include "partita/Search/KernelPrice.h"
#include "partita/Search/KernelTimeline.h"
#include "partita/Topology/Presets.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::search;

static constexpr int64_t layers = 3;

/// A product per layer, by a weight that a step learns.
static Program chain() {
  Program program;
  program.argument("h0", {64, 256});
  for (int64_t i = 0; i < layers; ++i) {
    const std::string w = "layers." + std::to_string(i) + ".weight",
                      h = "h" + std::to_string(i);
    program.argument(w, {256, 256});
    program.contract("h" + std::to_string(i + 1), h, w, "m k, k n -> m n");
  }
  auto weight = [](int64_t layer) {
    return "layers." + std::to_string(layer) + ".weight";
  };
  for (int64_t i = 0; i < layers; ++i) {
    program.elementwise("new " + weight(i), {weight(i)});
    program.backward(weight(i), "new " + weight(i), Phase::Update);
  }
  program.result("h" + std::to_string(layers));
  for (int64_t i = 0; i < layers; ++i)
    program.learn(weight(i), "new " + weight(i));
  return program;
}

namespace {
/// Four ranks that share the rows and the weights of the chain.
struct Sharded {
  explicit Sharded(double contention = 1)
      : graph(chain().build(*Mesh::parse("fsdp=4"))), topology(server(contention)),
        placement(*Placement::create(graph.mesh, topology)), timing(graph, placement) {
    for (const FlowOp &op : graph.ops) {
      const TensorFactors &tensor =
          op.rule.results.empty() ? op.rule.operands[0] : op.rule.results[0];
      const std::vector<int64_t> shape = op.rule.shape(tensor);
      Layout layout = Layout::replicated(shape);
      layout.dims[0].factors[0].axes = graph.mesh.all();
      plan.strategies.push_back(strategyForLayout(op.rule, tensor, layout));
    }
    functions = localProgram(graph, plan);
  }

  static Topology server(double contention) {
    Topology topology{*devicePreset("A100-80GB"), {*levelPreset("nvlink3")}, {}};
    topology.levels[0].size = 4;
    topology.device.contention = Contention({contention, 1, 1, 1, 1, 1});
    return topology;
  }

  /// The timeline if each product takes so long.
  KernelTimeline run(Picos product) const {
    std::vector<Picos> kernels;
    for (size_t o = 0; o < functions[0].program.ops.size(); ++o) {
      const FlowOp &op = graph.ops[static_cast<size_t>(functions[0].flowOps[o])];
      kernels.push_back(functions[0].isOwn[o] && isMatmul(op) ? product : 0);
    }
    return timelineOf(timing, functions[0], kernels);
  }

  FlowGraph graph;
  Topology topology;
  Placement placement;
  Timing timing;
  Decided plan;
  std::vector<LocalFunction> functions;
};
} // namespace

TEST_CASE("kernel timeline: gathers of weights are told by layer") {
  const Sharded it;
  REQUIRE(it.functions.size() == 1);
  std::vector<int32_t> layersOf, parameters;
  for (const buckets::Op &op : describeOps(it.graph, it.functions[0]))
    if (op.call) {
      CHECK(op.call->gathersWeight());
      CHECK(op.call->bytes == 256 * 256 * 4);
      CHECK(op.call->held == 256 * 256 * 5);
      layersOf.push_back(op.call->layer);
      parameters.push_back(op.call->parameter);
    }
  CHECK(layersOf == std::vector<int32_t>{0, 1, 2});
  CHECK(parameters == std::vector<int32_t>{0, 1, 2});
}

TEST_CASE("kernel timeline: a layer's weights come while the one before is computed") {
  const Sharded it;
  const Picos gather = it.run(0).alone / layers;
  REQUIRE(gather > 0);
  CHECK(it.run(0).calls == layers);
  CHECK(it.run(0).time == layers * gather);
  for (Picos product : {gather / 2, gather, 3 * gather}) {
    const KernelTimeline line = it.run(product);
    const Picos beside = std::max(product, gather);
    CHECK(line.time == gather + (layers - 1) * beside + product);
    CHECK(line.alone == layers * gather);
  }
  // Contention slows both.
  const KernelTimeline slow = Sharded(1.5).run(gather);
  CHECK(slow.time == Approx(static_cast<double>(2 * gather) +
                            1.5 * static_cast<double>((layers - 1) * gather)));
}

TEST_CASE("kernel price: what a stack overlaps is no longer than one after the other") {
  Sharded it;
  const kernels::Target target = kernelTarget(it.topology.device);
  const PlanCost alone = priceKernels(it.timing, it.plan, target);
  CHECK(alone.hidden == 0);
  it.topology.stack.overlaps = true;
  Sharded other;
  other.topology = it.topology;
  const Placement placement = *Placement::create(other.graph.mesh, other.topology);
  Timing timing(other.graph, placement);
  const PlanCost beside = priceKernels(timing, other.plan, target);
  CHECK(beside.compute == alone.compute);
  CHECK(beside.conversions == alone.conversions);
  CHECK(beside.hidden > 0);
  CHECK(beside.calls == layers);
  CHECK(beside.total() == alone.total() - beside.hidden);
}
