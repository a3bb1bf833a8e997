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

int64_t Fixer::roomIn(int begin, int end) const {
  return *std::min_element(room.begin() + begin, room.begin() + end);
}

namespace {
/// One attempt at an answer.
class Construction {
public:
  Construction(const Core &original, Dual &dual, double thrift)
      : core(original), dual(dual), fixer(core), choices(core.vars.size(), -1),
        thrift(thrift) {}
  bool run(const Budget &budget);
  std::vector<int> answer() const { return choices; }

private:
  bool fixCheapest(int var);
  void addScarcity(int var, std::vector<double> &cost) const;

  Core core;
  Dual &dual;
  Fixer fixer;
  std::vector<int> choices;
  /// What all the room that is left in a row is worth.
  double thrift;
};
} // namespace

void Construction::addScarcity(int var, std::vector<double> &cost) const {
  const CoreVar &v = core.vars[var];
  for (size_t i = 0; i < v.members.size(); ++i) {
    const Member &m = v.members[i];
    double room = static_cast<double>(fixer.roomIn(m.begin, m.end)) + 1;
    for (int s = 0; s < v.size(); ++s)
      cost[s] += thrift * static_cast<double>(m.bytes[s] - fixer.charged(var, i)) / room;
  }
}

/// Takes for one variable the cheapest choice that leaves something for the others.
bool Construction::fixCheapest(int var) {
  const CoreVar &v = core.vars[var];
  std::span<const double> excess = dual.excess(var);
  std::vector<double> cost(excess.begin(), excess.end());
  std::vector<int> order;
  for (int s = 0; s < v.size(); ++s) {
    if (isInfinite(v.cost[s]))
      continue;
    order.push_back(s);
    for (int e : v.edges) {
      int o = core.other(e, var);
      if (choices[o] >= 0)
        cost[s] += dual.pairExcess(e, var, s, choices[o]);
    }
  }
  if (thrift > 0)
    addScarcity(var, cost);
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return cost[a] != cost[b] ? cost[a] < cost[b] : a < b; });
  for (int s : order)
    if (fixer.fix(var, s)) {
      choices[var] = s;
      return true;
    }
  return false;
}

bool Construction::run(const Budget &budget) {
  for (size_t v = 0; v < core.vars.size(); ++v) {
    if (v % 64 == 0 && budget.exhausted(core.work))
      return false;
    if (core.vars[v].alive && !fixCheapest(static_cast<int>(v)))
      return false;
  }
  for (int &c : choices)
    c = std::max(c, 0);
  return true;
}

/// How far apart the costs of a variable's choices are, on average.
static double meanSpread(const Core &core, const Dual &dual) {
  double sum = 0, count = 1;
  for (size_t v = 0; v < core.vars.size(); ++v) {
    double most = 0;
    for (double c : dual.excess(static_cast<int>(v)))
      if (!isInfinite(c))
        most = std::max(most, c);
    sum += most;
    count += core.vars[v].alive;
  }
  return sum / count + 1;
}

std::optional<std::vector<int>> solver::construct(const Core &core, Dual &dual,
                                                  const Budget &budget) {
  double spread = meanSpread(core, dual);
  for (double thrift : {0.0, 1.0, 10.0, 100.0, 10000.0}) {
    Construction attempt(core, dual, thrift * spread);
    if (attempt.run(budget))
      return attempt.answer();
    if (budget.exhausted(core.work))
      break;
  }
  return std::nullopt;
}
