//===- Kernel.cpp - The problem with the most promising choices -----------===//
#include "Kernel.h"

#include "Dual.h"

#include <algorithm>
#include <numeric>

using namespace partita;
using namespace partita::solver;

/// Marks the choices of the `most` least costs.
static void keepLeast(const std::vector<double> &cost, size_t most,
                      std::vector<bool> &kept) {
  std::vector<int> order(cost.size());
  std::iota(order.begin(), order.end(), 0);
  size_t count = std::min(most, order.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<ptrdiff_t>(count), order.end(),
      [&](int a, int b) { return cost[a] != cost[b] ? cost[a] < cost[b] : a < b; });
  for (size_t i = 0; i < count; ++i)
    kept[order[i]] = true;
}

Kernel::Kernel(Core &core, const std::vector<int> &answer, size_t most)
    : kernel(core.pack(ids)), variables(core.vars.size()) {
  Dual dual(core, Cut());
  for (size_t i = 0; i < ids.size(); ++i) {
    const int v = ids[i];
    start.push_back(answer[v]);
    std::vector<double> &cost = kernel.vars[i].cost;
    if (cost.size() <= most)
      continue;
    std::vector<bool> kept(cost.size());
    kept[answer[v]] = true;
    keepLeast(dual.marginal(v), most, kept);
    std::span<const double> excess = dual.excess(v);
    std::vector<double> beside(excess.begin(), excess.end());
    for (int e : core.vars[v].edges)
      for (size_t s = 0; s < beside.size(); ++s)
        beside[s] += dual.pairExcess(e, v, static_cast<int>(s), answer[core.other(e, v)]);
    keepLeast(beside, most, kept);
    for (size_t s = 0; s < cost.size(); ++s)
      if (!kept[s])
        cost[s] = infinite;
  }
  kernel.trail.clear();
  kernel.reduce();
}

std::vector<int> Kernel::expand(std::vector<int> choices) const {
  std::vector<int> packed = kernel.expand(std::move(choices)), result(variables);
  for (size_t i = 0; i < ids.size(); ++i)
    result[ids[i]] = packed[i];
  return result;
}
