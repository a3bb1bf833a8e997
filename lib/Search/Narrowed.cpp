//===- Narrowed.cpp - A plan priced in a narrower type --------------------===//
#include "partita/Search/Narrowed.h"

#include "partita/Search/KernelPrice.h"
#include "partita/Search/Timing.h"

#include <algorithm>

using namespace partita;
using namespace partita::search;

/// Tells whether a value crosses the border of the program.
static bool isOutside(const FlowGraph &graph, const FlowValue &value) {
  auto is = [&](int32_t op, FlowKind kind) {
    return op >= 0 && graph.ops[static_cast<size_t>(op)].kind == kind;
  };
  return is(value.producer, FlowKind::Argument) ||
         std::ranges::any_of(
             value.uses, [&](const FlowUse &use) { return is(use.op, FlowKind::Sink); });
}

static double secondsOf(const FlowGraph &graph, const Placement &placement,
                        const Decided &plan) {
  Timing timing(graph, placement);
  const PlanCost cost =
      priceKernels(timing, plan, kernelTarget(placement.topology().device));
  return static_cast<double>(cost.total()) * 1e-12;
}

NarrowedTimes search::narrowedTimes(const FlowGraph &graph, const Placement &placement,
                                    const Decided &plan, DType type) {
  FlowGraph narrow = graph;
  for (FlowValue &value : narrow.values)
    if (value.type == DType::F32 && !isOutside(graph, value)) {
      value.type = type;
      value.elementBytes = static_cast<int64_t>(byteWidth(type));
    }
  return {secondsOf(graph, placement, plan), secondsOf(narrow, placement, plan)};
}
