//===- CarrySums.cpp - Sums over the trips of a loop ----------------------===//
#include "partita/Rule/Sharding/CarrySums.h"

#include "partita/Rule/Sharding/OperandForm.h"
#include "partita/Rule/Sharding/Price.h"
#include "partita/Rule/Sharding/Ties.h"

#include <algorithm>
#include <set>

using namespace partita;

namespace {
/// An op, and the linear set by which partial sums pass through the op.
struct Way {
  int32_t op = -1, set = -1;
};

/// The addition in a body: one operand of a set that passes partial sums is what the tie
/// carries, the other one is `added`.
struct Addition {
  Way way;
  int32_t added = -1; ///< a value
  /// Ops of one operand between `sum`, which is partial, and `added`, from the last to
  /// the first. A gradient in 16 bits is cast to the type of the sum over micro-batches,
  /// which is larger: a reduction is not deferred through such an op.
  std::vector<Way> through = {};
  int32_t sum = -1; ///< a value
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
    if (addition.way.op < 0 || !findSum(addition))
      return;
    PartialAxes partial = producedLayout(addition.sum).partial[0];
    std::vector<int32_t> values = valuesAround(tie, addition);
    Received before = receivedOf(graph, strategies, values);
    // All that makePartial changes: a step has a tie per parameter, and many more ops.
    std::vector<std::pair<int32_t, Strategy>> saved{
        {addition.way.op, of(addition.way.op)}};
    for (const Way &way : addition.through)
      saved.emplace_back(way.op, of(way.op));
    for (const FlowTie::Member &member : tie.members)
      saved.emplace_back(member.op, of(member.op));
    if (!makePartial(tie, addition, partial) ||
        receivedOf(graph, strategies, values) >= before)
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
      for (int32_t s : sumSets(maker, 2)) {
        const LinearSet &set = maker.rule.linear[static_cast<size_t>(s)];
        int32_t a = maker.operands[static_cast<size_t>(set.operands[0])];
        int32_t b = maker.operands[static_cast<size_t>(set.operands[1])];
        int32_t added = given.count(a) ? b : a;
        // A smaller one, which is broadcast, has another layout than the sum.
        if (given.count(a) != given.count(b) &&
            graph.values[static_cast<size_t>(added)].shape ==
                graph.values[static_cast<size_t>(end.operands[0])].shape)
          return {{op, s}, added};
      }
    }
    return {};
  }

  /// The sets of so many operands by which partial sums pass through the op.
  static std::vector<int32_t> sumSets(const FlowOp &op, size_t operands) {
    std::vector<int32_t> sets;
    for (size_t s = 0; op.kind == FlowKind::Compute && s < op.rule.linear.size(); ++s)
      if (op.rule.linear[s].kind == ReduceKind::Sum &&
          op.rule.linear[s].operands.size() == operands)
        sets.push_back(static_cast<int32_t>(s));
    return sets;
  }

  /// Goes from `added` towards the operands up to a partial sum; false if there is none.
  bool findSum(Addition &addition) const {
    addition.sum = addition.added;
    for (;;) {
      Layout layout = producedLayout(addition.sum);
      if (!layout.partial.empty())
        return layout.partial.size() == 1 && layout.partial[0].kind == ReduceKind::Sum;
      int32_t op = graph.values[static_cast<size_t>(addition.sum)].producer;
      const FlowOp &maker = graph.ops[static_cast<size_t>(op)];
      std::vector<int32_t> sets = sumSets(maker, 1);
      if (sets.empty() || maker.operands.size() != 1 || maker.results.size() != 1 ||
          graph.values[static_cast<size_t>(addition.sum)].uses.size() != 1)
        return false;
      addition.through.push_back({op, sets.front()});
      addition.sum = maker.operands[0];
    }
  }

  std::vector<int32_t> valuesAround(const FlowTie &tie, const Addition &addition) const {
    std::set<int32_t> values{addition.added, addition.sum};
    for (const Way &way : addition.through)
      values.insert(graph.ops[static_cast<size_t>(way.op)].results[0]);
    for (const FlowTie::Member &member : tie.members)
      values.insert(graph.endValue(member.op));
    return {values.begin(), values.end()};
  }

  /// Everything is as the added value is made.
  bool makePartial(const FlowTie &tie, const Addition &addition,
                   const PartialAxes &partial) {
    for (auto way = addition.through.rbegin(); way != addition.through.rend(); ++way) {
      Strategy &strategy = of(way->op);
      strategy.passing.push_back({way->set, partial.axes});
      if (!verifyStrategy(graph.mesh, graph.ops[static_cast<size_t>(way->op)].rule,
                          strategy))
        return false;
    }
    Layout layout = producedLayout(addition.added);
    const FlowOp &maker = graph.ops[static_cast<size_t>(addition.way.op)];
    Layout dims = layout;
    dims.partial.clear();
    Strategy added = strategyForLayout(maker.rule, maker.rule.results[0], dims);
    added.passing = {{addition.way.set, partial.axes}};
    if (!verifyStrategy(graph.mesh, maker.rule, added))
      return false;
    of(addition.way.op) = std::move(added);
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
