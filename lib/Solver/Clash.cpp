//===- Clash.cpp - Which variables leave no answer ------------------------===//
#include "Clash.h"

#include "Search.h"

#include <algorithm>

using namespace partita;
using namespace partita::solver;

/// Whether the variables in `kept`, with the pairs among them, have no answer. What
/// cannot be told within the budget counts as having one.
static bool isDisproved(const Core &whole, const std::vector<int> &kept, Budget &budget) {
  Core core = whole;
  std::vector<bool> stays(core.vars.size());
  for (int v : kept)
    stays[v] = true;
  for (size_t v = 0; v < core.vars.size(); ++v)
    if (!stays[v])
      core.vars[v].alive = false;
  for (CoreEdge &e : core.edges)
    e.alive = e.alive && stays[e.first] && stays[e.second];
  for (size_t v = 0; v < core.vars.size(); ++v)
    std::erase_if(core.vars[v].edges, [&](int e) { return !core.edges[e].alive; });
  core.work = static_cast<int64_t>(core.vars.size());
  core.limit = &budget;
  bool left = core.reduce();
  budget.work += core.work;
  core.work = 0;
  if (!left || isInfinite(core.constant))
    return true;
  if (core.aliveVars() == 0)
    return false;
  Search search(budget, Cut(), 200);
  Search::Result result = search.solve(core);
  return !result.choices && isInfinite(result.open) && !budget.exhausted();
}

std::vector<int> solver::findClash(const Core &core, Budget budget) {
  Core pairs = core;
  pairs.slack.clear();
  pairs.lambda.clear();
  std::vector<int> kept;
  for (size_t v = 0; v < pairs.vars.size(); ++v) {
    pairs.vars[v].members.clear();
    // Only what is forbidden counts.
    for (double &c : pairs.vars[v].cost)
      c = isInfinite(c) ? infinite : 0;
    kept.push_back(static_cast<int>(v));
  }
  if (!isDisproved(pairs, kept, budget))
    return {};
  for (size_t chunk = (kept.size() + 1) / 2;; chunk = (chunk + 1) / 2) {
    for (size_t from = 0; from < kept.size() && kept.size() > 1;) {
      if (budget.exhausted())
        return kept;
      std::vector<int> fewer(kept.begin(), kept.begin() + from);
      size_t to = std::min(kept.size(), from + chunk);
      fewer.insert(fewer.end(), kept.begin() + to, kept.end());
      if (!fewer.empty() && isDisproved(pairs, fewer, budget))
        kept = std::move(fewer);
      else
        from = to;
    }
    if (chunk == 1)
      return kept;
  }
}
