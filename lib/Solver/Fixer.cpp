//===- Fixer.cpp - Fixing variables one by one ----------------------------===//
#include "Fixer.h"

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
      if ((room[r] -= more) < 0) {
        overflown.push_back(r);
        fits = false;
      }
  }
  return fits;
}

bool Fixer::fix(int var, int choice) {
  std::vector<Core::Undo> forbidden;
  core.undo = &forbidden;
  bool fits = core.fix(var, choice);
  core.undo = nullptr;
  charges.clear();
  overflown.clear();
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

int64_t Fixer::roomIn(int begin, int end) const {
  return *std::min_element(room.begin() + begin, room.begin() + end);
}
