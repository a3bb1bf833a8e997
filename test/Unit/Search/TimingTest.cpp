//===- TimingTest.cpp - What ops of a program are priced as ---------------===//
#include "../Rule/FlowProgram.h"

#include "partita/Cost/Winograd.h"
#include "partita/Search/Timing.h"
#include "partita/Topology/Placement.h"
#include "partita/Topology/Presets.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::search;

namespace {
struct Priced {
  Priced(const Program &program, const std::string &mesh, const Device &device)
      : graph(program.build(*Mesh::parse(mesh))),
        topology(topologyOfMesh(graph.mesh, device, *levelPreset("shared-memory"), {})),
        placement(*Placement::create(graph.mesh, topology)), timing(graph, placement) {}

  int32_t number(const std::string &name) const {
    for (size_t i = 0; i < graph.ops.size(); ++i)
      if (graph.ops[i].name == name)
        return static_cast<int32_t>(i);
    FAIL("no op is named " << name);
    return -1;
  }
  /// Nothing split, but this loop of the op over all axes.
  Picos time(const std::string &name, int32_t split = -1) const {
    int32_t op = number(name);
    const ShardingRule &rule = graph.ops[static_cast<size_t>(op)].rule;
    Strategy strategy = Strategy::replicated(rule);
    if (split >= 0)
      strategy.factors[static_cast<size_t>(split)].factors[0].axes = graph.mesh.all();
    return timing.op(op, strategy);
  }
  int32_t result(const std::string &name) const {
    return graph.ops[static_cast<size_t>(number(name))].results[0];
  }

  FlowGraph graph;
  Topology topology;
  Placement placement;
  Timing timing;
};
} // namespace

/// The program's convolution is called "y", its loops are n, c, o, height, … in order.
static Program convProgram(Shape image, Shape filter, int64_t stride = 1,
                           int64_t dilation = 1, FlowKind kind = FlowKind::Source) {
  Program program;
  program.argument("x", std::move(image));
  program.source("w", std::move(filter), kind);
  program.conv("y", "x", "w", stride, dilation);
  program.result("y");
  return program;
}
static constexpr int32_t channels = 1, outputs = 2, height = 3;

TEST_CASE("timing: a convolution is priced as it is computed, by local sizes") {
  const Device device = *devicePreset("cpu-core");
  Priced conv(convProgram({2, 64, 16, 12}, {32, 64, 3, 3}), "r=4", device);
  auto priced = [&](const WinogradShape &shape) {
    return picosOf(convSeconds(device, shape));
  };
  CHECK(conv.time("y") == priced({2, 16, 12, 64, 32}));
  CHECK(conv.time("y", channels) == priced({2, 16, 12, 16, 32}));
  CHECK(conv.time("y", height) == priced({2, 4, 12, 64, 32}));
  // With 8 output channels it is a product.
  CHECK(conv.time("y", outputs) ==
        picosOf(matmulSeconds(device, DType::F32, {1, 2 * 16 * 12, 8, 9 * 64})));
  CHECK(conv.time("y") <
        picosOf(matmulSeconds(device, DType::F32, {1, 2 * 16 * 12, 32, 9 * 64})));
  // A filter that is no constant, as in training, is transformed in each run.
  Priced trained(convProgram({2, 64, 16, 12}, {32, 64, 3, 3}, 1, 1, FlowKind::State),
                 "r=4", device);
  CHECK(trained.time("y") == priced({2, 16, 12, 64, 32, true}));
  CHECK(trained.time("y") > conv.time("y"));
  // Rows of one picture, split four ways, are fewer pixels than it is worth.
  Priced small(convProgram({1, 16, 8, 8}, {16, 16, 3, 3}), "r=4", device);
  CHECK(small.time("y") == priced({1, 8, 8, 16, 16}));
  CHECK(small.time("y", height) ==
        picosOf(matmulSeconds(device, DType::F32, {1, 2 * 8, 16, 9 * 16})));
}

TEST_CASE("timing: what Winograd's algorithm does not compute is a product") {
  const Device device = *devicePreset("cpu-core");
  auto isTaken = [&](const Program &program, const Device &on) {
    Priced conv(program, "r=2", on);
    return conv.timing.mayBeWinograd(conv.number("y"));
  };
  const Shape image{1, 32, 16, 16}, filter{32, 32, 3, 3};
  CHECK(isTaken(convProgram(image, filter), device));
  CHECK(!isTaken(convProgram(image, filter, 2), device));
  CHECK(!isTaken(convProgram(image, filter, 1, 2), device));
  CHECK(!isTaken(convProgram(image, {32, 32, 5, 5}), device));
  CHECK(!isTaken(convProgram(image, {32, 32, 1, 1}), device));
  CHECK(isTaken(convProgram(image, filter, 1, 1, FlowKind::Argument), device));
  CHECK(!isTaken(convProgram(image, filter), *devicePreset("A100-80GB")));
  Program product;
  product.argument("x", {64, 64});
  product.source("w", {64, 64});
  product.contract("y", "x", "w", "m k, k n -> m n");
  product.result("y");
  CHECK(!isTaken(product, device));
}

TEST_CASE(
    "timing: functions behind a product are a kernel of their own on some devices") {
  Program program;
  program.argument("x", {64, 64});
  program.source("w", {64, 64});
  program.source("b", {64});
  program.contract("y", "x", "w", "m k, k n -> m n");
  program.work("y", 2 * 64 * 64 * 64);
  program.elementwise("biased", {"y", "b"});
  program.reshape("view", "biased", {64, 8, 8});
  program.elementwise("gelu", {"view"});
  program.function("gelu");
  program.elementwise("twice", {"gelu"});
  program.rows("softmax", "twice");
  program.contract("z", "x", "w", "m k, k n -> m n");
  program.work("z", 2 * 64 * 64 * 64);
  program.elementwise("scaled", {"z"});
  program.rows("weights", "scaled");
  program.result("softmax");
  program.result("weights");
  for (bool isApart : {true, false}) {
    Device device = *devicePreset("cpu-core");
    device.matmul.functionsApart = isApart;
    Priced it(program, "r=2", device);
    // Arithmetic joins the product in any case, as do views.
    CHECK(it.timing.isInternal(it.result("y")));
    CHECK(it.timing.isInternal(it.result("biased")));
    CHECK(it.timing.isInternal(it.result("view")) == !isApart);
    CHECK(it.timing.hasNoBytes(it.result("view")) == false);
    // What is behind the function is in its kernel.
    CHECK(it.timing.isInternal(it.result("gelu")));
    CHECK(it.timing.isInternal(it.result("twice")));
    CHECK(it.timing.isInternal(it.result("scaled")) == !isApart);
    CHECK(it.timing.hasNoBytes(it.result("scaled")) == !isApart);
    CHECK(it.timing.isJoined(it.number("weights")) == !isApart);
    // What the product has written, 16 KiB, is read by a kernel that is launched.
    if (isApart)
      CHECK(it.time("gelu") == picosOf(64 * 64 * 4 / 10e9 + 1e-6));
  }
}

TEST_CASE("timing: kernels count steps where the device has a rate of them") {
  Program program;
  program.argument("x", {64, 1000});
  program.elementwise("y", {"x"});
  program.work("y", 64'000);
  program.function("y", 64'000 * 100);
  program.result("y");
  Device device;
  device.peak = {{DType::F32, 1e9}};
  device.memoryBandwidth = 1e12;
  CHECK(Priced(program, "r=2", device).time("y") == picosOf(64e3 / 1e9));
  device.pointwise = 2e9;
  CHECK(Priced(program, "r=2", device).time("y") == picosOf(64e5 / 2e9));
}

/// softmax(q·kᵀ + mask)·v of `queries` by `keys`, heads of 8 wide.
static Program attention(int64_t queries, int64_t keys) {
  Program program;
  program.argument("q", {4, queries, 8});
  program.argument("k", {4, keys, 8});
  program.argument("v", {4, keys, 8});
  program.argument("mask", {queries, keys});
  program.contract("scores", "q", "k", "b m d, b n d -> b m n");
  program.work("scores", 2 * 4 * queries * keys * 8);
  program.elementwise("masked", {"scores", "mask"});
  program.rows("weights", "masked");
  program.function("weights", 4 * queries * keys * 30);
  program.contract("y", "weights", "v", "b m n, b n d -> b m d");
  program.work("y", 2 * 4 * queries * keys * 8);
  program.result("y");
  return program;
}

TEST_CASE("timing: attention is one kernel, which keeps no scores") {
  Device device = *devicePreset("cpu-core");
  Priced it(attention(64, 32), "r=2", device);
  for (const char *name : {"scores", "masked", "weights"}) {
    CHECK(it.timing.isInternal(it.result(name)));
    CHECK(it.timing.hasNoBytes(it.result(name)));
  }
  // One launch; what goes in and comes out moves once.
  const int64_t scores = 4L * 64 * 32 * 4;
  const MatmulShape first{4, 64, 32, 8}, second{4, 64, 8, 32};
  auto seconds = [&](const MatmulShape &shape) {
    return matmulSeconds(device, DType::F32, shape, 0, scores);
  };
  CHECK(it.time("scores") == picosOf(seconds(first)));
  CHECK(it.time("y") == picosOf(seconds(second) - device.launch));
  // Keys, queries and the mask are there until the kernel ends.
  CHECK(it.timing.doneAt(it.number("scores")) == it.timing.doneAt(it.number("y")));
  CHECK(it.timing.doneAt(it.number("masked")) == it.timing.doneAt(it.number("y")));

  auto isOne = [](const Program &program, const Device &on) {
    Priced it(program, "r=2", on);
    return it.timing.isStreamed(it.result("scores"));
  };
  CHECK(isOne(attention(16, 16), device));
  CHECK(!isOne(attention(15, 64), device)); // a decode step
  CHECK(!isOne(attention(64, 15), device));
  CHECK(!isOne(attention(64, 64), *devicePreset("A100-80GB")));
  // Somebody else reads the weights; the row op is no softmax; a step goes back.
  Program read = attention(64, 64);
  read.result("weights");
  CHECK(!isOne(read, device));
  Program norm = attention(64, 64);
  norm.function("weights", 4L * 64 * 64 * 12);
  CHECK(!isOne(norm, device));
  Program step = attention(64, 64);
  step.backward("y", "y");
  CHECK(!isOne(step, device));
}

/// The gradient by queries of an attention of `type`, as "y": 4 heads of 512 queries and
/// keys, 64 wide.
static FlowGraph attentionGradient(DType type, int64_t flops) {
  Program program;
  const Shape shape{4, 512, 64};
  for (const char *name : {"q", "k", "v"})
    program.argument(name, shape);
  program.elementwise("y", {"q", "k", "v"});
  program.work("y", flops);
  program.result("y");
  FlowGraph graph = program.build(*Mesh::parse("r=2"));
  for (FlowValue &value : graph.values)
    value.type = type, value.elementBytes = byteWidth(type);
  FlowOp &op = *std::ranges::find(graph.ops, "y", &FlowOp::name);
  op.facts = kernels::OpFacts::of(kernels::OpKind::Attention);
  op.phase = Phase::Backward;
  ShardingRule rule;
  const int32_t heads = rule.addFactor(4), queries = rule.addFactor(512),
                keys = rule.addFactor(512, loop::Reduction{}),
                depth = rule.addFactor(64, loop::Replicate{}),
                width = rule.addFactor(64, loop::Replicate{});
  rule.operands = {{{heads}, {queries}, {depth}},
                   {{heads}, {keys}, {depth}},
                   {{heads}, {keys}, {width}}};
  rule.results = {rule.operands[0]};
  op.rule = rule;
  return graph;
}

TEST_CASE("timing: attention in 16 bits takes what its products take") {
  auto time = [](DType type, const Device &device, int64_t flops) {
    FlowGraph graph = attentionGradient(type, flops);
    Topology topology =
        topologyOfMesh(graph.mesh, device, *levelPreset("shared-memory"), {});
    Placement placement = *Placement::create(graph.mesh, topology);
    auto number = std::ranges::find(graph.ops, "y", &FlowOp::name) - graph.ops.begin();
    Strategy whole = Strategy::replicated(graph.ops[static_cast<size_t>(number)].rule);
    return Timing(graph, placement).op(static_cast<int32_t>(number), whole);
  };
  const Device gpu = *devicePreset("A100-80GB"), cpu = *devicePreset("cpu-core");
  const int64_t flops = 1'000'000'000;
  const double bytes = 4.0 * 4 * 512 * 64 * 2; // q, k, v and the result
  double products = 0;
  for (const MatmulShape &shape :
       {MatmulShape{4, 512, 512, 64}, {4, 512, 512, 64}, {4, 512, 64, 512}})
    products += matmulArithmetic(gpu, DType::BF16, shape);
  CHECK(products > streamSeconds(gpu, bytes));
  CHECK(time(DType::BF16, gpu, flops) == picosOf(products + gpu.launch));
  // Vectors of f32: all of f32, and kernels of CPUs.
  CHECK(time(DType::F32, gpu, flops) == picosOf(groupSeconds(gpu, 2 * bytes, flops)));
  CHECK(time(DType::BF16, cpu, flops) == picosOf(groupSeconds(cpu, bytes, flops)));
}
