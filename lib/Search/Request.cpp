//===- Request.cpp - Seconds of a plan's requests -------------------------===//
#include "partita/Search/Request.h"

#include "partita/Search/KernelPrice.h"
#include "partita/Search/Memory.h"

using namespace partita;
using namespace partita::search;

/// Bytes of a rank's parts of the program's inputs and outputs, without states.
static int64_t requestBytes(const FlowGraph &graph,
                            const std::vector<Strategy> &strategies) {
  int64_t bytes = 0;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const FlowOp &op = graph.ops[i];
    auto add = [&](int32_t value, const Layout &layout) {
      bytes +=
          layout.localElements() * graph.values[static_cast<size_t>(value)].elementBytes;
    };
    if (op.kind == FlowKind::Argument)
      for (size_t r = 0; r < op.results.size(); ++r)
        add(op.results[r], resultLayout(op.rule, strategies[i], r));
    if (op.kind == FlowKind::Sink && op.tied < 0)
      for (size_t o = 0; o < op.operands.size(); ++o)
        add(op.operands[o], operandLayout(op.rule, strategies[i], o));
  }
  return bytes;
}

/// Tells whether the plan's values, and the code of so many tasks, stay near a core.
static bool isNear(Timing &timing, const Decided &plan, int64_t tasks,
                   const RequestLimits &limits = {}) {
  return memoryOf(timing, plan).peak() + tasks * limits.perTask <= limits.bytes;
}

std::optional<PlanRequest>
search::requestOf(const FlowGraph &graph, const Topology &topology, const Decided &plan) {
  if (topology.host.request <= 0)
    return std::nullopt;
  const auto placement = Placement::create(graph.mesh, topology);
  if (!placement)
    return std::nullopt;
  Timing timing(graph, *placement);
  const PlanCost cost = priceKernels(timing, plan, kernels::cpu);
  PlanRequest request{static_cast<double>(cost.total()) * 1e-12, false, {}};
  const double faster = topology.device.launch - topology.host.launch;
  if (topology.host.launch > 0 && faster > 0 && isNear(timing, plan, cost.tasks)) {
    request.isNear = true;
    for (const PlanCost::Pass &pass : cost.passes)
      request.tasks += static_cast<double>(pass.calls) * topology.host.call -
                       static_cast<double>(pass.launches) * faster;
  }
  const auto bytes = static_cast<double>(requestBytes(graph, plan.strategies));
  request.beside = priceRequest(topology, bytes);
  return request;
}
