//===- Dive.cpp - Quick answers and neighbourhoods ------------------------===//
#include "Construct.h"
#include "Fixer.h"
#include "Search.h"

#include <algorithm>
#include <cmath>

using namespace partita;
using namespace partita::solver;

namespace {
struct Certain {
  double gap;
  int var, choice;
};
} // namespace

/// Variables by how much worse their second choice is, most certain first.
static std::vector<Certain> byCertainty(const Core &core, const Dual &dual) {
  std::vector<Certain> result;
  for (size_t v = 0; v < core.vars.size(); ++v) {
    if (!core.vars[v].alive)
      continue;
    std::span<const double> excess = dual.excess(static_cast<int>(v));
    int chosen = dual.decoded()[v];
    double second = infinite;
    for (size_t s = 0; s < excess.size(); ++s)
      if (static_cast<int>(s) != chosen)
        second = std::min(second, excess[s]);
    result.push_back({second - excess[chosen], static_cast<int>(v), chosen});
  }
  std::sort(result.begin(), result.end(), [](const Certain &a, const Certain &b) {
    return a.gap != b.gap ? a.gap > b.gap : a.var < b.var;
  });
  return result;
}

static bool isLate(const Core &core, size_t step) {
  return step % 64 == 0 && core.limit && core.limit->exhausted(core.work);
}

/// Fixes the share of the variables that is most certain, all or nothing: where they
/// clash, the costs no longer tell what is cheap, and a smaller step is taken. False: no
/// answer is left, or no time.
static bool fixTogether(Core &core, const std::vector<Certain> &certain, double share) {
  Core backup = core;
  for (;; share /= 4) {
    size_t wanted = std::max<size_t>(1, static_cast<size_t>(share * certain.size()));
    size_t done = 0;
    bool fits = true;
    for (size_t i = 0; i < certain.size() && done < wanted && fits; ++i) {
      const Certain &c = certain[i];
      if (isInfinite(core.vars[c.var].cost[c.choice]))
        continue;
      if (isLate(core, ++done))
        return false;
      fits = core.fix(c.var, c.choice);
    }
    if (fits && core.reduce(false))
      return true;
    core = backup;
    if (wanted > 1)
      continue;
    // Proved wrong: without this choice the core loses nothing.
    for (const Certain &c : certain)
      if (!isInfinite(core.vars[c.var].cost[c.choice])) {
        core.vars[c.var].cost[c.choice] = infinite;
        return true;
      }
    return false;
  }
}

/// Fixes as many as it can of the share that is most certain, leaving out what clashes:
/// quicker and worse. False: no answer is left.
static bool fixApart(Core &core, const std::vector<Certain> &certain, double share) {
  Core backup = core;
  for (;; share /= 4) {
    size_t wanted = std::max<size_t>(1, static_cast<size_t>(share * certain.size()));
    size_t done = 0;
    Fixer fixer(core);
    for (size_t i = 0; i < certain.size() && done < wanted; ++i) {
      const Certain &c = certain[i];
      if (isInfinite(core.vars[c.var].cost[c.choice]))
        continue;
      if (isLate(core, i))
        return false;
      if (fixer.fix(c.var, c.choice))
        ++done;
    }
    if (done != 0 && core.reduce(false))
      return true;
    core = backup;
    if (wanted == 1)
      return fixTogether(core, certain, 0);
  }
}

std::optional<std::vector<int>> Search::dive(Core from, double fraction) {
  Node node;
  node.core = std::move(from);
  // Answers are given in the variables of the core as it came.
  node.core.trail.clear();
  node.core.limit = &budget;
  Rough rough;
  plunge(node, fraction, rough);
  if (rough.cost < cut.upper) {
    cut.upper = rough.cost;
    best = std::move(rough.choices);
  }
  return best;
}

/// Fixes step by step until an answer is found, or nothing or no time is left.
void Search::plunge(Node &node, double fraction, Rough &rough) {
  Core &core = node.core;
  // A rough answer in time is worth more than a good one too late: what is fixed in a
  // hurry is seldom good, and where memory is scarce often no answer at all.
  Budget leisure = budget.fraction(0.4), last = budget;
  for (bool hurry = false; !last.exhausted(); last.work = budget.work) {
    leisure.work = budget.work;
    bool isNew = !hurry && leisure.exhausted();
    hurry |= isNew;
    bool feasible = core.reduce(core.tableEntries() < 500'000);
    count(core);
    if (!feasible)
      return;
    if (core.aliveVars() == 0) {
      accept(node, std::vector<int>(core.vars.size()));
      return;
    }
    Dual dual(core, cut, &budget);
    dual.setStep(0.05);
    // Large cores are still close to the bound that they came with.
    int64_t entries = core.tableEntries() + 1;
    int64_t sweeps = hurry ? 2 : std::clamp<int64_t>(50'000'000 / entries, 3, 24);
    double share = hurry ? 0.6 : entries > 5'000'000 ? 0.3 : fraction;
    if (!dual.run(static_cast<int>(sweeps), 1e-5))
      return;
    accept(node, dual.decoded());
    dual.setCut(cut);
    std::vector<Certain> certain = byCertainty(core, dual);
    count(core);
    if (isNew)
      if (auto found = construct(core, dual, budget)) {
        // Not as a cut: what only ends below it is often not found at all.
        rough = {core.price(*found), core.expand(*found)};
        last = budget.fraction(0.3);
      }
    if (!dual.settleInCore())
      return;
    if (!(hurry ? fixApart(core, certain, share) : fixTogether(core, certain, share)))
      return;
    count(core);
  }
}

Core solver::condition(const Core &core, const std::vector<int> &choices,
                       const std::vector<int> &free, const std::vector<Wide> &rowUse) {
  Core result;
  std::vector<int> renamed(core.vars.size(), -1);
  for (size_t i = 0; i < free.size(); ++i)
    renamed[free[i]] = static_cast<int>(i);
  std::vector<Wide> own(core.slack.size() + 1);
  for (int v : free) {
    CoreVar var;
    var.cost = core.vars[v].cost;
    var.members = core.vars[v].members;
    for (const Member &m : var.members) {
      own[m.begin] += m.bytes[choices[v]];
      own[m.end] -= m.bytes[choices[v]];
    }
    for (int e : core.vars[v].edges) {
      int o = core.other(e, v);
      if (renamed[o] >= 0)
        continue;
      for (int s = 0; s < var.size(); ++s)
        var.cost[s] = std::min(infinite, var.cost[s] + core.entry(e, v, s, choices[o]));
    }
    result.vars.push_back(std::move(var));
  }
  for (int v : free)
    for (int e : core.vars[v].edges) {
      const CoreEdge &edge = core.edges[e];
      if (edge.first != v || renamed[edge.second] < 0)
        continue;
      int a = renamed[v], b = renamed[edge.second];
      int id = static_cast<int>(result.edges.size());
      result.vars[a].edges.push_back(id);
      result.vars[b].edges.push_back(id);
      result.edges.push_back({a, b, edge.table});
    }
  result.lambda = core.lambda;
  result.noise = core.noise;
  result.slack.resize(core.slack.size());
  Wide now = 0;
  for (size_t r = 0; r < core.slack.size(); ++r) {
    now += own[r];
    result.slack[r] = static_cast<int64_t>(core.slack[r] - (rowUse[r] - now));
  }
  return result;
}
