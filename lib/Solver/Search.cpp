//===- Search.cpp - Branch and bound over cores ---------------------------===//
//
// Every node of the tree is a core of its own, reduced and bounded like the first one.
// The copy costs less than it saves: the bound forbids choices and pairs, that makes
// edges functional and variables few, and most nodes end before they branch.
//
//===----------------------------------------------------------------------===//
#include "Search.h"

#include "Cuts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace partita;
using namespace partita::solver;

/// Sums of integers up to 2^53 are exact; the moves of a reparametrization are not.
static double exactCost(double cost) {
  return std::abs(cost) < 4e15 ? std::round(cost) : cost;
}

bool Search::accept(const Node &node, const std::vector<int> &choices) {
  double cost = exactCost(node.core.price(choices));
  if (isInfinite(cost) || cost >= cut.upper || !node.core.fits(choices))
    return false;
  cut.upper = cost;
  best = node.core.expand(choices);
  for (const Origin *at = node.origin.get(); at; at = at->up.get()) {
    std::vector<int> above(at->parentVars);
    for (size_t i = 0; i < at->ids.size(); ++i)
      above[at->ids[i]] = (*best)[i];
    best = at->parent.expand(std::move(above));
  }
  return true;
}

/// What the choices of a variable pay for memory at these multipliers.
static std::vector<double> memoryPrices(const Core &core, int var,
                                        const std::vector<double> &lambda) {
  std::vector<double> result(core.vars[var].cost.size());
  for (const Member &m : core.vars[var].members) {
    double price = std::accumulate(lambda.begin() + m.begin, lambda.begin() + m.end, 0.0);
    for (size_t s = 0; s < result.size(); ++s)
      result[s] += price * static_cast<double>(m.bytes[s]);
  }
  return result;
}

/// The choices that pay more than this, as a side of a branch.
static std::vector<bool> dearerThan(const std::vector<double> &price, double middle) {
  std::vector<bool> result;
  for (double p : price)
    result.push_back(p > middle);
  return result;
}

/// How differently the choices of a variable pay for memory, those near the best above
/// all.
struct MemorySpread {
  std::vector<double> price;
  /// The mean price and the mean distance from it.
  double middle = 0, spread = 0;
  bool isFlat = true;
};

static MemorySpread memorySpread(const Core &core, int var,
                                 std::span<const double> excess,
                                 const std::vector<double> &lambda, double room) {
  MemorySpread result;
  result.price = memoryPrices(core, var, lambda);
  const std::vector<double> &price = result.price, &cost = core.vars[var].cost;
  auto nearness = [&](size_t s) {
    return std::max(0.0, 1 - excess[s] / (room + 1e-9)) + 1e-3;
  };
  double low = infinite, high = -infinite, sum = 0, weight = 0;
  for (size_t s = 0; s < price.size(); ++s) {
    if (isInfinite(cost[s]))
      continue;
    sum += nearness(s) * price[s];
    weight += nearness(s);
    low = std::min(low, price[s]);
    high = std::max(high, price[s]);
  }
  result.middle = sum / weight;
  result.isFlat = high <= low;
  for (size_t s = 0; s < price.size(); ++s)
    if (!isInfinite(cost[s]))
      result.spread += std::abs(price[s] - result.middle) * nearness(s) / weight;
  return result;
}

/// What stands between the bound and an answer, by variable: what the decoded choices pay
/// above it for themselves and for their pairs.
static std::vector<double> conflicts(const Core &core, Dual &dual, double room) {
  std::vector<double> result(core.vars.size());
  const std::vector<int> &choice = dual.decoded();
  for (size_t v = 0; v < core.vars.size(); ++v)
    if (core.vars[v].alive)
      result[v] = std::min(room, dual.excess(static_cast<int>(v))[choice[v]]);
  for (size_t e = 0; e < core.edges.size(); ++e) {
    const CoreEdge &edge = core.edges[e];
    if (!edge.alive)
      continue;
    double pays =
        std::min(room, dual.pairExcess(static_cast<int>(e), edge.first,
                                       choice[edge.first], choice[edge.second]));
    result[edge.first] += pays;
    result[edge.second] += pays;
  }
  return result;
}

/// Variables worth branching on, best first. By turns: those that the minima on both
/// sides of the memory's limits have otherwise, by what they pay for it; those whose
/// decoded choice is in conflict with others; and those joined to much.
std::vector<Search::Branch> Search::candidates(const Core &core, Dual &dual,
                                               size_t count) const {
  struct Scored {
    double score;
    Branch branch;
  };
  const double room = isInfinite(cut.upper) ? 1e-3 * std::abs(dual.bound()) + 1
                                            : cut.upper - dual.bound();
  // Choices that cost no more than this share of the gap are as good as equal.
  static constexpr double nearTie = 0.02;
  std::vector<double> pays = conflicts(core, dual, room);
  const std::vector<int> &over = dual.decodedOver(), &under = dual.decodedUnder();
  const bool hasBoth = !over.empty() && !under.empty();
  std::vector<Scored> lists[3];
  for (size_t i = 0; i < core.vars.size(); ++i) {
    const CoreVar &var = core.vars[i];
    if (!var.alive || var.size() < 2)
      continue;
    int v = static_cast<int>(i);
    std::span<const double> excess = dual.excess(v);
    int least =
        static_cast<int>(std::min_element(excess.begin(), excess.end()) - excess.begin());
    if (hasBoth && over[v] != under[v] && !var.members.empty()) {
      std::vector<double> price = memoryPrices(core, v, dual.multipliers());
      double differ = price[over[v]] - price[under[v]];
      if (differ > 0)
        lists[0].push_back(
            {differ,
             {v, least, dearerThan(price, (price[over[v]] + price[under[v]]) / 2)}});
    } else if (!hasBoth && !var.members.empty()) {
      MemorySpread at = memorySpread(core, v, excess, dual.multipliers(), nearTie * room);
      if (!at.isFlat)
        lists[0].push_back({at.spread, {v, least, dearerThan(at.price, at.middle)}});
    }
    if (pays[i] > 0)
      lists[1].push_back({pays[i], {v, least}});
    double weight =
        static_cast<double>(var.edges.size()) + (var.members.empty() ? 0.0 : 4.0);
    lists[2].push_back({weight / std::log2(1.0 + var.size()), {v, least}});
  }
  for (std::vector<Scored> &list : lists)
    std::sort(list.begin(), list.end(), [](const Scored &a, const Scored &b) {
      return a.score != b.score ? a.score > b.score : a.branch.var < b.branch.var;
    });
  std::vector<Branch> result;
  std::vector<bool> isTaken(core.vars.size());
  for (size_t i = 0; i < lists[2].size() && result.size() < count; ++i)
    for (std::vector<Scored> &list : lists)
      if (i < list.size() && result.size() < count && !isTaken[list[i].branch.var]) {
        isTaken[list[i].branch.var] = true;
        result.push_back(std::move(list[i].branch));
      }
  return result;
}

/// Whether a choice is on the first side of a branch.
static bool isOn(const Search::Branch &at, int choice) {
  return at.part.empty() ? choice == at.choice : static_cast<bool>(at.part[choice]);
}

/// Whether both sides of a branch have choices that are not forbidden yet.
static bool divides(const Core &core, const Search::Branch &at) {
  bool any[2] = {false, false};
  for (int s = 0; s < core.vars[at.var].size(); ++s)
    any[isOn(at, s)] |= !isInfinite(core.vars[at.var].cost[s]);
  return any[0] && any[1];
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
    if (!divides(core, at))
      continue;
    if (probes == 1 || budget.exhausted())
      return at;
    double with = probe(core, at, true), without = probe(core, at, false);
    double limit = cut.value(core.noise);
    for (bool fixed : {true, false})
      if ((fixed ? with : without) > limit) {
        for (int s = 0; s < core.vars[at.var].size(); ++s)
          if (isOn(at, s) == fixed)
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

/// Both sides of a branch: the first is looked at next, the other waits.
void Search::branch(Node node, const Branch &at) {
  Node sides[2];
  bool left[2];
  auto origin = std::make_shared<Origin>();
  for (int i = 0; i < 2; ++i) {
    left[i] = side(node.core, at, i == 0, sides[i].core, origin->ids);
    sides[i].bound = node.bound;
    sides[i].depth = node.depth + 1;
    sides[i].origin = origin;
  }
  origin->up = std::move(node.origin);
  origin->parentVars = node.core.vars.size();
  origin->parent.trail = std::move(node.core.trail);
  if (left[1])
    put(std::move(sides[1]));
  if (left[0])
    next = std::move(sides[0]);
}

void Search::put(Node node) {
  node.serial = ++serials;
  node.entries = node.core.tableEntries();
  openEntries += node.entries;
  open.insert(std::move(node));
}

/// Nodes that wait have tables of their own: above this many entries in all, the one made
/// last is taken, which keeps them from becoming more.
static constexpr int64_t mostOpenEntries = 60'000'000;

Search::Node Search::take() {
  if (next) {
    Node node = std::move(*next);
    next.reset();
    return node;
  }
  auto at = open.begin();
  if (openEntries > mostOpenEntries)
    at = std::max_element(open.begin(), open.end(), [](const Node &a, const Node &b) {
      return a.serial < b.serial;
    });
  Node node = std::move(open.extract(at).value());
  openEntries -= node.entries;
  return node;
}

void Search::begin(Core core) {
  open.clear();
  next.emplace();
  next->core = std::move(core);
}

Search::Result Search::resume() {
  while (next || !open.empty()) {
    if (!next && open.begin()->bound > cut.value(0)) {
      open.clear();
      openEntries = 0;
      break;
    }
    Node node = take();
    ++nodes;
    --nodesLeft;
    Fate fate = look(node);
    if (fate.kind == Fate::Branched) {
      branch(std::move(node), fate.at);
    } else if (fate.kind == Fate::Stopped) {
      put(std::move(node));
      break;
    }
  }
  double least = open.empty() ? infinite : open.begin()->bound;
  return {best, next ? std::min(least, next->bound) : least};
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
    MemorySpread at =
        memorySpread(core, static_cast<int>(v), excess[v], core.lambda, room);
    if (at.spread <= most)
      continue;
    most = at.spread;
    size_t cheapest = static_cast<size_t>(
        std::min_element(excess[v].begin(), excess[v].end()) - excess[v].begin());
    best = {static_cast<int>(v), static_cast<int>(cheapest), {}};
    if (!at.isFlat) {
      best.part.resize(at.price.size());
      bool side = at.price[cheapest] > at.middle;
      for (size_t s = 0; s < at.price.size(); ++s)
        best.part[s] = (at.price[s] > at.middle) == side;
    }
  }
  return best;
}

/// A round of a node whose width is small.
Search::Fate Search::treeRound(Node &node, TreeBound &tree, int round) {
  Core &core = node.core;
  // The multipliers of the first round serve all nodes below.
  bool first = treeTried && !treeStarted;
  treeStarted = true;
  if (rounding)
    tree.takeMeans(treeStep);
  tree.run(first ? 300 : 10, budget, cut, [&](const std::vector<int> &choices) {
    accept(node, choices);
    return cut;
  });
  if (first)
    treeStep = std::max(0.05, tree.stepScale());
  node.bound = std::max(node.bound, tree.bound());
  double room = cut.value(core.noise) - tree.bound();
  // Without memory the first minimum is an answer, and nothing is below it.
  if (room < 0 || core.slack.empty()) {
    count(core);
    return {};
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
  if (nodesLeft <= 0 || budget.exhausted())
    return {Fate::Stopped};
  if (round < 8 && after < before * 9 / 10)
    return {Fate::Again};
  Branch at = splitByMemory(core, excess, room);
  return at.var < 0 ? Fate{Fate::Again} : Fate{Fate::Branched, at};
}

/// Message passing and its probes are quicker where they reach the same bound: at the
/// root, both are compared. True when exact minima close more of the gap.
bool Search::tryTree(Node &node) {
  if (treeTried)
    return false;
  treeTried = true;
  TreeBound tree(node.core, treeEntries);
  if (!tree.fits())
    return false;
  double bound = node.bound;
  tree.run(60, budget, cut, [&](const std::vector<int> &choices) {
    accept(node, choices);
    return cut;
  });
  count(node.core);
  double gap = isInfinite(cut.upper) ? 0.02 * std::abs(bound) : cut.upper - bound;
  if (rounding)
    addRows(node, tree);
  preferTree = tree.bound() > bound + 0.1 * gap;
  node.bound = std::max(bound, tree.bound());
  return preferTree;
}

/// Where memory is all that is between the bound and the answers, rows that integrality
/// implies close some of it; those that end up priced stay for all nodes.
void Search::addRows(Node &node, TreeBound &tree) {
  Core &core = node.core;
  size_t rows = core.slack.size();
  double gain = infinite;
  tree.takeMeans();
  // No longer than half of what all that came before took.
  Budget part = budget.part(budget.work / 2);
  for (int round = 0; round < 40 && !part.exhausted(core.work); ++round) {
    double before = tree.bound();
    Mixture mixture(core);
    double weight = 1;
    tree.run(round == 0 ? 150 : 60, part, cut, [&](const std::vector<int> &choices) {
      accept(node, choices);
      mixture.add(choices, std::max(weight, 0.05));
      weight /= 1 + weight;
      return cut;
    });
    double gap = cut.value(core.noise) - tree.bound();
    gain = std::max(tree.bound() - before, gain / 2);
    if (gap < 0 || (round > 6 && gain < 0.003 * gap))
      break;
    tree.restoreBest();
    std::vector<bool> dropped(core.slack.size());
    for (size_t r = rows; r < dropped.size(); ++r)
      dropped[r] = core.lambda[r] <= 0;
    core.dropRows(dropped);
    if (addCuts(core, mixture, static_cast<int>(rows), 20) == 0)
      break;
    tree.restart();
  }
  tree.restoreBest();
  count(core);
}

Search::Fate Search::look(Node &node) {
  for (int round = 0;; ++round)
    if (Fate fate = lookOnce(node, round); fate.kind != Fate::Again)
      return fate;
}

Search::Fate Search::lookOnce(Node &node, int round) {
  Core &core = node.core;
  bool feasible = core.reduce();
  count(core);
  if (!feasible)
    return {};
  if (core.aliveVars() == 0) {
    accept(node, std::vector<int>(core.vars.size()));
    return {};
  }
  if (preferTree)
    if (TreeBound tree(core, treeEntries); tree.fits())
      return treeRound(node, tree, round);
  bool isRoot = node.depth == 0;
  Dual dual(core, cut, &budget);
  bool below = dual.run(isRoot && round == 0 ? 160 : 32, 1e-6);
  if (!below) {
    count(core);
    return {};
  }
  node.bound = std::max(node.bound, dual.bound());
  if (accept(node, dual.decoded()))
    dual.setCut(cut);
  std::vector<Branch> likely =
      candidates(core, dual, node.depth < 8 ? std::max<size_t>(probes, 4) : 4);
  int64_t before = core.tableEntries();
  below = dual.bake();
  count(core);
  if (!below || node.bound > cut.value(core.noise))
    return {};
  if (nodesLeft <= 0 || budget.exhausted())
    return {Fate::Stopped};
  int64_t left = 0;
  for (const CoreEdge &e : core.edges)
    if (e.alive)
      left += std::count_if(e.table.begin(), e.table.end(),
                            [](double c) { return !isInfinite(c); });
  if (round < 8 && left < before * 9 / 10)
    return {Fate::Again};
  if (isRoot && !preferTree && tryTree(node))
    return {Fate::Again};
  Branch at = choose(core, likely, node.bound);
  return at.var < 0 ? Fate{Fate::Again} : Fate{Fate::Branched, at};
}
