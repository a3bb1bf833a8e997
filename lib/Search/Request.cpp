//===- Request.cpp - Seconds of a plan's requests -------------------------===//
#include "partita/Search/Request.h"

using namespace partita;

int64_t search::requestBytes(const FlowGraph &graph,
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

std::optional<RequestPrice> search::requestOf(const FlowGraph &graph,
                                              const Topology &topology,
                                              const std::vector<Strategy> &strategies) {
  if (topology.host.request <= 0)
    return std::nullopt;
  return priceRequest(topology, static_cast<double>(requestBytes(graph, strategies)));
}
