//===- ReduceAtForks.cpp - Partial sums are reduced once ------------------===//
#include "partita/Rule/Sharding/ReduceAtForks.h"

#include "partita/Rule/Sharding/Price.h"

#include <algorithm>
#include <map>
#include <set>

using namespace partita;

namespace {
class Forks {
public:
  Forks(const FlowGraph &graph, std::vector<Strategy> &strategies)
      : graph(graph), strategies(strategies) {}

  void visit(int32_t value) {
    const FlowValue &it = graph.values[static_cast<size_t>(value)];
    const std::vector<FlowUse> &uses = it.uses;
    if (std::ranges::all_of(
            uses, [&](const FlowUse &use) { return use.op == uses.front().op; }))
      return;
    const Layout layout = layoutOf(value);
    if (layout.partial.size() != 1)
      return;
    std::map<int32_t, Strategy> saved;
    std::set<int32_t> values = dropFrom(value, layout.partial[0].axes, saved);
    const std::vector<int32_t> all(values.begin(), values.end());
    if (saved.empty())
      return;
    const Received after = receivedOf(graph, strategies, all);
    exchange(saved);
    if (receivedOf(graph, strategies, all) > after)
      exchange(saved);
  }

private:
  Layout layoutOf(int32_t value) const {
    const FlowValue &it = graph.values[static_cast<size_t>(value)];
    const auto producer = static_cast<size_t>(it.producer);
    return resultLayout(graph.ops[producer].rule, strategies[producer],
                        static_cast<size_t>(it.result));
  }

  /// Takes the axes from all that they pass through behind a value, whose strategies are
  /// saved. The values around these ops.
  std::set<int32_t> dropFrom(int32_t value, const AxisList &axes,
                             std::map<int32_t, Strategy> &saved) {
    std::set<int32_t> values;
    std::vector<int32_t> open{value};
    while (!open.empty()) {
      const int32_t next = open.back();
      open.pop_back();
      values.insert(next);
      for (const FlowUse &use : graph.values[static_cast<size_t>(next)].uses) {
        Strategy &strategy = strategies[static_cast<size_t>(use.op)];
        Strategy without = strategy;
        for (Passing &passing : without.passing)
          std::erase_if(passing.axes = primes(passing.axes),
                        [&](const AxisRef &digit) { return overlap(axes, {digit}); });
        for (Passing &passing : without.passing)
          passing.axes = canonical(passing.axes);
        std::erase_if(without.passing, [](const Passing &p) { return p.axes.empty(); });
        if (without == strategy)
          continue;
        saved.emplace(use.op, std::move(strategy));
        strategy = std::move(without);
        const FlowOp &op = graph.ops[static_cast<size_t>(use.op)];
        values.insert(op.operands.begin(), op.operands.end());
        open.insert(open.end(), op.results.begin(), op.results.end());
      }
    }
    return values;
  }

  void exchange(std::map<int32_t, Strategy> &saved) {
    for (auto &[op, strategy] : saved)
      std::swap(strategies[static_cast<size_t>(op)], strategy);
  }

  const FlowGraph &graph;
  std::vector<Strategy> &strategies;
};
} // namespace

void partita::reduceAtForks(const FlowGraph &graph, std::vector<Strategy> &strategies) {
  Forks forks(graph, strategies);
  for (size_t op = 0; op < graph.ops.size(); ++op)
    if (!strategies[op].axes().empty())
      for (int32_t value : graph.ops[op].results)
        if (graph.values[static_cast<size_t>(value)].uses.size() > 1)
          forks.visit(value);
}
