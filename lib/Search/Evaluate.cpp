//===- Evaluate.cpp - What a plan takes, from its strategies --------------===//
#include "partita/Search/Model.h"

#include "partita/Rule/Sharding/OperandForm.h"
#include "partita/Rule/Sharding/Price.h"

using namespace partita;
using namespace partita::search;

namespace {
struct Clock : StepObserver {
  explicit Clock(const Timing &timing) : timing(timing) {}
  void onStep(const Step &step, int64_t elementBytes) override {
    total += repeated(timing.step(step, elementBytes), trips);
    steps += trips;
  }
  void onWindow(const Halo &halo, int64_t elementBytes) override {
    total += repeated(timing.window(halo, elementBytes), trips);
    steps += trips;
  }
  const Timing &timing;
  Picos total = 0;
  int64_t steps = 0;
};
} // namespace

Picos search::breakingTime(Timing &timing, const Decided &plan, int32_t number) {
  if (!timing.isInternal(number))
    return 0;
  const FlowGraph &graph = timing.graph;
  const FlowValue &value = graph.values[static_cast<size_t>(number)];
  auto producer = static_cast<size_t>(value.producer);
  auto user = static_cast<size_t>(value.uses[0].op);
  int32_t produced =
      timing.forms.add(resultLayout(graph.ops[producer].rule, plan.strategies[producer],
                                    static_cast<size_t>(value.result))
                           .canonicalized());
  OperandForm form = operandForm(graph.ops[user].rule, plan.strategies[user],
                                 static_cast<size_t>(value.uses[0].operand));
  int32_t wanted = timing.forms.add(Form{std::move(form.layout), std::move(form.window)});
  return repeated(timing.breaking(number, produced, wanted), graph.ops[producer].trips);
}

PlanCost search::priceConversions(Timing &timing, const Decided &plan) {
  PlanCost cost;
  Clock clock(timing);
  Price price = partita::price(timing.graph, plan.strategies, plan.servings, &clock);
  cost.conversions = clock.total;
  cost.receivedBytes = price.receivedBytes;
  cost.collectives = price.collectives;
  cost.peakBuffer = price.peakBytes;
  cost.launches = clock.steps;
  return cost;
}

PlanCost search::evaluate(Timing &timing, const Decided &plan) {
  const FlowGraph &graph = timing.graph;
  PlanCost cost = priceConversions(timing, plan);
  for (size_t op = 0; op < graph.ops.size(); ++op)
    cost.compute += timing.op(static_cast<int32_t>(op), plan.strategies[op]);
  for (size_t v = 0; v < graph.values.size(); ++v)
    cost.conversions += breakingTime(timing, plan, static_cast<int32_t>(v));
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    const auto number = static_cast<int32_t>(op);
    if (graph.ops[op].kind == FlowKind::Compute && !timing.isView(number) &&
        !timing.isJoined(number))
      cost.launches += graph.ops[op].trips;
  }
  cost.host = repeated(picosOf(timing.placement.topology().stack.launch), cost.launches);
  return cost;
}
