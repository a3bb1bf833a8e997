//===- AddPartials.cpp - Partial sums are added, then reduced -------------===//
#include "partita/Rule/Sharding/AddPartials.h"

#include "partita/Rule/Sharding/OperandForm.h"
#include "partita/Rule/Sharding/Price.h"

#include <algorithm>
#include <set>

using namespace partita;

/// The linear set by which an op is a sum of all its operands; -1: it is none.
static int32_t sumOfAll(const FlowOp &op) {
  if (op.kind != FlowKind::Compute || op.operands.size() < 2 || op.results.size() != 1)
    return -1;
  for (size_t s = 0; s < op.rule.linear.size(); ++s)
    if (op.rule.linear[s].kind == ReduceKind::Sum &&
        op.rule.linear[s].operands.size() == op.operands.size())
      return static_cast<int32_t>(s);
  return -1;
}

/// The layout in which all operands of an op are made: partial sums of the result's
/// shape, which nobody else reads. Absent: they are not.
static std::optional<Layout> addends(const FlowGraph &graph,
                                     const std::vector<Strategy> &strategies,
                                     const FlowOp &op) {
  std::optional<Layout> all;
  for (int32_t operand : op.operands) {
    const FlowValue &value = graph.values[static_cast<size_t>(operand)];
    const auto producer = static_cast<size_t>(value.producer);
    if (graph.ops[producer].kind != FlowKind::Compute || value.uses.size() != 1 ||
        value.shape != graph.values[static_cast<size_t>(op.results[0])].shape)
      return std::nullopt;
    Layout layout = resultLayout(graph.ops[producer].rule, strategies[producer],
                                 static_cast<size_t>(value.result))
                        .canonicalized();
    if (layout.partial.size() != 1 || layout.partial[0].kind != ReduceKind::Sum ||
        (all && layout != *all))
      return std::nullopt;
    all = std::move(layout);
  }
  return all;
}

void partita::addPartials(const FlowGraph &graph, const std::vector<Seed> &seeds,
                          std::vector<Strategy> &strategies) {
  std::set<size_t> seeded;
  for (const Seed &seed : seeds)
    seeded.insert(static_cast<size_t>(graph.atoms[static_cast<size_t>(seed.atom)].op));
  // Operands first: what they add has become one partial sum by then.
  for (size_t number = 0; number < graph.ops.size(); ++number) {
    const FlowOp &op = graph.ops[number];
    const int32_t set = sumOfAll(op);
    if (set < 0 || seeded.count(number) || !strategies[number].passing.empty())
      continue;
    auto layout = addends(graph, strategies, op);
    if (!layout)
      continue;
    Layout dims = *layout;
    dims.partial.clear();
    Strategy added = strategyForLayout(op.rule, op.rule.results[0], dims);
    added.passing = {{set, layout->partial[0].axes}};
    if (!verifyStrategy(graph.mesh, op.rule, added))
      continue;
    std::vector<int32_t> values = op.operands;
    values.push_back(op.results[0]);
    const Received before = receivedOf(graph, strategies, values);
    std::swap(strategies[number], added);
    if (receivedOf(graph, strategies, values) >= before)
      std::swap(strategies[number], added);
  }
}
