//===- TreeBound.cpp - Exact minima over a tree decomposition -------------===//
#include "TreeBound.h"

#include <algorithm>
#include <cmath>
#include <set>

using namespace partita;
using namespace partita::solver;

TreeBound::TreeBound(Core &core, int64_t mostEntries)
    : core(core), choice(core.vars.size()) {
  isSmall = order(mostEntries);
  if (!isSmall)
    return;
  std::vector<int> bagOf(core.vars.size(), -1);
  for (size_t b = 0; b < bags.size(); ++b)
    bagOf[bags[b].var] = static_cast<int>(b);
  for (size_t b = 0; b < bags.size(); ++b) {
    Bag &bag = bags[b];
    fill(bag);
    // What is left of a bag goes into the one eliminated next of its variables.
    int next = -1;
    for (size_t i = 0; i + 1 < bag.scope.size(); ++i)
      if (next < 0 || bagOf[bag.scope[i]] < next)
        next = bagOf[bag.scope[i]];
    if (next < 0)
      continue;
    Child child{static_cast<int>(b), {}};
    for (int v : bags[next].scope) {
      size_t stride = 0, product = 1;
      for (size_t i = bag.scope.size() - 1; i-- > 0;) {
        if (bag.scope[i] == v)
          stride = product;
        product *= bag.sizes[i];
      }
      child.strides.push_back(stride);
    }
    bags[next].children.push_back(std::move(child));
  }
  bestLambda = core.lambda;
  countPriced();
}

void TreeBound::countPriced() {
  priced = 0;
  for (const Bag &bag : bags)
    priced += static_cast<int64_t>(core.vars[bag.var].members.size() *
                                   core.vars[bag.var].cost.size());
}

/// Eliminates the variable with the smallest table first. False when a table is too
/// large.
bool TreeBound::order(int64_t mostEntries) {
  size_t count = core.vars.size();
  std::vector<std::vector<int>> joined(count);
  std::set<std::pair<double, int>> queue;
  auto weight = [&](int v) {
    double w = core.vars[v].size();
    for (int o : joined[v])
      w *= core.vars[o].size();
    return w;
  };
  for (size_t v = 0; v < count; ++v) {
    if (!core.vars[v].alive)
      continue;
    for (int e : core.vars[v].edges)
      joined[v].push_back(core.other(e, static_cast<int>(v)));
    std::sort(joined[v].begin(), joined[v].end());
    queue.emplace(weight(static_cast<int>(v)), static_cast<int>(v));
  }
  while (!queue.empty()) {
    auto [size, var] = *queue.begin();
    queue.erase(queue.begin());
    if (size + static_cast<double>(entries) > static_cast<double>(mostEntries))
      return false;
    entries += static_cast<int64_t>(size);
    Bag &bag = bags.emplace_back();
    bag.var = var;
    bag.scope = joined[var];
    bag.scope.push_back(var);
    for (int v : bag.scope)
      bag.sizes.push_back(core.vars[v].cost.size());
    for (int o : joined[var]) {
      queue.erase({weight(o), o});
      std::vector<int> all;
      std::set_union(joined[o].begin(), joined[o].end(), joined[var].begin(),
                     joined[var].end(), std::back_inserter(all));
      std::erase_if(all, [&](int v) { return v == o || v == var; });
      joined[o] = std::move(all);
      queue.emplace(weight(o), o);
    }
  }
  return true;
}

/// Calls body(row, offset) for every combination of the scope without the bag's own
/// variable; the offset goes by the strides.
template <typename Fn>
void TreeBound::walk(const Bag &bag, const std::vector<size_t> &strides, Fn body) {
  size_t outer = bag.scope.size() - 1;
  std::vector<size_t> at(outer);
  size_t offset = 0;
  for (size_t row = 0;; ++row) {
    body(row, offset);
    size_t d = outer;
    while (d-- > 0) {
      offset += strides[d];
      if (++at[d] < bag.sizes[d])
        break;
      offset -= strides[d] * bag.sizes[d];
      at[d] = 0;
    }
    if (d == static_cast<size_t>(-1))
      return;
  }
}

/// The edges between the bag's variable and the rest of its scope, summed up.
void TreeBound::fill(Bag &bag) {
  size_t k = bag.sizes.back(), total = 1;
  for (size_t size : bag.sizes)
    total *= size;
  bag.edges.assign(total, 0);
  bag.least.resize(total / k);
  bag.where.resize(total / k);
  for (size_t i = 0; i + 1 < bag.scope.size(); ++i) {
    int edge = core.findEdge(bag.var, bag.scope[i]);
    if (edge < 0)
      continue;
    std::vector<double> rows(bag.sizes[i] * k);
    for (size_t t = 0; t < bag.sizes[i]; ++t)
      for (size_t s = 0; s < k; ++s)
        rows[t * k + s] =
            core.entry(edge, bag.var, static_cast<int>(s), static_cast<int>(t));
    std::vector<size_t> strides(bag.scope.size());
    strides[i] = k;
    walk(bag, strides, [&](size_t row, size_t offset) {
      for (size_t s = 0; s < k; ++s)
        bag.edges[row * k + s] += rows[offset + s];
    });
  }
}

void TreeBound::eliminate(Bag &bag, const std::vector<double> &prices) {
  const CoreVar &v = core.vars[bag.var];
  size_t k = v.cost.size();
  std::vector<double> own = v.cost;
  for (const Member &m : v.members) {
    double price = prices[m.end] - prices[m.begin];
    for (size_t s = 0; s < k; ++s)
      own[s] += price * static_cast<double>(m.bytes[s]);
  }
  bag.sum = bag.edges;
  for (size_t row = 0; row < bag.least.size(); ++row)
    for (size_t s = 0; s < k; ++s)
      bag.sum[row * k + s] += own[s];
  for (const Child &child : bag.children) {
    const double *least = bags[child.bag].least.data();
    size_t stride = child.strides.back();
    walk(bag, child.strides, [&](size_t row, size_t offset) {
      for (size_t s = 0; s < k; ++s)
        bag.sum[row * k + s] += least[offset + s * stride];
    });
  }
  for (size_t row = 0; row < bag.least.size(); ++row) {
    const double *sum = bag.sum.data() + row * k;
    size_t at = static_cast<size_t>(std::min_element(sum, sum + k) - sum);
    bag.least[row] = sum[at];
    bag.where[row] = static_cast<uint16_t>(at);
  }
}

/// The least cost with memory at the core's multipliers, and the choices that have it.
double TreeBound::evaluate() {
  std::vector<double> prices(core.lambda.size() + 1);
  double total = core.constant;
  for (size_t r = 0; r < core.lambda.size(); ++r) {
    prices[r + 1] = prices[r] + core.lambda[r];
    total -= core.lambda[r] * static_cast<double>(core.slack[r]);
  }
  for (Bag &bag : bags) {
    eliminate(bag, prices);
    if (bag.scope.size() == 1)
      total += bag.least[0];
  }
  core.work += entries * 2 + priced;
  for (size_t b = bags.size(); b-- > 0;) {
    const Bag &bag = bags[b];
    size_t row = 0;
    for (size_t i = 0; i + 1 < bag.scope.size(); ++i)
      row = row * bag.sizes[i] + static_cast<size_t>(choice[bag.scope[i]]);
    choice[bag.var] = bag.where[row];
  }
  last = total;
  core.noise = std::max(core.noise, std::abs(total));
  if (total > best) {
    // A gain that is none in view of what is missing counts as a stall.
    stalled = total > best + 1e-6 * std::abs(best) ? 0 : stalled + 1;
    best = total;
    bestLambda = core.lambda;
  } else {
    ++stalled;
  }
  return total;
}

/// A step along the rows' excess, deflected by the steps before, as long as the distance
/// to the best answer allows. False when the steps have become too small.
bool TreeBound::deflectedStep(Cut cut) {
  if (stalled >= 5) {
    scale *= 0.5;
    stalled = 0;
    core.lambda = bestLambda;
    direction.clear();
    if (scale < 0.02)
      return false;
  }
  // All rows, unlike Dual: where the minima are exact, every row's excess means
  // something.
  std::vector<Wide> use = core.rowUse(choice);
  std::vector<double> over(use.size());
  for (size_t r = 0; r < use.size(); ++r)
    over[r] = static_cast<double>(use[r] - core.slack[r]);
  double norm = deflect(direction, over, core.lambda, 0.4);
  if (norm == 0)
    return false;
  double goal = isInfinite(cut.upper) ? best + std::abs(best) * 0.02 + 1 : cut.upper;
  double gap = std::max(goal - best, 1e-9 * std::abs(goal));
  double length = scale * std::clamp(goal - last, gap, 2 * gap) / norm;
  for (size_t r = 0; r < over.size(); ++r)
    core.lambda[r] = std::max(0.0, core.lambda[r] + length * direction[r]);
  return true;
}

/// A step from the best multipliers along the mean excess of the rows over the last
/// minima (the volume algorithm: Barahona and Anbil, 2000). Where many answers have the
/// least cost, the excess of one alone says little about the way up. False when the steps
/// have become too small.
bool TreeBound::meanStep(Cut cut) {
  std::vector<Wide> use = core.rowUse(choice);
  std::vector<double> over(use.size());
  double along = 0, norm = 0;
  for (size_t r = 0; r < use.size(); ++r)
    over[r] = static_cast<double>(use[r] - core.slack[r]);
  if (direction.size() != over.size())
    direction = over;
  double weight = std::max(0.1, 1.0 / ++steps);
  for (size_t r = 0; r < over.size(); ++r) {
    along += direction[r] * over[r];
    direction[r] += weight * (over[r] - direction[r]);
  }
  if (stalled == 0 && along > 0)
    scale = std::min(1.5, scale * 1.2);
  if (stalled >= 8) {
    scale *= 0.6;
    stalled = 1;
    if (scale < 0.005)
      return false;
  }
  for (size_t r = 0; r < over.size(); ++r)
    if (bestLambda[r] > 0 || direction[r] > 0)
      norm += direction[r] * direction[r];
  if (norm == 0)
    return false;
  double goal = isInfinite(cut.upper) ? best + std::abs(best) * 0.02 + 1 : cut.upper;
  double length = scale * std::max(goal - best, 1e-9 * std::abs(goal)) / norm;
  for (size_t r = 0; r < over.size(); ++r)
    core.lambda[r] = std::max(0.0, bestLambda[r] + length * direction[r]);
  return true;
}

std::vector<std::vector<double>> TreeBound::marginals() {
  core.lambda = bestLambda;
  evaluate();
  std::vector<std::vector<double>> result(core.vars.size());
  // What the rest costs for each row of a bag, from the last eliminated to the first.
  std::vector<std::vector<double>> rest(bags.size());
  for (size_t b = bags.size(); b-- > 0;) {
    Bag &bag = bags[b];
    size_t k = bag.sizes.back();
    std::vector<double> &mine = result[bag.var];
    mine.assign(k, infinite);
    for (size_t row = 0; row < bag.least.size(); ++row)
      for (size_t s = 0; s < k; ++s) {
        double &sum = bag.sum[row * k + s];
        if (!rest[b].empty())
          sum = std::min(2 * infinite, sum + rest[b][row]);
        mine[s] = std::min(mine[s], sum);
      }
    double least = *std::min_element(mine.begin(), mine.end());
    for (double &c : mine)
      c -= isInfinite(c) ? 0 : least;
    for (const Child &child : bag.children) {
      const std::vector<double> &given = bags[child.bag].least;
      std::vector<double> &below = rest[child.bag];
      below.assign(given.size(), infinite);
      size_t stride = child.strides.back();
      walk(bag, child.strides, [&](size_t row, size_t offset) {
        for (size_t s = 0; s < k; ++s)
          below[offset + s * stride] =
              std::min(below[offset + s * stride], bag.sum[row * k + s]);
      });
      for (size_t i = 0; i < below.size(); ++i)
        below[i] =
            isInfinite(below[i]) || isInfinite(given[i]) ? infinite : below[i] - given[i];
    }
  }
  core.work += entries * 2;
  return result;
}
