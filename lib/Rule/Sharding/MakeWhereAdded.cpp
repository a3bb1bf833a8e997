//===- MakeWhereAdded.cpp - Addends of a loop's sum in their place --------===//
#include "partita/Rule/Sharding/MakeWhereAdded.h"

#include "partita/Rule/Sharding/OperandForm.h"
#include "partita/Rule/Sharding/Price.h"

#include <algorithm>
#include <set>

using namespace partita;

/// Ops before a maker that may lose its new axes, at most: those that bring its operands
/// into their shape.
static constexpr size_t mostBefore = 8;

namespace {
class Maker {
public:
  Maker(const FlowGraph &graph, const std::vector<Seed> &seeds,
        std::vector<Strategy> &strategies)
      : graph(graph), strategies(strategies) {
    for (const Seed &seed : seeds)
      seeded.insert(graph.atoms[static_cast<size_t>(seed.atom)].op);
  }

  /// From what is carried towards the operands, through sums and casts, up to what makes
  /// the addends.
  void visit(int32_t value) {
    int32_t number = valueAt(value).producer;
    if (!isMovable(value))
      return;
    const FlowOp &op = opAt(number);
    bool isSum = std::ranges::any_of(op.rule.linear, [&](const LinearSet &set) {
      return set.kind == ReduceKind::Sum && set.operands.size() == op.operands.size();
    });
    if (!isSum)
      return move(value);
    for (int32_t operand : op.operands)
      visit(operand);
  }

private:
  const FlowOp &opAt(int32_t op) const { return graph.ops[static_cast<size_t>(op)]; }
  const FlowValue &valueAt(int32_t value) const {
    return graph.values[static_cast<size_t>(value)];
  }
  Strategy &of(int32_t op) { return strategies[static_cast<size_t>(op)]; }

  /// Whether the value is all that its op makes, and has one reader.
  bool isMovable(int32_t value) const {
    const FlowValue &it = valueAt(value);
    const FlowOp &op = opAt(it.producer);
    return op.kind == FlowKind::Compute && op.results.size() == 1 &&
           it.uses.size() == 1 && !seeded.count(it.producer);
  }

  static bool isCheap(const FlowOp &op) { return op.priority == 0 && !op.isFunction; }

  void move(int32_t value) {
    const int32_t op = valueAt(value).producer;
    if (priceOfValue(graph, strategies, value).receivedBytes == 0 ||
        !of(op).passing.empty())
      return;
    std::vector<int32_t> before = opsBefore(op), values{value};
    for (const std::vector<int32_t> &ops : {std::vector<int32_t>{op}, before})
      for (int32_t it : ops)
        values.insert(values.end(), opAt(it).operands.begin(), opAt(it).operands.end());
    std::ranges::sort(values);
    values.erase(std::ranges::unique(values).begin(), values.end());
    std::vector<std::pair<int32_t, Strategy>> saved{{op, of(op)}};
    for (int32_t it : before)
      saved.emplace_back(it, of(it));
    const Received old = receivedOf(graph, strategies, values);
    const AxisList axes = makeAsRead(value);
    if (axes.empty() || !withoutAxes(axes, before, values, old))
      for (auto &[it, strategy] : saved)
        of(it) = std::move(strategy);
  }

  /// Gives the maker of the value the axes by which its reader splits the value, and
  /// leaves it those of its own that go with them. The axes given; none if it stays as it
  /// is.
  AxisList makeAsRead(int32_t value) {
    const FlowUse &use = valueAt(value).uses[0];
    const int32_t op = valueAt(value).producer;
    const ShardingRule &rule = opAt(op).rule;
    Layout wanted =
        operandLayout(opAt(use.op).rule, of(use.op), static_cast<size_t>(use.operand));
    wanted.partial.clear();
    const TensorFactors &result = rule.results[0];
    if (std::ranges::any_of(result, [](const auto &dim) { return dim.size() > 1; }))
      return {};
    Strategy made = strategyForLayout(rule, result, wanted);
    const AxisList axes = made.axes();
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      bool isOfResult = std::ranges::any_of(result, [&](const auto &dim) {
        return dim.size() == 1 && dim[0] == static_cast<int32_t>(f);
      });
      if (isOfResult)
        continue;
      made.factors[f] = of(op).factors[f];
      if (!drop(made.factors[f], axes))
        return {};
    }
    // Fewer axes would be more work for every rank.
    if (made == of(op) || product(made.axes()) < product(of(op).axes()) ||
        !verifyStrategy(graph.mesh, rule, made))
      return {};
    of(op) = std::move(made);
    return axes;
  }

  /// Takes the axes that the maker was given from ops before it, where that moves fewer
  /// bytes. False if no fewer bytes move than at first.
  bool withoutAxes(const AxisList &axes, const std::vector<int32_t> &before,
                   const std::vector<int32_t> &values, const Received &old) {
    Received least = receivedOf(graph, strategies, values);
    for (int32_t op : before) {
      Strategy saved = of(op);
      bool isValid = std::ranges::all_of(
          of(op).factors, [&](DimLayout &factor) { return drop(factor, axes); });
      isValid = isValid && verifyStrategy(graph.mesh, opAt(op).rule, of(op)).has_value();
      Received now = isValid ? receivedOf(graph, strategies, values) : least;
      if (now < least)
        least = now;
      else
        of(op) = std::move(saved);
    }
    return least < old;
  }

  /// False of a padded loop: its extent follows from its axes.
  static bool drop(DimLayout &loop, const AxisList &axes) {
    for (DimFactor &factor : loop.factors) {
      if (!overlap(factor.axes, axes))
        continue;
      if (factor.padded != factor.size || !factor.blocks.empty())
        return false;
      AxisList left;
      for (const AxisRef &digit : primes(factor.axes))
        if (!overlap(axes, {digit}))
          left.push_back(digit);
      factor.axes = canonical(left);
    }
    return true;
  }

  /// Ops that only the maker needs and that compute nothing worth a split, nearest first.
  std::vector<int32_t> opsBefore(int32_t maker) const {
    std::vector<int32_t> ops{maker};
    for (size_t i = 0; i < ops.size() && ops.size() <= mostBefore; ++i)
      for (int32_t value : opAt(ops[i]).operands)
        if (isMovable(value) && isCheap(opAt(valueAt(value).producer)))
          ops.push_back(valueAt(value).producer);
    ops.erase(ops.begin());
    return ops;
  }

  const FlowGraph &graph;
  std::vector<Strategy> &strategies;
  std::set<int32_t> seeded; ///< ops with an atom that a seed is for
};
} // namespace

void partita::makeWhereAdded(const FlowGraph &graph, const std::vector<Seed> &seeds,
                             std::vector<Strategy> &strategies) {
  Maker maker(graph, seeds, strategies);
  for (const FlowTie &tie : graph.ties)
    for (const FlowTie::Member &member : tie.members)
      if (!member.hasRows && graph.ops[static_cast<size_t>(member.op)].results.empty())
        maker.visit(graph.endValue(member.op));
}
