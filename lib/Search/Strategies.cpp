//===- Strategies.cpp - The strategies that a search tries ----------------===//
#include "partita/Search/Strategies.h"

#include "partita/Rule/Sharding/Propagation.h"

#include <algorithm>

using namespace partita;
using namespace partita::search;

AxisList search::unitsOf(const Mesh &mesh, const Pins &pins) {
  AxisList units;
  for (size_t a = 0; a < mesh.axes().size(); ++a) {
    auto axis = static_cast<int32_t>(a);
    std::vector<int64_t> cuts{1, mesh.axes()[a].size};
    for (const auto &[atom, axes] : pins)
      for (const AxisRef &ref : axes)
        if (ref.axis == axis) {
          cuts.push_back(ref.pre);
          cuts.push_back(ref.pre * ref.size);
        }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    // Cuts that do not nest leave the axis whole: no strategy follows such pins.
    for (size_t i = 1; i < cuts.size(); ++i)
      if (cuts[i] % cuts[i - 1] != 0) {
        cuts = {1, mesh.axes()[a].size};
        break;
      }
    for (size_t i = 1; i < cuts.size(); ++i)
      units.push_back({axis, cuts[i - 1], cuts[i] / cuts[i - 1]});
  }
  return units;
}

static uint8_t bitOf(ReduceKind kind) {
  return static_cast<uint8_t>(1u << static_cast<unsigned>(kind));
}

std::vector<uint8_t> search::partialKinds(const FlowGraph &graph) {
  std::vector<uint8_t> kinds(graph.values.size(), 0);
  for (const FlowOp &op : graph.ops) {
    // What a loop carries says so itself: a sum that each trip adds to.
    if (op.kind == FlowKind::State)
      for (const LinearSet &set : op.rule.linear)
        for (int32_t value : op.results)
          kinds[static_cast<size_t>(value)] |= bitOf(set.kind);
    if (op.kind != FlowKind::Compute)
      continue;
    uint8_t made = 0;
    for (const Factor &factor : op.rule.factors)
      if (const loop::Reduction *reduction = factor.reduction())
        made |= bitOf(reduction->reduce);
    for (const LinearSet &set : op.rule.linear)
      for (int32_t operand : set.operands)
        made |= kinds[static_cast<size_t>(op.operands[static_cast<size_t>(operand)])] &
                bitOf(set.kind);
    for (int32_t value : op.results)
      kinds[static_cast<size_t>(value)] = made;
  }
  return kinds;
}

static int64_t roundUp(int64_t size, int64_t unit) {
  return (size + unit - 1) / unit * unit;
}

int64_t search::paddedExtent(const Atom &atom, int64_t shards, const AxisList &units) {
  // Ways that do not nest meet in exchanges, which are slow, and slow to plan.
  constexpr int64_t large = 1024;
  int64_t size = atom.size, common = 1;
  if (size % shards == 0)
    return size;
  for (size_t i = units.size(); i-- > 0;)
    if ((roundUp(size, common * units[i].size) - size) * 8 <= size)
      common *= units[i].size;
  if (common % shards == 0)
    return roundUp(size, common);
  return size >= large ? 0 : roundUp(size, shards);
}

namespace {
class Enumerator {
public:
  Enumerator(const FlowGraph &graph, int32_t op, const AxisList &units,
             const std::vector<uint8_t> &partial, const Pins &pins)
      : graph(graph), op(op), rule(graph.ops[static_cast<size_t>(op)].rule), units(units),
        pins(pins), atoms(graph.allAtoms(op).begin(), graph.allAtoms(op).end()),
        perAtom(atoms.size()), perSet(rule.linear.size()) {
    for (size_t s = 0; s < rule.linear.size(); ++s)
      if (mayEnter(rule.linear[s], partial))
        sets.push_back(s);
    const FlowOp &it = graph.ops[static_cast<size_t>(op)];
    for (const std::vector<int32_t> *values : {&it.operands, &it.results})
      for (int32_t value : *values)
        isEmpty |= elementCount(graph.values[static_cast<size_t>(value)].shape) == 0;
  }

  std::vector<Strategy> run() {
    assign(0);
    return std::move(found);
  }

private:
  /// Whether some operand of the set can be partial at all. The ends of what a loop
  /// carries have such sets, and its first value is made partial where it goes in.
  bool mayEnter(const LinearSet &set, const std::vector<uint8_t> &partial) const {
    const FlowOp &it = graph.ops[static_cast<size_t>(op)];
    return it.kind != FlowKind::Compute ||
           std::any_of(set.operands.begin(), set.operands.end(), [&](int32_t operand) {
             return partial[static_cast<size_t>(
                        it.operands[static_cast<size_t>(operand)])] &
                    bitOf(set.kind);
           });
  }

  /// Gives unit `i` and the later ones to every possible place.
  void assign(size_t i) {
    // What has no elements is not worth splitting.
    if (i == units.size() || isEmpty)
      return accept();
    assign(i + 1);
    for (size_t a = 0; a < atoms.size(); ++a) {
      perAtom[a].push_back(units[i]);
      if (canShard(graph, graph.atoms[static_cast<size_t>(atoms[a])], perAtom[a]))
        assign(i + 1);
      perAtom[a].pop_back();
    }
    for (size_t s : sets) {
      perSet[s].push_back(units[i]);
      assign(i + 1);
      perSet[s].pop_back();
    }
  }

  bool followsPins() const {
    for (size_t a = 0; a < atoms.size(); ++a)
      if (auto pin = pins.find(atoms[a]);
          pin != pins.end() && canonical(perAtom[a]) != canonical(pin->second))
        return false;
    return true;
  }

  void accept() {
    if (!pins.empty() && !followsPins())
      return;
    Strategy strategy;
    size_t a = 0;
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      DimLayout layout;
      for (int32_t number : graph.atomsOf(op, static_cast<int32_t>(f))) {
        const Atom &atom = graph.atoms[static_cast<size_t>(number)];
        int64_t extent = perAtom[a].empty()
                             ? atom.size
                             : paddedExtent(atom, product(perAtom[a]), units);
        if (extent == 0 && atom.size != 0)
          return;
        layout.factors.push_back({atom.size, extent, canonical(perAtom[a])});
        ++a;
      }
      strategy.factors.push_back(std::move(layout));
    }
    for (size_t s : sets)
      if (!perSet[s].empty())
        strategy.passing.push_back({static_cast<int32_t>(s), canonical(perSet[s])});
    if (verifyStrategy(graph.mesh, rule, strategy))
      found.push_back(std::move(strategy));
  }

  const FlowGraph &graph;
  int32_t op;
  const ShardingRule &rule;
  const AxisList &units;
  const Pins &pins;
  std::vector<int32_t> atoms;
  bool isEmpty = false;     ///< whether it touches a tensor without elements
  std::vector<size_t> sets; ///< linear sets by which something may pass
  std::vector<AxisList> perAtom, perSet;
  std::vector<Strategy> found;
};
} // namespace

std::vector<Strategy> search::legalStrategies(const FlowGraph &graph, int32_t op,
                                              const AxisList &units,
                                              const std::vector<uint8_t> &partial,
                                              const Pins &pins) {
  return Enumerator(graph, op, units, partial, pins).run();
}
