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
  }
  void onWindow(const Halo &halo, int64_t elementBytes) override {
    total += repeated(timing.window(halo, elementBytes), trips);
  }
  const Timing &timing;
  Picos total = 0;
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

PlanCost search::evaluate(Timing &timing, const Decided &plan) {
  const FlowGraph &graph = timing.graph;
  PlanCost cost;
  for (size_t op = 0; op < graph.ops.size(); ++op)
    cost.compute += timing.op(static_cast<int32_t>(op), plan.strategies[op]);
  Clock clock(timing);
  Price price = partita::price(graph, plan.strategies, plan.servings, &clock);
  cost.conversions = clock.total;
  for (size_t v = 0; v < graph.values.size(); ++v)
    cost.conversions += breakingTime(timing, plan, static_cast<int32_t>(v));
  cost.receivedBytes = price.receivedBytes;
  cost.collectives = price.collectives;
  cost.peakBuffer = price.peakBytes;
  return cost;
}
