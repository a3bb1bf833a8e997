//===- KernelTimeline.cpp - Kernels beside communication ------------------===//
#include "partita/Search/KernelTimeline.h"

#include "partita/Base/Bundle/Plan.h"
#include "partita/Comm/Levels.h"
#include "partita/Search/Simulate.h"

#include <algorithm>
#include <cmath>
#include <map>

using namespace partita;
using namespace partita::search;
using kernels::LocalOp;

static size_t at(int32_t number) { return static_cast<size_t>(number); }

namespace {
/// Says of each op what lib/Comm asks.
class Describer {
public:
  Describer(const FlowGraph &graph, const LocalFunction &function)
      : graph(graph), function(function), program(function.program) {
    for (size_t o = 0; o < graph.ops.size(); ++o)
      if (graph.ops[o].kind == FlowKind::State && graph.ops[o].isParameter)
        parameterOf.try_emplace(static_cast<int32_t>(o),
                                static_cast<int32_t>(parameterOf.size()));
  }

  std::vector<buckets::Op> run() {
    std::vector<buckets::Op> ops;
    for (size_t o = 0; o < program.ops.size(); ++o)
      ops.push_back(describe(static_cast<int32_t>(o)));
    for (const LocalStep &step : function.steps)
      ops[at(step.op)].call = callOf(step);
    return ops;
  }

private:
  const FlowOp &producerOf(int32_t value) const {
    return graph.ops[at(graph.values[at(value)].producer)];
  }
  int32_t flowValueOf(const LocalStep &step) const {
    return function.flowValues[at(program.op(step.op).results[0])];
  }

  /// A step is of the pass that makes what it converts, and where that lies there before
  /// the program runs, of the pass that reads it first.
  Phase phaseOf(int32_t op) const {
    const LocalOp &it = program.op(op);
    const FlowOp &flow = graph.ops[at(function.flowOps[at(op)])];
    if (function.isOwn[at(op)] || it.results.empty())
      return passOf(flow);
    const FlowOp &producer = producerOf(function.flowValues[at(it.results[0])]);
    return passOf(producer.kind == FlowKind::Compute ? producer : flow);
  }
  /// Recompute is a part of the backward pass.
  static Phase passOf(const FlowOp &op) {
    return op.repeats >= 0 && op.isForward() ? Phase::Backward : op.phase;
  }

  buckets::Op describe(int32_t op) const {
    buckets::Op result;
    result.phase = phaseOf(op);
    for (int32_t value : program.op(op).operands)
      if (int32_t producer = program.value(value).producer; producer >= 0)
        result.reads.push_back(producer);
    return result;
  }

  std::optional<buckets::Call> callOf(const LocalStep &it) {
    const auto *step = std::get_if<Step>(&it.what);
    const auto kind = step ? callKindOf(step->kind) : std::nullopt;
    if (!kind || step->receivedElements == 0)
      return std::nullopt;
    const int64_t before = step->before.localElements() * it.elementBytes,
                  after = step->after.localElements() * it.elementBytes;
    const bool isInPlace = *kind == buckets::CallKind::AllReduce;
    buckets::Call call{*kind, keyOf(*kind, *step), std::max(before, after),
                       before + (isInPlace ? 0 : after)};
    const int32_t value = flowValueOf(it), trained = trainedBy(value);
    const int32_t weight = *kind == buckets::CallKind::AllGather ? weightOf(value) : -1;
    if (int32_t state = weight >= 0 ? weight : trained; state >= 0)
      call.parameter = parameterOf.at(state);
    if (weight >= 0)
      call.layer = layerOfState(weight);
    else if (*kind == buckets::CallKind::ReduceScatter && trained >= 0)
      call.layer = layerOfState(trained); // to the parts that its update has
    return call;
  }

  int32_t keyOf(buckets::CallKind kind, const Step &step) {
    std::string key = std::to_string(static_cast<int>(kind)) + " " +
                      std::to_string(static_cast<int>(step.reduce));
    for (const AxisRef &axis : step.axes)
      key += " " + graph.mesh.str(axis);
    return keys.try_emplace(key, static_cast<int32_t>(keys.size())).first->second;
  }

  int32_t layerOfState(int32_t state) {
    return layers
        .try_emplace(layerOf(graph.values[at(graph.ops[at(state)].results[0])].name),
                     static_cast<int32_t>(layers.size()))
        .first->second;
  }

  /// The trained state whose parts are gathered, through what only changes their form;
  /// −1: it is none's.
  int32_t weightOf(int32_t value) const {
    constexpr int mostForms = 8;
    for (int i = 0; i < mostForms; ++i) {
      const int32_t number = graph.values[at(value)].producer;
      if (parameterOf.count(number))
        return number;
      if (number < 0 || graph.ops[at(number)].operands.size() != 1)
        return -1;
      value = graph.ops[at(number)].operands[0];
    }
    return -1;
  }

  /// The parameter whose update is nearest behind a value; −1: there is none.
  int32_t trainedBy(int32_t value) const {
    constexpr size_t mostSteps = 64;
    std::vector<int32_t> next{value};
    for (size_t i = 0; i < next.size() && i < mostSteps; ++i)
      for (const FlowUse &use : graph.values[at(next[i])].uses) {
        const FlowOp &op = graph.ops[at(use.op)];
        if (op.kind == FlowKind::Sink && parameterOf.count(op.tied))
          return op.tied;
        next.insert(next.end(), op.results.begin(), op.results.end());
      }
    return -1;
  }

  const FlowGraph &graph;
  const LocalFunction &function;
  const kernels::LocalProgram &program;
  std::map<int32_t, int32_t> parameterOf; ///< by state
  std::map<std::string, int32_t> keys, layers;
};

/// Lays the work of an order out.
class Layouter {
public:
  Layouter(const Timing &timing, const LocalFunction &function,
           const std::vector<Picos> &kernels)
      : kernels(kernels), occupied(kernels.size()), endsOnDevice(kernels.size(), false) {
    for (const LocalStep &step : function.steps) {
      const auto *collective = std::get_if<Step>(&step.what);
      occupied[at(step.op)] = occupiedBy(
          collective ? priceStep(timing.placement, *collective, step.elementBytes)
                     : priceWindow(timing.placement, std::get<Halo>(step.what),
                                   step.elementBytes));
      endsOnDevice[at(step.op)] = collective && collective->kind == StepKind::AllGather;
      alone += occupied[at(step.op)].time;
    }
  }

  std::vector<Work> run(const buckets::Order &order) {
    std::vector<int32_t> flying(order.buckets.size(), none);
    for (const auto &[kind, number] : order.steps)
      if (kind == buckets::Step::Kind::Run)
        runOp(number);
      else if (kind == buckets::Step::Kind::Start)
        flying[at(number)] = start(order.buckets[at(number)]);
      else
        wait(order.buckets[at(number)], flying[at(number)]);
    return std::move(all);
  }

  Picos alone = 0;

private:
  static constexpr int32_t none = -1;

  int32_t push(Work work) {
    std::erase(work.after, none);
    all.push_back(std::move(work));
    return static_cast<int32_t>(all.size()) - 1;
  }
  void onDevice(Picos time) {
    if (time > 0)
      last = push({time, Work::On::Kernel, 0, {last, std::exchange(waited, none)}});
  }

  void runOp(int32_t op) {
    onDevice(kernels[at(op)]);
    if (occupied[at(op)].time > 0)
      wait({op}, start({op}));
  }

  /// The work on the links, behind what was packed.
  int32_t start(const std::vector<int32_t> &members) {
    Work work{0, Work::On::Links};
    for (int32_t member : members) {
      const Occupied &it = occupied[at(member)];
      if (!endsOnDevice[at(member)])
        onDevice(it.device);
      work.time += it.time - it.device;
      for (size_t level = 0; level < it.links.size(); ++level)
        if (it.links[level] > 0)
          work.levels |= 1U << level;
    }
    if (work.levels == 0)
      work.on = Work::On::Nothing;
    // A rank that waits for a call starts no other meanwhile.
    work.after = {last, waited};
    return work.time > 0 ? push(std::move(work)) : none;
  }

  void wait(const std::vector<int32_t> &members, int32_t links) {
    if (links != none)
      waited = waited == none ? links : push({0, Work::On::Nothing, 0, {waited, links}});
    for (int32_t member : members)
      if (endsOnDevice[at(member)])
        onDevice(occupied[at(member)].device);
  }

  const std::vector<Picos> &kernels;
  std::vector<Occupied> occupied; ///< by op
  std::vector<bool> endsOnDevice; ///< by op: it unpacks what was gathered
  std::vector<Work> all;
  int32_t last = none;   ///< work of the device
  int32_t waited = none; ///< calls that have been waited for since
};
} // namespace

std::vector<buckets::Op> search::describeOps(const FlowGraph &graph,
                                             const LocalFunction &function) {
  return Describer(graph, function).run();
}

/// A trip of a loop leaves gradients' calls in their places.
static buckets::Options optionsFor(const std::vector<buckets::Op> &ops) {
  buckets::Options options;
  options.makesBuckets = std::ranges::any_of(
      ops, [](const buckets::Op &op) { return op.phase == Phase::Update; });
  return options;
}

KernelTimeline search::timelineOf(const Timing &timing, const LocalFunction &function,
                                  const std::vector<Picos> &kernels) {
  const std::vector<buckets::Op> ops = describeOps(timing.graph, function);
  const buckets::Order order = buckets::orderOf(ops, optionsFor(ops));
  Layouter layouter(timing, function, kernels);
  const std::vector<Work> work = layouter.run(order);
  KernelTimeline line;
  line.time = static_cast<Picos>(std::llround(makespan(work, contentionOf(timing))));
  line.alone = layouter.alone;
  line.calls = order.calls;
  return line;
}
