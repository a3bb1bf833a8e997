//===- Search.cpp - Branch and bound over cores ---------------------------===//
//
// Every node of the tree is a core of its own, reduced and bounded like the first one.
// The copy costs less than it saves: the bound forbids choices and pairs, that makes
// edges functional and variables few, and most nodes end before they branch.
//
//===----------------------------------------------------------------------===//
#include "Search.h"

#include <algorithm>
#include <cmath>

using namespace partita;
using namespace partita::solver;

/// Sums of integers up to 2^53 are exact; the moves of a reparametrization are not.
static double exactCost(double cost) {
  return std::abs(cost) < 4e15 ? std::round(cost) : cost;
}

bool Search::accept(const Core &core, const std::vector<int> &choices,
                    std::optional<std::vector<int>> &best) {
  double cost = exactCost(core.price(choices));
  if (isInfinite(cost) || cost >= cut.upper || !core.fits(choices))
    return false;
  cut.upper = cost;
  best = core.expand(choices);
  return true;
}

/// Variables worth branching on, best first: those joined to much, and those whose cheap
/// choices differ most in what their memory is priced at.
std::vector<Search::Branch> Search::candidates(const Core &core, const Dual &dual,
                                               size_t count) const {
  struct Scored {
    double score;
    Branch branch;
  };
  std::vector<Scored> scored;
  for (size_t v = 0; v < core.vars.size(); ++v) {
    const CoreVar &var = core.vars[v];
    if (!var.alive || var.size() < 2)
      continue;
    const std::vector<double> &excess = dual.excess(static_cast<int>(v));
    int least =
        static_cast<int>(std::min_element(excess.begin(), excess.end()) - excess.begin());
    double weight =
        static_cast<double>(var.edges.size()) + (var.members.empty() ? 0.0 : 4.0);
    scored.push_back(
        {weight / std::log2(1.0 + var.size()), {static_cast<int>(v), least}});
  }
  std::sort(scored.begin(), scored.end(), [](const Scored &a, const Scored &b) {
    return a.score != b.score ? a.score > b.score : a.branch.var < b.branch.var;
  });
  std::vector<Branch> result;
  for (size_t i = 0; i < scored.size() && result.size() < count; ++i)
    result.push_back(scored[i].branch);
  return result;
}

/// One side of a branch as a core of its own. False: that side is empty.
static bool side(const Core &core, const Search::Branch &at, bool fixed, Core &child,
                 std::vector<int> &ids) {
  child = core.pack(ids);
  int var =
      static_cast<int>(std::lower_bound(ids.begin(), ids.end(), at.var) - ids.begin());
  if (!at.part.empty()) {
    for (size_t s = 0; s < at.part.size(); ++s)
      if (at.part[s] != fixed)
        child.vars[var].cost[s] = infinite;
    return true;
  }
  if (fixed)
    return child.fix(var, at.choice);
  child.vars[var].cost[at.choice] = infinite;
  return true;
}

/// How far a few sweeps lift the bound on one side; infinite when that empties it.
double Search::probe(Core &core, Branch at, bool fixed) {
  Core child;
  std::vector<int> ids;
  bool feasible = side(core, at, fixed, child, ids) && child.reduce(false);
  double bound = infinite;
  if (feasible && child.aliveVars() == 0) {
    bound = child.constant;
  } else if (feasible) {
    Dual dual(child, cut, &budget);
    if (dual.run(6, 0))
      bound = dual.bound();
  }
  // The copy counts too: on large cores it is most of a probe.
  core.work += child.work + core.tableEntries() / 4;
  return bound;
}

/// Picks the branch whose worse side is lifted most. A side found empty is forbidden at
/// once; the result then has no variable and the core is to be reduced again.
Search::Branch Search::choose(Core &core, const std::vector<Branch> &candidates,
                              double bound) {
  Branch best;
  double bestScore = -1;
  bool pruned = false;
  for (const Branch &at : candidates) {
    if (isInfinite(core.vars[at.var].cost[at.choice]))
      continue;
    if (probes == 1 || budget.exhausted())
      return at;
    double with = probe(core, at, true), without = probe(core, at, false);
    double limit = cut.value(core.noise);
    if (with > limit) {
      core.vars[at.var].cost[at.choice] = infinite;
      pruned = true;
    }
    if (without > limit) {
      for (int s = 0; s < core.vars[at.var].size(); ++s)
        if (s != at.choice)
          core.vars[at.var].cost[s] = infinite;
      pruned = true;
    }
    count(core);
    if (pruned)
      return {};
    double a = std::max(with - bound, 1e-9 * std::abs(bound));
    double b = std::max(without - bound, 1e-9 * std::abs(bound));
    if (a * b > bestScore) {
      bestScore = a * b;
      best = at;
    }
  }
  return best;
}

Search::Result Search::branch(Core &core, Branch at, double bound, int depth) {
  Result result;
  for (int first = 0; first < 2; ++first) {
    std::vector<int> ids;
    Core child;
    if (!side(core, at, first == 0, child, ids))
      continue;
    Result below = solve(child, depth + 1);
    if (below.choices) {
      std::vector<int> choices(core.vars.size());
      for (size_t i = 0; i < ids.size(); ++i)
        choices[ids[i]] = (*below.choices)[i];
      result.choices = core.expand(std::move(choices));
    }
    result.open = std::min(result.open, std::max(below.open, bound));
  }
  return result;
}

/// What the choices of a variable pay for memory.
static std::vector<double> memoryPrices(const Core &core, int var) {
  std::vector<double> result(core.vars[var].cost.size());
  for (const Member &m : core.vars[var].members)
    for (int r = m.begin; r < m.end; ++r)
      for (size_t s = 0; s < result.size(); ++s)
        result[s] += core.lambda[r] * static_cast<double>(m.bytes[s]);
  return result;
}

/// The bound's gap is due to memory: splits the variable whose choices, as far as they
/// are near the best, pay most differently for it, in the cheap and the costly ones.
static Search::Branch splitByMemory(const Core &core,
                                    const std::vector<std::vector<double>> &excess,
                                    double room) {
  Search::Branch best;
  double most = -1;
  for (size_t v = 0; v < core.vars.size(); ++v) {
    if (!core.vars[v].alive || core.vars[v].size() < 2)
      continue;
    std::vector<double> price = memoryPrices(core, static_cast<int>(v));
    double low = infinite, high = -infinite, sum = 0, weight = 0;
    for (size_t s = 0; s < price.size(); ++s) {
      if (isInfinite(core.vars[v].cost[s]))
        continue;
      double near = std::max(0.0, 1 - excess[v][s] / (room + 1e-9)) + 1e-3;
      sum += near * price[s];
      weight += near;
      low = std::min(low, price[s]);
      high = std::max(high, price[s]);
    }
    double middle = sum / weight, spread = 0;
    for (size_t s = 0; s < price.size(); ++s)
      if (!isInfinite(core.vars[v].cost[s]))
        spread += std::abs(price[s] - middle) *
                  (std::max(0.0, 1 - excess[v][s] / (room + 1e-9)) + 1e-3) / weight;
    if (spread <= most)
      continue;
    most = spread;
    size_t cheapest = static_cast<size_t>(
        std::min_element(excess[v].begin(), excess[v].end()) - excess[v].begin());
    best = {static_cast<int>(v), static_cast<int>(cheapest), {}};
    if (high > low) {
      best.part.resize(price.size());
      bool side = price[cheapest] > middle;
      for (size_t s = 0; s < price.size(); ++s)
        best.part[s] = (price[s] > middle) == side;
    }
  }
  return best;
}

std::optional<Search::Result> Search::treeRound(Core &core, TreeBound &tree, int depth,
                                                int round, Result &result) {
  // The multipliers of the first round serve all nodes below.
  bool first = treeTried && !treeStarted;
  treeStarted = true;
  tree.run(first ? 300 : 10, budget, cut, [&](const std::vector<int> &choices) {
    accept(core, choices, result.choices);
    return cut;
  });
  double bound = tree.bound();
  double room = cut.value(core.noise) - bound;
  // Without memory the first minimum is an answer, and nothing is below it.
  if (room < 0 || core.slack.empty()) {
    count(core);
    return result;
  }
  std::vector<std::vector<double>> excess = tree.marginals();
  int64_t before = 0, after = 0;
  for (size_t v = 0; v < core.vars.size(); ++v)
    if (core.vars[v].alive)
      for (int s = 0; s < core.vars[v].size(); ++s) {
        before += !isInfinite(core.vars[v].cost[s]);
        if (excess[v][s] > room)
          core.vars[v].cost[s] = infinite;
        after += !isInfinite(core.vars[v].cost[s]);
      }
  count(core);
  if (nodesLeft <= 0 || budget.exhausted()) {
    result.open = bound;
    return result;
  }
  if (round < 8 && after < before * 9 / 10)
    return std::nullopt;
  Branch at = splitByMemory(core, excess, room);
  if (at.var < 0)
    return std::nullopt;
  Result deeper = branch(core, at, bound, depth);
  if (deeper.choices)
    result.choices = std::move(deeper.choices);
  result.open = deeper.open;
  return result;
}

/// Message passing and its probes are quicker where they reach the same bound: at the
/// root, both are compared. True when exact minima close more of the gap.
bool Search::tryTree(Core &core, double bound, Result &result) {
  if (treeTried)
    return false;
  treeTried = true;
  TreeBound tree(core, treeEntries);
  if (!tree.fits())
    return false;
  tree.run(60, budget, cut, [&](const std::vector<int> &choices) {
    accept(core, choices, result.choices);
    return cut;
  });
  count(core);
  double gap = isInfinite(cut.upper) ? 0.02 * std::abs(bound) : cut.upper - bound;
  preferTree = tree.bound() > bound + 0.1 * gap;
  return preferTree;
}

Search::Result Search::solve(Core &core, int depth) {
  Result result;
  double bound = -infinite;
  ++nodes;
  --nodesLeft;
  for (int round = 0;; ++round) {
    bool feasible = core.reduce();
    count(core);
    if (!feasible)
      return result;
    if (core.aliveVars() == 0) {
      accept(core, std::vector<int>(core.vars.size()), result.choices);
      return result;
    }
    if (preferTree)
      if (TreeBound tree(core, treeEntries); tree.fits()) {
        if (auto done = treeRound(core, tree, depth, round, result))
          return *done;
        continue;
      }
    Dual dual(core, cut, &budget);
    bool below = dual.run(depth == 0 && round == 0 ? 160 : 32, 1e-6);
    if (!below) {
      count(core);
      return result;
    }
    bound = std::max(bound, dual.bound());
    if (accept(core, dual.decoded(), result.choices))
      dual.setCut(cut);
    std::vector<Branch> likely =
        candidates(core, dual, depth < 8 ? std::max<size_t>(probes, 4) : 4);
    int64_t before = core.tableEntries();
    below = dual.bake();
    count(core);
    if (!below || bound > cut.value(core.noise))
      return result;
    if (nodesLeft <= 0 || budget.exhausted()) {
      result.open = bound;
      return result;
    }
    int64_t left = 0;
    for (const CoreEdge &e : core.edges)
      if (e.alive)
        left += std::count_if(e.table.begin(), e.table.end(),
                              [](double c) { return !isInfinite(c); });
    if (round < 8 && left < before * 9 / 10)
      continue;
    if (depth == 0 && !preferTree && tryTree(core, bound, result))
      continue;
    Branch at = choose(core, likely, bound);
    if (at.var < 0)
      continue;
    Result deeper = branch(core, at, bound, depth);
    if (deeper.choices)
      result.choices = std::move(deeper.choices);
    result.open = deeper.open;
    return result;
  }
}
