//===- CarrySums.cpp - Sums over the trips of a loop ----------------------===//
#include "partita/Rule/Sharding/CarrySums.h"

#include "partita/Rule/Sharding/OperandForm.h"
#include "partita/Rule/Sharding/Price.h"
#include "partita/Rule/Sharding/Ties.h"

#include <algorithm>
#include <set>

using namespace partita;

namespace {
/// The addition in a body: one operand of a set that passes partial sums is what the tie
/// carries, the other one is `added`.
struct Addition {
  int32_t op = -1, set = -1, added = -1; ///< op, its linear set, a value
};

class Carrier {
public:
  Carrier(const FlowGraph &graph, const std::vector<Seed> &seeds,
          std::vector<Strategy> &strategies)
      : graph(graph), strategies(strategies) {
    for (const Seed &seed : seeds)
      seeded.insert(graph.atoms[static_cast<size_t>(seed.atom)].op);
  }

  void carry(const FlowTie &tie) {
    for (const FlowTie::Member &member : tie.members)
      if (seeded.count(member.op))
        return;
    Addition addition = additionOf(tie);
    if (addition.op < 0)
      return;
    Layout produced = producedLayout(addition.added);
    if (produced.partial.size() != 1 || produced.partial[0].kind != ReduceKind::Sum)
      return;
    std::vector<int32_t> values = valuesAround(tie, addition);
    int64_t before = received(values);
    // All that makePartial changes: a step has a tie per parameter, and many more ops.
    std::vector<std::pair<int32_t, Strategy>> saved{{addition.op, of(addition.op)}};
    for (const FlowTie::Member &member : tie.members)
      saved.emplace_back(member.op, of(member.op));
    if (!makePartial(tie, addition, produced.partial[0]) || received(values) >= before)
      for (auto &[op, strategy] : saved)
        of(op) = std::move(strategy);
  }

private:
  Strategy &of(int32_t op) { return strategies[static_cast<size_t>(op)]; }
  Layout producedLayout(int32_t value) const {
    const FlowValue &it = graph.values[static_cast<size_t>(value)];
    return resultLayout(graph.ops[static_cast<size_t>(it.producer)].rule,
                        strategies[static_cast<size_t>(it.producer)],
                        static_cast<size_t>(it.result))
        .canonicalized();
  }

  /// What the body gives is the sum of what came in, which nobody else reads, and
  /// something else.
  Addition additionOf(const FlowTie &tie) const {
    std::set<int32_t> given; // values of ends that somebody in the body reads once
    for (const FlowTie::Member &member : tie.members) {
      const FlowOp &end = graph.ops[static_cast<size_t>(member.op)];
      if (member.hasRows)
        return {};
      if (!end.results.empty() &&
          graph.values[static_cast<size_t>(end.results[0])].uses.size() == 1)
        given.insert(end.results[0]);
    }
    for (const FlowTie::Member &member : tie.members) {
      const FlowOp &end = graph.ops[static_cast<size_t>(member.op)];
      if (!end.results.empty())
        continue;
      int32_t op = graph.values[static_cast<size_t>(end.operands[0])].producer;
      const FlowOp &maker = graph.ops[static_cast<size_t>(op)];
      for (size_t s = 0; maker.kind == FlowKind::Compute && s < maker.rule.linear.size();
           ++s) {
        const LinearSet &set = maker.rule.linear[s];
        if (set.kind != ReduceKind::Sum || set.operands.size() != 2)
          continue;
        int32_t a = maker.operands[static_cast<size_t>(set.operands[0])];
        int32_t b = maker.operands[static_cast<size_t>(set.operands[1])];
        int32_t added = given.count(a) ? b : a;
        // A smaller one, which is broadcast, has another layout than the sum.
        if (given.count(a) != given.count(b) &&
            graph.values[static_cast<size_t>(added)].shape ==
                graph.values[static_cast<size_t>(end.operands[0])].shape)
          return {op, static_cast<int32_t>(s), added};
      }
    }
    return {};
  }

  std::vector<int32_t> valuesAround(const FlowTie &tie, const Addition &addition) const {
    std::set<int32_t> values{addition.added};
    for (const FlowTie::Member &member : tie.members)
      values.insert(graph.endValue(member.op));
    return {values.begin(), values.end()};
  }

  int64_t received(const std::vector<int32_t> &values) const {
    int64_t bytes = 0;
    for (int32_t value : values) {
      int32_t producer = graph.values[static_cast<size_t>(value)].producer;
      bytes += priceOfValue(graph, strategies, value).receivedBytes *
               graph.ops[static_cast<size_t>(producer)].trips;
    }
    return bytes;
  }

  /// Everything is as the added value is made.
  bool makePartial(const FlowTie &tie, const Addition &addition,
                   const PartialAxes &partial) {
    Layout layout = producedLayout(addition.added);
    const FlowOp &maker = graph.ops[static_cast<size_t>(addition.op)];
    Layout dims = layout;
    dims.partial.clear();
    Strategy added = strategyForLayout(maker.rule, maker.rule.results[0], dims);
    added.passing = {{addition.set, partial.axes}};
    if (!verifyStrategy(graph.mesh, maker.rule, added))
      return false;
    of(addition.op) = std::move(added);
    for (const FlowTie::Member &member : tie.members) {
      const FlowOp &end = graph.ops[static_cast<size_t>(member.op)];
      Strategy strategy =
          strategyForLayout(end.rule, graph.endFactors(member.op), layout);
      if (strategy.passing.empty())
        return false;
      of(member.op) = std::move(strategy);
    }
    return true;
  }

  const FlowGraph &graph;
  std::vector<Strategy> &strategies;
  std::set<int32_t> seeded; ///< ops with an atom that a seed is for
};
} // namespace

void partita::carrySums(const FlowGraph &graph, const std::vector<Seed> &seeds,
                        std::vector<Strategy> &strategies) {
  Carrier carrier(graph, seeds, strategies);
  for (const FlowTie &tie : graph.ties)
    carrier.carry(tie);
}
