//===- Retract.cpp - Choices that all variables give up together ----------===//
//
// 1. What is kept grows from nothing. Of every variable it is known which choice could
//    stand for which as far as the kept choices of its neighbours can tell. A choice that
//    no other could stand for is kept; of several that could stand for each other one is,
//    which tells apart what its neighbours have to go with it.
// 2. What is not kept has kept choices that could stand for it, its heirs. Those are
//    dropped that a neighbour has no heirs for; where none is left the choice is kept
//    after all, and the first step goes on.
//
//===----------------------------------------------------------------------===//
#include "Retract.h"

#include "Numbered.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

using namespace partita;
using namespace partita::solver;

namespace {
/// An edge as all variables of a kind see it.
struct KindArc {
  int other, tableNumber;
  bool isFirst;
  const double *table = nullptr;
  auto key() const { return std::tuple(other, tableNumber, isFirst); }
  bool operator<(const KindArc &that) const { return key() < that.key(); }
};

/// Variables that keep the same choices.
struct Kind {
  int var; ///< one of them
  size_t size;
  std::set<KindArc> arcs{};
  std::vector<char> isKept{};
  /// isBetter[s * size + t]: t could stand for s.
  std::vector<char> isBetter{};
  std::vector<std::vector<int>> heirs{};
};

class Retraction {
public:
  Retraction(Core &core, Budget &budget) : core(core), budget(budget) {}
  bool run();

private:
  void makeKinds();
  void compareAlone(Kind &kind);
  void keep(int kind, size_t choice);
  bool grow();
  bool keepNeeded(int kind);
  bool keepOneOfEqual();
  bool findHeirs();
  bool dropHeirs(std::set<int> &changed);
  bool dropAlong(Kind &kind, const KindArc &arc);
  bool isServed(const Kind &kind, const KindArc &arc, size_t choice, int heir);
  bool forbid();

  double entry(const Kind &kind, const KindArc &arc, size_t mine, size_t theirs) const {
    return arc.isFirst ? arc.table[mine * kinds[arc.other].size + theirs]
                       : arc.table[theirs * kind.size + mine];
  }

  Core &core;
  Budget &budget;
  std::vector<int> kindOf;
  std::vector<Kind> kinds;
  std::set<int> changed; ///< kinds to look at in the first step
};
} // namespace

/// The most that may stand for a cost. Beyond 2^53 sums are rounded: there a gap is asked
/// for that rounding cannot fake.
static double mostFor(double cost) {
  return std::abs(cost) > 4e15 && !isInfinite(cost) ? cost - std::abs(cost) * 1e-14
                                                    : cost;
}

/// Variables of equal costs and bytes are of one kind if their edges look alike, up to a
/// few steps far. Any division into kinds is right, a finer one keeps less and takes
/// longer.
void Retraction::makeKinds() {
  static constexpr int steps = 2;
  std::vector<std::vector<double>> alone;
  for (const CoreVar &var : core.vars) {
    std::vector<double> &key = alone.emplace_back(1, var.alive);
    if (!var.alive)
      continue;
    key.insert(key.end(), var.cost.begin(), var.cost.end());
    for (const Member &m : var.members)
      for (int64_t bytes : m.bytes)
        key.push_back(static_cast<double>(bytes));
  }
  kindOf = numbered(std::move(alone));
  std::map<uint64_t, int> tables;
  auto numberOf = [&](const CoreEdge &e) {
    return tables.emplace(e.table.id(), static_cast<int>(tables.size())).first->second;
  };
  for (int step = 0; step < steps; ++step) {
    std::vector<std::vector<std::pair<int, int>>> keys(core.vars.size());
    for (const CoreEdge &e : core.edges)
      if (e.alive) {
        keys[e.first].push_back({2 * numberOf(e), kindOf[e.second]});
        keys[e.second].push_back({2 * numberOf(e) + 1, kindOf[e.first]});
      }
    for (size_t v = 0; v < keys.size(); ++v) {
      std::sort(keys[v].begin(), keys[v].end());
      keys[v].push_back({-1, kindOf[v]});
    }
    kindOf = numbered(std::move(keys));
  }
  for (size_t v = 0; v < kindOf.size(); ++v)
    if (kindOf[v] == static_cast<int>(kinds.size()))
      kinds.push_back({static_cast<int>(v), core.vars[v].cost.size()});
  for (const CoreEdge &e : core.edges)
    if (e.alive) {
      int a = kindOf[e.first], b = kindOf[e.second], table = numberOf(e);
      kinds[a].arcs.insert({b, table, true, e.table.data()});
      kinds[b].arcs.insert({a, table, false, e.table.data()});
    }
}

/// What could stand for what by costs and bytes alone.
void Retraction::compareAlone(Kind &kind) {
  const CoreVar &var = core.vars[kind.var];
  kind.isKept.assign(kind.size, !var.alive);
  kind.isBetter.assign(kind.size * kind.size, 0);
  for (size_t s = 0; s < kind.size; ++s)
    for (size_t t = 0; t < kind.size; ++t) {
      bool isBetter = s != t && var.alive && var.cost[t] <= mostFor(var.cost[s]);
      for (const Member &m : var.members)
        isBetter = isBetter && m.bytes[t] <= m.bytes[s];
      kind.isBetter[s * kind.size + t] = isBetter;
    }
}

/// Keeps a choice: all that its neighbours have is now compared beside it, too.
void Retraction::keep(int number, size_t choice) {
  Kind &kind = kinds[number];
  kind.isKept[choice] = true;
  std::vector<double> row, most;
  for (const KindArc &arc : kind.arcs) {
    Kind &other = kinds[arc.other];
    row.resize(other.size);
    most.resize(other.size);
    for (size_t t = 0; t < other.size; ++t) {
      row[t] = entry(kind, arc, choice, t);
      most[t] = mostFor(row[t]);
    }
    for (size_t s = 0; s < other.size; ++s) {
      char *isBetter = other.isBetter.data() + s * other.size;
      for (size_t t = 0; t < other.size; ++t)
        isBetter[t] = static_cast<char>(isBetter[t] & (row[t] <= most[s]));
    }
    budget.work += static_cast<int64_t>(other.size * other.size / 4);
    changed.insert(arc.other);
  }
}

/// Keeps what nothing else could stand for. False: all such is kept already.
bool Retraction::keepNeeded(int number) {
  Kind &kind = kinds[number];
  budget.work += static_cast<int64_t>(kind.size * kind.size / 8);
  bool any = false;
  for (size_t s = 0; s < kind.size; ++s) {
    auto row = kind.isBetter.begin() + static_cast<ptrdiff_t>(s * kind.size);
    if (kind.isKept[s] || std::find(row, row + static_cast<ptrdiff_t>(kind.size), 1) !=
                              row + static_cast<ptrdiff_t>(kind.size))
      continue;
    keep(number, s);
    any = true;
  }
  return any;
}

/// Keeps the first of choices that could only stand for each other. False: there are none
/// such any more.
bool Retraction::keepOneOfEqual() {
  for (size_t k = 0; k < kinds.size(); ++k) {
    Kind &kind = kinds[k];
    for (size_t s = 0; s < kind.size; ++s) {
      if (kind.isKept[s])
        continue;
      bool isCovered = false, isLast = true;
      for (size_t t = 0; t < kind.size; ++t)
        if (kind.isBetter[s * kind.size + t]) {
          isCovered |= kind.isKept[t] != 0;
          isLast &= kind.isBetter[t * kind.size + s] != 0;
        }
      if (isCovered || !isLast)
        continue;
      keep(static_cast<int>(k), s);
      return true;
    }
  }
  return false;
}

/// The first step. False: no time.
bool Retraction::grow() {
  do {
    while (!changed.empty()) {
      if (budget.exhausted())
        return false;
      keepNeeded(changed.extract(changed.begin()).value());
    }
  } while (keepOneOfEqual());
  return true;
}

/// Whether a neighbour has heirs that go with this one, whatever of its choices gave up.
bool Retraction::isServed(const Kind &kind, const KindArc &arc, size_t choice, int heir) {
  const Kind &other = kinds[arc.other];
  for (size_t r = 0; r < other.size; ++r) {
    if (other.isKept[r])
      continue;
    double most = mostFor(entry(kind, arc, choice, r));
    if (std::none_of(other.heirs[r].begin(), other.heirs[r].end(), [&](int t) {
          return entry(kind, arc, static_cast<size_t>(heir), static_cast<size_t>(t)) <=
                 most;
        }))
      return false;
  }
  return true;
}

/// Drops heirs that the neighbours along an arc have none for. False: all are served.
bool Retraction::dropAlong(Kind &kind, const KindArc &arc) {
  bool any = false;
  for (size_t s = 0; s < kind.size; ++s)
    if (!kind.isKept[s]) {
      budget.work += static_cast<int64_t>(kind.heirs[s].size() * kinds[arc.other].size);
      any |= std::erase_if(kind.heirs[s],
                           [&](int t) { return !isServed(kind, arc, s, t); }) > 0;
    }
  return any;
}

/// Until every heir has some to go with. False: a choice has no heir left.
bool Retraction::dropHeirs(std::set<int> &dropped) {
  while (!dropped.empty() && !budget.exhausted()) {
    int at = dropped.extract(dropped.begin()).value();
    bool any = false;
    for (const KindArc &arc : kinds[at].arcs)
      any |= dropAlong(kinds[at], arc);
    if (!any)
      continue;
    dropped.insert(at);
    for (const KindArc &arc : kinds[at].arcs)
      dropped.insert(arc.other);
    for (size_t s = 0; s < kinds[at].size; ++s)
      if (!kinds[at].isKept[s] && kinds[at].heirs[s].empty()) {
        keep(at, s);
        return false;
      }
  }
  return true;
}

/// The second step: one heir for all that is not kept. False: a choice had to be kept.
bool Retraction::findHeirs() {
  std::set<int> dropped;
  for (size_t k = 0; k < kinds.size(); ++k) {
    Kind &kind = kinds[k];
    kind.heirs.assign(kind.size, {});
    for (size_t s = 0; s < kind.size; ++s)
      for (size_t t = 0; t < kind.size && !kind.isKept[s]; ++t)
        if (kind.isKept[t] && kind.isBetter[s * kind.size + t])
          kind.heirs[s].push_back(static_cast<int>(t));
    dropped.insert(static_cast<int>(k));
  }
  if (!dropHeirs(dropped))
    return false;
  for (size_t k = 0; k < kinds.size(); ++k)
    for (size_t s = 0; s < kinds[k].size; ++s)
      if (kinds[k].heirs[s].size() > 1) {
        kinds[k].heirs[s].resize(1);
        dropped.insert(static_cast<int>(k));
        for (const KindArc &arc : kinds[k].arcs)
          dropped.insert(arc.other);
        if (!dropHeirs(dropped))
          return false;
      }
  return true;
}

bool Retraction::forbid() {
  bool any = false;
  for (size_t v = 0; v < core.vars.size(); ++v) {
    const Kind &kind = kinds[kindOf[v]];
    std::vector<uint32_t> map;
    for (size_t s = 0; s < kind.size; ++s)
      if (!kind.isKept[s] && !isInfinite(core.vars[v].cost[s])) {
        map.push_back(static_cast<uint32_t>(s));
        map.push_back(static_cast<uint32_t>(kind.heirs[s][0]));
        core.vars[v].cost[s] = infinite;
      }
    if (map.empty())
      continue;
    any = true;
    core.trail.push_back(
        {TrailRecord::Replaced, static_cast<int>(v), -1, -1, std::move(map), 0});
  }
  return any;
}

bool Retraction::run() {
  makeKinds();
  for (size_t k = 0; k < kinds.size(); ++k) {
    compareAlone(kinds[k]);
    changed.insert(static_cast<int>(k));
    budget.work += static_cast<int64_t>(kinds[k].size * kinds[k].size);
  }
  do {
    if (!grow())
      return false;
  } while (!findHeirs());
  return !budget.exhausted() && forbid();
}

bool solver::retract(Core &core, Budget &budget) {
  return Retraction(core, budget).run();
}
