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

/// The variable whose decision changes most, per choice that it still has.
Search::Branch Search::choose(const Core &core, const Dual &dual) const {
  Branch best;
  double bestScore = -1;
  for (size_t v = 0; v < core.vars.size(); ++v) {
    const CoreVar &var = core.vars[v];
    if (!var.alive || var.size() < 2)
      continue;
    const std::vector<double> &excess = dual.excess(static_cast<int>(v));
    double second = infinite;
    int least = -1;
    for (size_t s = 0; s < excess.size(); ++s) {
      if (least < 0 || excess[s] < excess[least]) {
        second = least < 0 ? infinite : excess[least];
        least = static_cast<int>(s);
      } else {
        second = std::min(second, excess[s]);
      }
    }
    double weight =
        static_cast<double>(var.edges.size()) + (var.members.empty() ? 0.0 : 4.0);
    double score = weight / std::log2(1.0 + var.size());
    if (score > bestScore) {
      bestScore = score;
      best = {static_cast<int>(v), least};
    }
  }
  return best;
}

Search::Result Search::branch(Core &core, Branch at, double bound, int depth) {
  Result result;
  for (int side = 0; side < 2; ++side) {
    std::vector<int> ids;
    Core child = core.pack(ids);
    int var =
        static_cast<int>(std::lower_bound(ids.begin(), ids.end(), at.var) - ids.begin());
    bool alive = true;
    if (side == 0)
      alive = child.fix(var, at.choice);
    else
      child.vars[var].cost[at.choice] = infinite;
    if (!alive)
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
    Dual dual(core, cut, &budget);
    bool below = dual.run(depth == 0 && round == 0 ? 160 : 32, 1e-6);
    if (!below) {
      count(core);
      return result;
    }
    bound = std::max(bound, dual.bound());
    if (accept(core, dual.decoded(), result.choices))
      dual.setCut(cut);
    Branch at = choose(core, dual);
    int64_t before = core.tableEntries();
    below = dual.bake();
    count(core);
    if (!below || bound > cut.value())
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
    Result deeper = branch(core, at, bound, depth);
    if (deeper.choices)
      result.choices = std::move(deeper.choices);
    result.open = deeper.open;
    return result;
  }
}
