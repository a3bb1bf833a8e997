//===- Ties.cpp - One layout for what is one variable ---------------------===//
#include "partita/Rule/Sharding/Ties.h"

#include "partita/Rule/Sharding/OperandForm.h"
#include "partita/Rule/Sharding/Price.h"
#include "partita/Rule/Sharding/ServeUses.h"

#include <algorithm>

using namespace partita;

Layout partita::endLayout(const FlowGraph &graph, int32_t op, const Strategy &strategy) {
  const ShardingRule &rule = graph.ops[static_cast<size_t>(op)].rule;
  return rule.results.empty() ? operandLayout(rule, strategy, 0)
                              : resultLayout(rule, strategy, 0);
}

/// Of one row.
static Layout rowLayout(const FlowGraph &graph, const FlowTie::Member &member,
                        const Strategy &strategy) {
  Layout layout = endLayout(graph, member.op, strategy).canonicalized();
  if (member.hasRows)
    layout.dims.erase(layout.dims.begin());
  return layout;
}

static void setLayout(const FlowGraph &graph, const FlowTie &tie, const Layout &row,
                      std::vector<Strategy> &strategies) {
  for (const FlowTie::Member &member : tie.members) {
    Layout layout = row;
    if (member.hasRows) {
      int64_t rows = graph.values[graph.endValue(member.op)].shape[0];
      layout.dims.insert(layout.dims.begin(), Layout::replicated({rows}).dims[0]);
    }
    strategies[member.op] =
        strategyForLayout(graph.ops[member.op].rule, graph.endFactors(member.op), layout);
  }
}

/// Bytes that conversions of the members' values receive in a run.
static int64_t receivedAround(const FlowGraph &graph, const FlowTie &tie,
                              const std::vector<Strategy> &strategies) {
  std::vector<int32_t> values;
  for (const FlowTie::Member &member : tie.members)
    values.push_back(graph.endValue(member.op));
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return receivedOf(graph, strategies, values).first;
}

void partita::settleTies(const FlowGraph &graph, std::vector<Strategy> &strategies) {
  for (const FlowTie &tie : graph.ties) {
    std::vector<Layout> candidates;
    for (const FlowTie::Member &member : tie.members)
      candidates.push_back(rowLayout(graph, member, strategies[member.op]));
    bool agree = std::all_of(candidates.begin(), candidates.end(),
                             [&](const Layout &it) { return it == candidates[0]; });
    if (agree)
      continue;
    candidates.push_back(Layout::replicated(candidates[0].globalShape()));
    const Layout *best = nullptr;
    int64_t least = 0;
    for (const Layout &candidate : candidates) {
      setLayout(graph, tie, candidate, strategies);
      int64_t bytes = receivedAround(graph, tie, strategies);
      if (!best || bytes < least)
        best = &candidate, least = bytes;
    }
    setLayout(graph, tie, *best, strategies);
  }
}

/// The layout in which the value of an end is made or, of one without operands, first
/// read.
static std::optional<Layout> wishOf(const FlowGraph &graph, int32_t op,
                                    const std::vector<Strategy> &strategies) {
  int32_t number = graph.endValue(op);
  const FlowValue &value = graph.values[number];
  if (graph.ops[op].results.empty())
    return resultLayout(graph.ops[value.producer].rule, strategies[value.producer],
                        static_cast<size_t>(value.result))
        .canonicalized();
  auto served = serveUses(graph, strategies, number);
  return served.empty() ? std::nullopt : std::optional(served[0].layout);
}

void partita::settleEnds(const FlowGraph &graph, std::vector<Strategy> &strategies) {
  for (const FlowTie &tie : graph.ties)
    for (const FlowTie::Member &member : tie.members) {
      auto wish = wishOf(graph, member.op, strategies);
      bool hasWholeRows = !member.hasRows || (wish && !wish->dims[0].sharded());
      if (wish && wish->partial.empty() && hasWholeRows)
        strategies[member.op] = strategyForLayout(graph.ops[member.op].rule,
                                                  graph.endFactors(member.op), *wish);
    }
  settleTies(graph, strategies);
}
