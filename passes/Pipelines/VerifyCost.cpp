//===- VerifyCost.cpp - How long the evaluator will take ------------------===//
#include "passes/Pipelines/VerifyCost.h"

#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/OpInterfaces.h"

#include <chrono>
#include <cmath>

using namespace mlir;
using namespace partita;

static double elementsOf(ValueRange values) {
  double count = 0;
  for (Value value : values)
    if (auto tensor = dyn_cast<RankedTensorType>(value.getType()))
      count += static_cast<double>(tensor.getNumElements());
  return count;
}

EvaluationCost::EvaluationCost(func::FuncOp function, int64_t ranks, EvaluatorRates rates)
    : ranks(ranks), rates(rates) {
  total = add(function);
}

double EvaluationCost::add(func::FuncOp function) {
  double seconds = 0;
  for (Operation &op : function.front().without_terminator()) {
    double operations = 0;
    auto calling = dyn_cast<CallingOpInterface>(op);
    if (auto shardable = dyn_cast<ShardingRuleOpInterface>(op); shardable && !calling)
      operations = static_cast<double>(shardable.getFlops());
    const double once =
        static_cast<double>(ranks) *
        (operations / rates.flops +
         (elementsOf(op.getOperands()) + elementsOf(op.getResults())) / rates.elements);
    own[&op] = once;
    seconds += once;
    if (!calling)
      continue;
    double longest = 0;
    for (Operation *callee : calling.getCallees())
      longest = std::max(longest, add(cast<func::FuncOp>(callee)));
    seconds += static_cast<double>(calling.getCallTrips()) * longest;
  }
  return seconds;
}

static double clockSeconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string partita::roughly(double seconds) {
  const char *unit = "s";
  if (seconds >= 5400)
    seconds /= 3600, unit = "h";
  else if (seconds >= 90)
    seconds /= 60, unit = "min";
  return std::to_string(std::max<int64_t>(std::llround(seconds), 1)) + " " + unit;
}

EvaluationProgress::EvaluationProgress(std::string what, const EvaluationCost &cost,
                                       Progress progress, double quiet)
    : what(std::move(what)), cost(cost), progress(std::move(progress)), quiet(quiet),
      begin(clockSeconds()), told(begin) {
  if (cost.seconds() >= quiet)
    this->progress("evaluating " + this->what + ", about " + roughly(cost.seconds()));
}

Evaluating EvaluationProgress::hooks(StopFlag stop) {
  return {stop | StopFlag(&late), [this](Operation *op) { done(op); }};
}

void EvaluationProgress::done(Operation *op) {
  spent += cost.of(op);
  const double now = clockSeconds();
  if (now - told < quiet || spent <= 0)
    return;
  told = now;
  const double share = std::min(spent / cost.seconds(), 1.0);
  expected = (now - begin) / share;
  if (expected > most) {
    late = 1;
    return;
  }
  progress("evaluating " + what + ": " + std::to_string(std::lround(100 * share)) +
           "% done, about " + roughly(expected - (now - begin)) + " left");
}
