//===- Fixer.cpp - Fixing variables one by one ----------------------------===//
#include "Fixer.h"

#include "Dual.h"

#include <algorithm>

using namespace partita;
using namespace partita::solver;

/// Takes what var has come to need at least off the rows. False when one overflows.
bool Fixer::charge(int var) {
  const CoreVar &v = core.vars[var];
  bool fits = true;
  for (size_t i = 0; i < v.members.size(); ++i) {
    const Member &m = v.members[i];
    int64_t now = INT64_MAX;
    for (size_t s = 0; s < m.bytes.size(); ++s)
      if (!isInfinite(v.cost[s]))
        now = std::min(now, m.bytes[s]);
    int64_t more = now - least[var][i];
    if (more == 0)
      continue;
    charges.push_back({var, static_cast<int>(i), more});
    least[var][i] = now;
    for (int r = m.begin; r < m.end; ++r)
      fits &= (room[r] -= more) >= 0;
  }
  return fits;
}

bool Fixer::fix(int var, int choice) {
  std::vector<Core::Undo> forbidden;
  core.undo = &forbidden;
  bool fits = core.fix(var, choice);
  core.undo = nullptr;
  charges.clear();
  int previous = -1;
  for (size_t i = 0; i < forbidden.size() && fits; ++i)
    if (forbidden[i].var != previous)
      fits = charge(previous = forbidden[i].var);
  if (fits)
    return true;
  for (const Charge &c : charges) {
    const Member &m = core.vars[c.var].members[c.member];
    least[c.var][c.member] -= c.bytes;
    for (int r = m.begin; r < m.end; ++r)
      room[r] += c.bytes;
  }
  for (const Core::Undo &u : forbidden)
    core.vars[u.var].cost[u.choice] = u.cost;
  return false;
}

/// Takes for one variable the cheapest choice that leaves something for the others.
static bool fixCheapest(Core &core, Fixer &fixer, Dual &dual, int var,
                        const std::vector<int> &choices) {
  const CoreVar &v = core.vars[var];
  std::vector<double> cost(v.cost.size());
  std::vector<int> order;
  for (int s = 0; s < v.size(); ++s) {
    if (isInfinite(v.cost[s]))
      continue;
    order.push_back(s);
    cost[s] = dual.excess(var)[s];
    for (int e : v.edges) {
      int o = core.other(e, var);
      if (choices[o] >= 0)
        cost[s] += dual.pairExcess(e, var, s, choices[o]);
    }
  }
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return cost[a] != cost[b] ? cost[a] < cost[b] : a < b; });
  for (int s : order)
    if (fixer.fix(var, s))
      return true;
  return false;
}

std::optional<std::vector<int>> solver::construct(Core core, Dual &dual) {
  Fixer fixer(core);
  std::vector<int> choices(core.vars.size(), -1);
  for (size_t v = 0; v < core.vars.size(); ++v) {
    if (!core.vars[v].alive)
      continue;
    if (!fixCheapest(core, fixer, dual, static_cast<int>(v), choices))
      return std::nullopt;
    const std::vector<double> &cost = core.vars[v].cost;
    choices[v] =
        static_cast<int>(std::min_element(cost.begin(), cost.end()) - cost.begin());
  }
  for (size_t v = 0; v < core.vars.size(); ++v)
    choices[v] = std::max(choices[v], 0);
  return choices;
}
