//===- KernelPrice.cpp - What a plan takes by its kernels -----------------===//
#include "partita/Search/KernelPrice.h"

#include "partita/Cost/Compute.h"
#include "partita/Kernels/Attention.h"
#include "partita/Kernels/Places.h"
#include "partita/Rule/Sharding/Price.h"
#include "partita/Search/KernelTimeline.h"

#include <algorithm>
#include <array>
#include <set>

using namespace partita;
using namespace partita::search;
using kernels::LocalOp;
using kernels::LocalValue;
using kernels::OpKind;

kernels::Target search::kernelTarget(const Device &device, const Stack &stack) {
  const double rate = device.pointwiseRate();
  const double memory = device.memoryBandwidth * device.memoryEfficiency;
  kernels::Target target;
  target.launchSteps = device.launch * rate;
  target.farByte = rate / memory;
  target.farTensor = static_cast<double>(device.cache);
  target.copiesOrders = false;
  if (device.matmul.functionsApart)
    target.posts = 0;
  if (stack.isEager) {
    target.maxOps = 1;
    target.maxPostOps = 0;
  }
  return target;
}

namespace {
/// Passes of a program, as a host runs them.
enum class Pass : uint8_t { Forward, Backward, Update };

/// The user's program runs again what a step computes again.
Pass passOf(const FlowOp &op) {
  if (op.phase == Phase::Update)
    return Pass::Update;
  return op.isForward() || op.repeats >= 0 ? Pass::Forward : Pass::Backward;
}

using Passes = std::array<PlanCost::Pass, 3>;

PlanCost::Pass &at(Passes &passes, Pass pass) {
  return passes[static_cast<size_t>(pass)];
}

/// Steps of conversions, of the passes that make what they convert.
struct StepTimes : StepObserver {
  StepTimes(Timing &timing, Passes &passes) : timing(timing), passes(passes) {}
  void onStep(const Step &step, int64_t elementBytes) override {
    add(timing.step(step, elementBytes));
  }
  void onWindow(const Halo &halo, int64_t elementBytes) override {
    add(timing.window(halo, elementBytes));
  }
  void add(Picos time) {
    const FlowGraph &graph = timing.graph;
    const int32_t producer =
        value < 0 ? -1 : graph.values[static_cast<size_t>(value)].producer;
    PlanCost::Pass &part =
        at(passes, producer < 0 ? Pass::Forward
                                : passOf(graph.ops[static_cast<size_t>(producer)]));
    part.device += repeated(time, trips);
    part.launches += trips;
    total += repeated(time, trips);
  }
  Timing &timing;
  Passes &passes;
  Picos total = 0;
};

/// Kernels and calls of one function of a rank's program.
class FunctionPrice {
public:
  FunctionPrice(const Timing &timing, const Decided &plan, const LocalFunction &function,
                const kernels::Target &target)
      : timing(timing), plan(plan), function(function), program(function.program),
        grouping(kernels::group(program, target)),
        device(timing.placement.topology().device) {
    kernels.resize(program.ops.size());
    std::vector<std::vector<int32_t>> members(grouping.groups.size());
    for (size_t o = 0; o < grouping.groupsOf.size(); ++o)
      for (int32_t group : grouping.groupsOf[o])
        members[static_cast<size_t>(group)].push_back(static_cast<int32_t>(o));
    for (size_t g = 0; g < members.size(); ++g)
      addGroup(static_cast<int32_t>(g), members[g]);
    for (size_t o = 0; o < program.ops.size(); ++o)
      addOp(static_cast<int32_t>(o));
    for (const kernels::CopyKernel &copy : kernels::copiesOf(program, grouping, target))
      add(copy.op, groupSeconds(device, 2 * static_cast<double>(copy.bytes), 0, 0),
          Start::Kernel);
  }

  std::array<double, 3> seconds{}; ///< of one trip, by pass
  std::array<int64_t, 3> launches{}, calls{};
  std::vector<Picos> kernels; ///< by op, what it starts

private:
  void addGroup(int32_t number, const std::vector<int32_t> &members);
  void addOp(int32_t number);
  void addInside(int32_t number);
  double bytesOf(int32_t value) const {
    const LocalValue &it = program.value(value);
    return static_cast<double>(elementCount(it.shape) * byteWidth(it.type));
  }
  double stepsAt(int32_t number) const;
  bool isFar(int32_t value) const {
    const int32_t flow = function.flowValues[static_cast<size_t>(value)];
    return flow >= 0 && timing.isFar(flow);
  }
  /// The unit that is started, whose start takes time.
  enum class Start : uint8_t { Nobody, Kernel, Call };
  /// Adds what takes so long to the pass of the op.
  void add(int32_t op, double time, Start start) {
    const int32_t flow = function.flowOps[static_cast<size_t>(op)];
    const auto pass =
        static_cast<size_t>(passOf(timing.graph.ops[static_cast<size_t>(flow)]));
    seconds[pass] += time;
    launches[pass] += start != Start::Nobody;
    calls[pass] += start == Start::Call;
    kernels[static_cast<size_t>(op)] += picosOf(time);
  }

  const Timing &timing;
  const Decided &plan;
  const LocalFunction &function;
  const kernels::LocalProgram &program;
  kernels::Grouping grouping;
  const Device &device;
};
} // namespace

/// Operations of an op at one point of a kernel, as searches count them: loops that wait
/// for their own results take many of a step's (SerialSteps), which no grouping looks at.
double FunctionPrice::stepsAt(int32_t number) const {
  const LocalOp &op = program.op(number);
  const auto at = static_cast<size_t>(number);
  if (!function.isOwn[at])
    return op.facts.steps;
  int64_t points = elementCount(program.value(op.results[0]).shape);
  if (op.facts.kind == OpKind::Row)
    points = std::max(points, elementCount(program.operand(number, 0).shape));
  const int32_t flow = function.flowOps[at];
  return timing.operations(flow, plan.strategies[static_cast<size_t>(flow)]) /
         static_cast<double>(std::max<int64_t>(points, 1));
}

void FunctionPrice::addGroup(int32_t number, const std::vector<int32_t> &members) {
  const kernels::Group &group = grouping.groups[static_cast<size_t>(number)];
  const auto points = static_cast<double>(elementCount(group.domain));
  if (points == 0)
    return;
  double operations = 0, bytes = 0, far = 0;
  std::set<int32_t> loaded;
  for (int32_t member : members) {
    const LocalOp &op = program.op(member);
    operations += stepsAt(member) * points;
    for (int32_t value : op.operands) {
      const LocalValue &it = program.value(value);
      if (it.isUniform() || (it.producer >= 0 && grouping.isIn(it.producer, number)) ||
          !loaded.insert(value).second)
        continue;
      double moved = bytesOf(value);
      if (op.facts.kind == OpKind::Indexed) // a table is read where it is looked up
        moved = std::min(moved, points * static_cast<double>(byteWidth(it.type)));
      bytes += moved;
      far += isFar(value) ? moved : 0;
    }
  }
  for (int32_t value : program.op(group.root).results)
    bytes += program.value(value).uses.empty() ? 0 : bytesOf(value);
  for (int32_t value : group.kept)
    bytes += bytesOf(value);
  // A device that says no rate has that of the arithmetic, which traffic hides.
  add(group.root, groupSeconds(device, bytes, device.pointwise > 0 ? operations : 0, far),
      Start::Kernel);
}

/// Adds what a kernel of attention computes before its last product: nothing is started,
/// nor moved.
void FunctionPrice::addInside(int32_t number) {
  const LocalOp &op = program.op(number);
  const int32_t flow = function.flowOps[static_cast<size_t>(number)];
  const Strategy &strategy = plan.strategies[static_cast<size_t>(flow)];
  if (op.facts.kind == OpKind::Engine)
    return add(number,
               std::max(0.0, static_cast<double>(timing.call(flow, strategy)) * 1e-12 -
                                 device.launch),
               Start::Nobody);
  if (!op.facts.isFusable() || device.pointwise <= 0)
    return;
  int64_t points = elementCount(program.value(op.results[0]).shape);
  add(number, stepsAt(number) * static_cast<double>(points) / device.pointwiseRate(),
      Start::Nobody);
}

void FunctionPrice::addOp(int32_t number) {
  const LocalOp &op = program.op(number);
  const auto at = static_cast<size_t>(number);
  const int32_t flow = function.flowOps[at];
  if (op.attention == LocalOp::Attention::Inside)
    return addInside(number);
  if (!function.isOwn[at])
    return;
  const Strategy &strategy = plan.strategies[static_cast<size_t>(flow)];
  add(number, static_cast<double>(timing.masks(flow, strategy)) * 1e-12, Start::Nobody);
  if (op.facts.isFusable() || op.facts.kind == OpKind::View)
    return;
  if (op.facts.kind == OpKind::Engine || op.facts.kind == OpKind::Attention) {
    double time = static_cast<double>(timing.call(flow, strategy)) * 1e-12;
    for (const kernels::PostStep &post : grouping.chains[at])
      if (post.operand >= 0)
        time += streamSeconds(device, bytesOf(post.operand),
                              isFar(post.operand) ? bytesOf(post.operand) : 0);
    const bool isCall =
        op.facts.kind == OpKind::Engine && op.attention == LocalOp::Attention::None;
    add(number, time, isCall ? Start::Call : Start::Kernel);
    return;
  }
  double written = 0, read = 0, far = 0;
  for (int32_t value : op.results)
    written += bytesOf(value);
  for (int32_t value : op.operands) {
    const double moved = std::min(bytesOf(value), written);
    read += moved;
    far += isFar(value) ? moved : 0;
  }
  const double operations = device.pointwise > 0 ? timing.operations(flow, strategy) : 0;
  add(number, groupSeconds(device, read + written, operations, far), Start::Kernel);
}

/// Forward and backward pass take the longer of the device and its host, which runs ahead
/// through both. `hidden`: of the device's time, what it does beside other work.
static Picos waitingIn(const Passes &passes, Picos hidden, const Stack &stack) {
  const PlanCost::Pass &forward = passes[static_cast<size_t>(Pass::Forward)],
                       &backward = passes[static_cast<size_t>(Pass::Backward)];
  const Picos host = repeated(picosOf(stack.launch), forward.launches) +
                     repeated(picosOf(stack.backwardLaunch), backward.launches);
  return std::max<Picos>(0, host - (forward.device + backward.device - hidden));
}

/// Prices the gathers of a function's moments in place of the steps that the plan has.
static void gatherMoments(Timing &timing, const LocalFunction &function, PlanCost &cost) {
  auto add = [&](const LocalStep &it, int64_t times) {
    const auto &step = std::get<Step>(it.what);
    const int32_t flow = function.flowOps[static_cast<size_t>(it.op)];
    const Picos time = repeated(timing.step(step, it.elementBytes), times);
    PlanCost::Pass &pass =
        at(cost.passes, passOf(timing.graph.ops[static_cast<size_t>(flow)]));
    pass.device += time;
    pass.launches += times;
    cost.conversions += time;
    cost.receivedBytes += step.receivedElements * it.elementBytes * times;
    cost.collectives += times;
  };
  for (const LocalStep &step : function.steps)
    if (!step.isOfPlan)
      add(step, function.trips);
  for (const LocalStep &step : function.replaced)
    add(step, -function.trips);
}

/// Runs the steps of a function beside its kernels.
static void runBeside(const Timing &timing, const LocalFunction &function,
                      const std::vector<Picos> &kernels, PlanCost &cost) {
  const KernelTimeline line = timelineOf(timing, function, kernels);
  Picos alone = line.alone;
  for (Picos time : kernels)
    alone += time;
  cost.hidden += repeated(alone - line.time, function.trips);
  cost.calls += function.trips * line.calls;
}

PlanCost search::priceKernels(Timing &timing, const Decided &plan,
                              const kernels::Target &target) {
  PlanCost cost;
  StepTimes steps(timing, cost.passes);
  const Price price =
      partita::price(timing.graph, plan.strategies, plan.servings, &steps);
  cost.conversions = steps.total;
  cost.receivedBytes = price.receivedBytes;
  cost.collectives = price.collectives;
  cost.peakBuffer = price.peakBytes;
  const Stack &stack = timing.placement.topology().stack;
  std::vector<LocalFunction> functions = localProgram(timing.graph, plan);
  for (LocalFunction &function : functions) {
    kernels::takeAttentions(function.program, target);
    gatherMoments(timing, function, cost);
    const FunctionPrice one(timing, plan, function, target);
    for (size_t pass = 0; pass < cost.passes.size(); ++pass) {
      const Picos time = repeated(picosOf(one.seconds[pass]), function.trips);
      cost.compute += time;
      cost.passes[pass].device += time;
      cost.passes[pass].launches += repeated(one.launches[pass], function.trips);
      cost.passes[pass].calls += repeated(one.calls[pass], function.trips);
      cost.tasks += one.launches[pass];
    }
    if (stack.overlaps)
      runBeside(timing, function, one.kernels, cost);
  }
  cost.waiting = waitingIn(cost.passes, cost.hidden, stack);
  return cost;
}
