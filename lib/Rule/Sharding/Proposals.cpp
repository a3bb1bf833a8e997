//===- Proposals.cpp - What the neighbours of an op ask of its loops ------===//
#include "Proposals.h"

#include "partita/Rule/Sharding/Propagation.h"

#include <algorithm>

using namespace partita;

bool partita::canFollow(const FlowGraph &graph, const Atom &atom, const AxisList &axes) {
  return canShard(graph, atom, axes) ||
         (atom.canPad && atom.size > 1 && graph.kindOf(atom) != FactorKind::Replicate);
}

namespace {
class Chooser {
public:
  Chooser(const FlowGraph &graph, int32_t op, const std::vector<AxisList> &axes,
          const Asked &asked)
      : graph(graph), op(op), flow(graph.ops[static_cast<size_t>(op)]), axes(axes),
        asked(asked) {}

  /// Takes the proposal of this number first, then the others in their order as far as
  /// they go with what is taken.
  Choice beginningWith(size_t first) const {
    Choice choice;
    take(asked.proposals[first], choice);
    for (size_t i = 0; i < asked.proposals.size(); ++i)
      if (i != first)
        take(asked.proposals[i], choice);
    return choice;
  }

  double costOf(const Choice &choice) const {
    double cost = 0, reduced = 1;
    for (const Proposal &p : choice.taken)
      if (graph.kindOf(graph.atoms[static_cast<size_t>(p.atom)]) == FactorKind::Reduction)
        reduced *= static_cast<double>(product(p.axes));
    for (int32_t value : flow.results)
      cost += bytesOf(value) / waysOf(value, choice) * (1 - 1 / reduced);
    for (const OtherEnd &end : asked.ends) {
      // A reduction brings a result to its other end.
      if (reduced > 1 && std::ranges::count(flow.results, end.value) != 0)
        continue;
      double there = 1, alike = 1;
      for (const auto &[atom, list] : end.axes) {
        there *= static_cast<double>(product(list));
        alike *= commonWays(list, axesOf(atom, choice));
      }
      cost += bytesOf(end.value) / waysOf(end.value, choice) * (1 - alike / there);
    }
    return cost;
  }

private:
  void take(Proposal p, Choice &choice) const {
    const AxisList left = leading(p, choice);
    if (left != p.axes)
      choice.rejected.push_back({p, rivalOf(p, choice)});
    p.axes = left;
    const bool isOpen = std::ranges::none_of(
        choice.taken, [&](const Proposal &other) { return other.atom == p.atom; });
    if (isOpen && !left.empty() &&
        canFollow(graph, graph.atoms[static_cast<size_t>(p.atom)], left))
      choice.taken.push_back(std::move(p));
  }

  /// The axes of an atom of the op with the choice.
  const AxisList &axesOf(int32_t atom, const Choice &choice) const {
    for (const Proposal &p : choice.taken)
      if (p.atom == atom)
        return p.axes;
    return axes[static_cast<size_t>(atom)];
  }

  /// The axes of a proposal before the first that is in use: of rows over {dp, tp}, whose
  /// op splits its columns by tp, what dp cuts stays. None if the atom has others.
  AxisList leading(const Proposal &p, const Choice &choice) const {
    const AxisList &own = axesOf(p.atom, choice);
    if (!own.empty())
      return own == p.axes ? own : AxisList();
    AxisList digits = primes(p.axes);
    auto isUsed = [&](const AxisRef &digit) {
      return std::ranges::any_of(graph.allAtoms(op), [&](int32_t atom) {
        return overlap(axesOf(atom, choice), {digit});
      });
    };
    digits.erase(std::ranges::find_if(digits, isUsed), digits.end());
    return canonical(digits);
  }

  /// The atom that has what a proposal asks for, or its own if that has other axes.
  int32_t rivalOf(const Proposal &p, const Choice &choice) const {
    if (!axesOf(p.atom, choice).empty())
      return p.atom;
    for (int32_t atom : graph.allAtoms(op))
      if (overlap(axesOf(atom, choice), p.axes))
        return atom;
    return -1;
  }

  double bytesOf(int32_t value) const {
    return static_cast<double>(graph.values[static_cast<size_t>(value)].bytes());
  }

  /// How many ways the op splits a value that it reads or makes.
  double waysOf(int32_t value, const Choice &choice) const {
    double ways = 1;
    for (int32_t atom : graph.allAtoms(op))
      if (hasLoop(value, graph.atoms[static_cast<size_t>(atom)].factor))
        ways *= static_cast<double>(product(axesOf(atom, choice)));
    return ways;
  }

  bool hasLoop(int32_t value, int32_t factor) const {
    auto isIn = [&](const std::vector<int32_t> &values,
                    const std::vector<TensorFactors> &tensors) {
      for (size_t i = 0; i < values.size(); ++i)
        if (values[i] == value &&
            std::ranges::any_of(tensors[i], [&](const std::vector<int32_t> &dim) {
              return std::ranges::count(dim, factor) != 0;
            }))
          return true;
      return false;
    };
    return isIn(flow.operands, flow.rule.operands) ||
           isIn(flow.results, flow.rule.results);
  }

  /// The ways of the leading axes that two lists have in common.
  static double commonWays(const AxisList &a, const AxisList &b) {
    const AxisList left = primes(a), right = primes(b);
    double ways = 1;
    for (size_t i = 0; i < std::min(left.size(), right.size()) && left[i] == right[i];
         ++i)
      ways *= static_cast<double>(left[i].size);
    return ways;
  }

  const FlowGraph &graph;
  const int32_t op;
  const FlowOp &flow;
  const std::vector<AxisList> &axes;
  const Asked &asked;
};
} // namespace

Choice partita::chooseAmong(const FlowGraph &graph, int32_t op,
                            const std::vector<AxisList> &axes, Asked asked) {
  std::ranges::sort(asked.proposals, [](const Proposal &a, const Proposal &b) {
    if (a.savedBytes != b.savedBytes)
      return a.savedBytes > b.savedBytes;
    int64_t sa = product(a.axes), sb = product(b.axes);
    if (sa != sb)
      return sa > sb;
    return std::tie(a.axes, a.atom) < std::tie(b.axes, b.atom);
  });
  Chooser chooser(graph, op, axes, asked);
  Choice best = chooser.beginningWith(0);
  if (best.rejected.empty())
    return best;
  double least = chooser.costOf(best);
  for (size_t first = 1; first < asked.proposals.size(); ++first) {
    Choice other = chooser.beginningWith(first);
    const double cost = chooser.costOf(other);
    if (cost < least) {
      least = cost;
      best = std::move(other);
    }
  }
  return best;
}
