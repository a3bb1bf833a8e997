//===- AssignStrategies.cpp - Padded extents and deferred reductions ------===//
#include "partita/Rule/Sharding/AssignStrategies.h"
#include "partita/Rule/Sharding/AddPartials.h"
#include "partita/Rule/Sharding/CarrySums.h"
#include "partita/Rule/Sharding/MakeWhereAdded.h"
#include "partita/Rule/Sharding/OperandForm.h"
#include "partita/Rule/Sharding/ReduceAtForks.h"
#include "partita/Rule/Sharding/ServeUses.h"
#include "partita/Rule/Sharding/Ties.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace partita;

//===-- Padded extents ----------------------------------------------------===//

namespace {
/// Union-find over atoms that are pieces of the same thing.
class Classes {
public:
  explicit Classes(const FlowGraph &graph) : parent(graph.atoms.size()) {
    std::iota(parent.begin(), parent.end(), 0);
    for (size_t a = 0; a < graph.atoms.size(); ++a)
      for (const Atom::Link &link : graph.atoms[a].links)
        if (link.common == 0)
          parent[find(static_cast<int32_t>(a))] = find(link.atom);
  }
  int32_t find(int32_t a) {
    while (parent[a] != a)
      a = parent[a] = parent[parent[a]];
    return a;
  }

private:
  std::vector<int32_t> parent;
};
} // namespace

/// Per atom the one padded extent of its class: a multiple of the product of all distinct
/// axes that any layout of the class uses, so that every nesting of them cuts at the same
/// places.
static std::vector<int64_t> paddedExtents(const FlowGraph &graph,
                                          const std::vector<AxisList> &axes) {
  Classes classes(graph);
  std::vector<AxisList> used(graph.atoms.size());
  std::vector<bool> uneven(graph.atoms.size(), false);
  for (size_t a = 0; a < graph.atoms.size(); ++a) {
    int32_t root = classes.find(static_cast<int32_t>(a));
    for (const AxisRef &digit : primes(axes[a]))
      if (std::find(used[root].begin(), used[root].end(), digit) == used[root].end())
        used[root].push_back(digit);
    if (graph.atoms[a].size % product(axes[a]) != 0)
      uneven[root] = true;
  }
  std::vector<int64_t> result;
  for (size_t a = 0; a < graph.atoms.size(); ++a) {
    int32_t root = classes.find(static_cast<int32_t>(a));
    int64_t size = graph.atoms[a].size, unit = uneven[root] ? product(used[root]) : 1;
    result.push_back((size + unit - 1) / unit * unit);
  }
  return result;
}

//===-- Deferring reductions -------------------------------------------===//

namespace {
/// Decides, from the arguments on, which values stay partial. A value stays partial if
/// every user can let it pass and none of their results is larger than the value.
class Deferrer {
public:
  Deferrer(const FlowGraph &graph, std::vector<Strategy> &strategies)
      : graph(graph), strategies(strategies), kept(graph.values.size()) {}

  /// Ops of equal depth together, so that the result does not depend on their order.
  void run() {
    std::map<int64_t, std::vector<int32_t>> levels;
    std::vector<int64_t> depth(graph.ops.size(), 0);
    for (size_t op = 0; op < graph.ops.size(); ++op) {
      for (int32_t value : graph.ops[op].operands)
        if (int32_t producer = graph.values[value].producer; producer >= 0)
          depth[op] = std::max(depth[op], depth[producer] + 1);
      levels[depth[op]].push_back(static_cast<int32_t>(op));
    }
    for (const auto &[level, ops] : levels) {
      for (int32_t op : ops)
        enter(op);
      for (int32_t op : ops)
        for (size_t i = 0; i < graph.ops[op].results.size(); ++i)
          leave(op, i);
    }
  }

private:
  Layout producedLayout(int32_t value) const {
    const FlowValue &v = graph.values[value];
    return resultLayout(graph.ops[v.producer].rule, strategies[v.producer], v.result);
  }

  /// The linear set through which `kind` on `axes` may enter `op` at `operand`, or -1.
  int32_t setFor(const FlowUse &use, ReduceKind kind, const AxisList &axes) const {
    const FlowOp &op = graph.ops[use.op];
    if (op.kind != FlowKind::Compute || overlap(strategies[use.op].axes(), axes))
      return -1;
    for (size_t s = 0; s < op.rule.linear.size(); ++s) {
      const LinearSet &set = op.rule.linear[s];
      if (set.kind != kind || !contains(set, use.operand) ||
          !canPass(op.rule, strategies[use.op], static_cast<int32_t>(s)))
        continue;
      if (othersFit(op, set, use.operand, axes))
        return static_cast<int32_t>(s);
    }
    return -1;
  }

  static bool contains(const LinearSet &set, int32_t operand) {
    return std::find(set.operands.begin(), set.operands.end(), operand) !=
           set.operands.end();
  }

  /// The other operands of the set can become partial for free: they do not use the axes
  /// in their dims. Operands outside the set are required replicated along the axes by
  /// the op's own strategy.
  bool othersFit(const FlowOp &op, const LinearSet &set, int32_t operand,
                 const AxisList &axes) const {
    for (size_t o = 0; o < op.operands.size(); ++o) {
      if (static_cast<int32_t>(o) == operand)
        continue;
      int32_t value = op.operands[o];
      int32_t producer = graph.values[value].producer;
      if (producer < 0 || graph.ops[producer].isSource())
        continue;
      // A state would be copied for it, and reduced again on its way to its place.
      if (graph.ops[producer].kind == FlowKind::State)
        return false;
      // The same value twice: both uses must be in the set.
      if (value == op.operands[operand] && !contains(set, static_cast<int32_t>(o)))
        return false;
      if (producer < static_cast<int32_t>(&op - graph.ops.data())) {
        Layout layout = producedLayout(value);
        if (overlap(layout.shardingAxes(), axes))
          return false;
        // Outside the set a partial operand would have to be reduced here: no gain.
        if (!contains(set, static_cast<int32_t>(o)) && !layout.partial.empty())
          return false;
      }
    }
    return true;
  }

  /// Most ops have none, and a layout takes longer to build than this to look at.
  static bool hasPartialResults(const ShardingRule &rule, const Strategy &strategy) {
    if (!strategy.passing.empty())
      return true;
    for (size_t f = 0; f < rule.factors.size(); ++f)
      if (rule.factors[f].reduction() && strategy.factors[f].sharded())
        return true;
    return false;
  }

  /// Result `i` of `op` has appeared: keep it partial if every user lets it pass.
  void leave(int32_t op, size_t i) {
    if (!hasPartialResults(graph.ops[op].rule, strategies[op]))
      return;
    int32_t value = graph.ops[op].results[i];
    Layout layout = producedLayout(value);
    if (layout.partial.size() != 1 || graph.values[value].uses.empty())
      return;
    const PartialAxes &partial = layout.partial[0];
    int64_t bytes = layout.localElements() * graph.values[value].elementBytes;
    for (const FlowUse &use : graph.values[value].uses) {
      if (setFor(use, partial.kind, partial.axes) < 0)
        return;
      const FlowOp &user = graph.ops[use.op];
      int64_t after = 0;
      for (size_t r = 0; r < user.results.size(); ++r)
        after += resultLayout(user.rule, strategies[use.op], r).localElements() *
                 graph.values[user.results[r]].elementBytes;
      if (after > bytes)
        return;
    }
    kept[value] = partial;
  }

  /// `op` is reached: let kept operands pass through it.
  void enter(int32_t op) {
    const FlowOp &flow = graph.ops[op];
    for (size_t o = 0; o < flow.operands.size(); ++o) {
      const PartialAxes &partial = kept[flow.operands[o]];
      if (partial.axes.empty())
        continue;
      // What already passes needs no second entry.
      AxisList fresh;
      for (const AxisRef &digit : primes(partial.axes))
        if (!overlap(strategies[op].axes(), {digit}))
          fresh.push_back(digit);
      FlowUse use{op, static_cast<int32_t>(o)};
      int32_t set = setFor(use, partial.kind, canonical(fresh));
      if (fresh.empty() || set < 0)
        continue;
      auto &passing = strategies[op].passing;
      auto same = std::find_if(passing.begin(), passing.end(),
                               [&](const Passing &p) { return p.set == set; });
      if (same == passing.end())
        same = passing.insert(passing.end(), Passing{set, {}});
      same->axes.insert(same->axes.end(), fresh.begin(), fresh.end());
      std::sort(same->axes.begin(), same->axes.end());
      same->axes = canonical(same->axes);
    }
  }

  const FlowGraph &graph;
  std::vector<Strategy> &strategies;
  std::vector<PartialAxes> kept;
};
} // namespace

/// Per atom the given blocks of its class, those of its own seed first; empty: none.
static std::vector<std::vector<int64_t>> givenBlocks(const FlowGraph &graph,
                                                     const std::vector<AxisList> &axes,
                                                     const std::vector<Seed> &seeds) {
  std::vector<std::vector<int64_t>> result(graph.atoms.size());
  if (std::none_of(seeds.begin(), seeds.end(),
                   [](const Seed &seed) { return !seed.blocks.empty(); }))
    return result;
  Classes classes(graph);
  for (size_t a = 0; a < graph.atoms.size(); ++a) {
    int32_t root = classes.find(static_cast<int32_t>(a));
    for (const Seed &seed : seeds) {
      bool own = seed.atom == static_cast<int32_t>(a);
      if (seed.blocks.empty() || classes.find(seed.atom) != root ||
          graph.atoms[seed.atom].size != graph.atoms[a].size ||
          canonical(seed.axes) != canonical(axes[a]))
        continue;
      if (own || result[a].empty())
        result[a] = seed.blocks;
      if (own)
        break;
    }
  }
  return result;
}

/// The strategy of `op` before reductions are deferred; without given blocks if they
/// are not to be used or the op does not allow them.
static Strategy strategyOf(const FlowGraph &graph, int32_t op,
                           const std::vector<AxisList> &axes,
                           const std::vector<int64_t> &padded,
                           const std::vector<std::vector<int64_t>> &blocks, bool given) {
  Strategy strategy;
  bool any = false;
  const ShardingRule &rule = graph.ops[op].rule;
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    DimLayout layout;
    // Padding exists only where a dim is split: whole dims have their true size, so
    // that softmax, outputs and the like never see it.
    for (int32_t a : graph.atomsOf(op, static_cast<int32_t>(f))) {
      DimFactor factor{graph.atoms[a].size,
                       axes[a].empty() ? graph.atoms[a].size : padded[a], axes[a]};
      if (given && !blocks[a].empty()) {
        any = true;
        factor.blocks = blocks[a];
        factor.padded =
            factor.shards() * *std::max_element(blocks[a].begin(), blocks[a].end());
      }
      layout.factors.push_back(std::move(factor));
    }
    strategy.factors.push_back(std::move(layout));
  }
  if (any && !verifyStrategy(graph.mesh, rule, strategy))
    return strategyOf(graph, op, axes, padded, blocks, false);
  return strategy;
}

/// An argument has the layout that its users agree on, else it is whole and each rank
/// slices what it needs.
static void settleArguments(const FlowGraph &graph, std::vector<Strategy> &strategies) {
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const FlowOp &op = graph.ops[i];
    if (op.kind != FlowKind::Argument)
      continue;
    auto served = serveUses(graph, strategies, op.results[0]);
    strategies[i] = served.size() == 1 && served[0].layout.partial.empty()
                        ? strategyForLayout(op.rule, op.rule.results[0], served[0].layout)
                        : Strategy::replicated(op.rule);
  }
}

/// What becomes of a state is brought to where it lies.
static void settleStates(const FlowGraph &graph, std::vector<Strategy> &strategies) {
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const FlowOp &state = graph.ops[i];
    if (state.kind != FlowKind::State || state.tied < 0)
      continue;
    const ShardingRule &sink = graph.ops[state.tied].rule;
    strategies[state.tied] = strategyForLayout(
        sink, sink.operands[0], resultLayout(state.rule, strategies[i], 0));
  }
}

std::vector<Strategy> partita::strategiesOf(const FlowGraph &graph,
                                            const std::vector<AxisList> &axes,
                                            const std::vector<Seed> &seeds) {
  std::vector<int64_t> padded = paddedExtents(graph, axes);
  std::vector<std::vector<int64_t>> blocks = givenBlocks(graph, axes, seeds);
  std::vector<Strategy> result;
  for (size_t op = 0; op < graph.ops.size(); ++op)
    result.push_back(
        strategyOf(graph, static_cast<int32_t>(op), axes, padded, blocks, true));
  Deferrer(graph, result).run();
  reduceAtForks(graph, result);
  addPartials(graph, seeds, result);
  settleArguments(graph, result);
  settleStates(graph, result);
  settleTies(graph, result);
  makeWhereAdded(graph, seeds, result);
  carrySums(graph, seeds, result);
  return result;
}
