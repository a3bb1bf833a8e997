//===- Dual.cpp - Lower bounds by reparametrization -----------------------===//
#include "Dual.h"

#include "Minima.h"

#include <algorithm>
#include <cmath>

using namespace partita;
using namespace partita::solver;

Dual::Dual(Core &core, Cut cut, const Budget *budget)
    : core(core), cut(cut), budget(budget) {
  choice.assign(core.vars.size(), 0);
  costsAt.reserve(core.vars.size() + 1);
  for (const CoreVar &var : core.vars) {
    costsAt.push_back(costs.size());
    if (var.alive)
      costs.insert(costs.end(), var.cost.begin(), var.cost.end());
  }
  costsAt.push_back(costs.size());
  size_t all = 0;
  for (const CoreEdge &e : core.edges) {
    movedAt.emplace_back(all, all + (e.alive ? core.vars[e.first].cost.size() : 0));
    if (e.alive)
      all += core.vars[e.first].cost.size() + core.vars[e.second].cost.size();
  }
  messages.resize(all);
  arrange();
  lambda = core.lambda;
  constant = core.constant;
  penalties(lambda, 1);
  for (size_t e = 0; e < core.edges.size(); ++e)
    if (core.edges[e].alive && !core.edges[e].movedFirst.empty())
      loadHints(static_cast<int>(e));
  if (!core.repeats)
    liftNegative();
  markForbidden();
  level();
}

/// Lays the variables out in the order of the visits, each with its edges.
void Dual::arrange() {
  int widest = 0;
  for (size_t i = 0; i < core.vars.size(); ++i) {
    const CoreVar &var = core.vars[i];
    if (!var.alive)
      continue;
    int v = static_cast<int>(i);
    Stop stop{v, var.size(), own(v).data(), arcs.size(), 0, 0};
    for (bool before : {true, false}) {
      for (int e : var.edges)
        if (int o = core.other(e, v); (o < v) == before)
          arcs.push_back({core.edges[e].table.data(), moved(e, v), moved(e, o), o,
                          core.vars[o].size(), core.edges[e].first == v});
      (before ? stop.ahead : stop.end) = arcs.size();
    }
    stops.push_back(stop);
    widest = std::max(widest, stop.size);
  }
  scratch.resize(widest);
}

/// Starts from what an earlier dual moved.
void Dual::loadHints(int edge) {
  const CoreEdge &e = core.edges[edge];
  auto add = [&](int var, const std::vector<double> &hints) {
    std::span<double> cost = own(var);
    std::copy(hints.begin(), hints.end(), moved(edge, var));
    for (size_t s = 0; s < cost.size(); ++s)
      if (!isInfinite(cost[s]))
        cost[s] += hints[s];
  };
  add(e.first, e.movedFirst);
  add(e.second, e.movedSecond);
}

/// Earlier duals leave negative costs in tables, which must not stay there. No table of a
/// problem has any, and only such are shared.
void Dual::liftNegative() {
  for (const Stop &stop : stops)
    for (size_t a = stop.arcs; a < stop.end; ++a) {
      const Arc &arc = arcs[a];
      const double *end = arc.table + static_cast<ptrdiff_t>(stop.size) * arc.otherSize;
      if (arc.isFirst && std::any_of(arc.table, end, [](double c) { return c < 0; }))
        pull(stop, arc);
    }
}

/// A forbidden choice looks infinitely expensive from every edge, or from none.
void Dual::markForbidden() {
  for (const Stop &stop : stops)
    for (int s = 0; s < stop.size; ++s)
      if (isInfinite(stop.cost[s]))
        for (size_t a = stop.arcs; a < stop.end; ++a)
          arcs[a].mine[s] = -infinite;
}

/// Takes every variable's minimum out, so that the constant is a bound again: after the
/// multipliers moved, costs may be negative. Pruning relies on nothing being so.
void Dual::level() {
  for (const Stop &stop : stops) {
    double least = *std::min_element(stop.cost, stop.cost + stop.size);
    if (isInfinite(least))
      continue;
    constant += least;
    for (int s = 0; s < stop.size; ++s)
      if (!isInfinite(stop.cost[s]))
        stop.cost[s] -= least;
  }
}

/// Adds sign·change·bytes to the choices and takes sign·change·slack off the constant.
void Dual::penalties(const std::vector<double> &change, double sign) {
  std::vector<double> sum(change.size() + 1);
  bool any = false;
  for (size_t r = 0; r < change.size(); ++r) {
    sum[r + 1] = sum[r] + change[r];
    any |= change[r] != 0;
    constant -= sign * change[r] * static_cast<double>(core.slack[r]);
  }
  if (!any)
    return;
  for (const Stop &stop : stops)
    for (const Member &m : core.vars[stop.var].members) {
      double price = sign * (sum[m.end] - sum[m.begin]);
      if (price == 0)
        continue;
      for (int s = 0; s < stop.size; ++s)
        if (!isInfinite(stop.cost[s]))
          stop.cost[s] += price * static_cast<double>(m.bytes[s]);
    }
}

std::vector<double> solver::excessOfRows(const Core &core, const std::vector<int> &choice,
                                         const std::vector<double> &lambda) {
  std::vector<Wide> use = core.rowUse(choice);
  size_t rows = use.size();
  std::vector<double> over(rows);
  for (size_t r = 0; r < rows; ++r)
    over[r] = static_cast<double>(use[r] - core.slack[r]);
  std::vector<double> change(rows);
  for (size_t r = 0; r < rows;) {
    if (over[r] <= 0) {
      change[r] = lambda[r] > 0 ? over[r] : 0;
      ++r;
      continue;
    }
    size_t worst = r;
    for (; r < rows && over[r] > 0; ++r) {
      if (over[r] > over[worst])
        worst = r;
      change[r] = lambda[r] > 0 ? over[r] : 0;
    }
    change[worst] = over[worst];
  }
  return change;
}

/// Multipliers are not moved below 0. The square of the length that is left.
static double project(std::vector<double> &direction, const std::vector<double> &lambda) {
  double norm = 0;
  for (size_t r = 0; r < direction.size(); ++r) {
    if (lambda[r] <= 0 && direction[r] < 0)
      direction[r] = 0;
    norm += direction[r] * direction[r];
  }
  return norm;
}

double solver::deflect(std::vector<double> &direction, const std::vector<double> &change,
                       const std::vector<double> &lambda, double momentum) {
  if (direction.empty())
    direction = change;
  double square = 0;
  for (size_t r = 0; r < change.size(); ++r) {
    direction[r] = momentum * direction[r] + (1 - momentum) * change[r];
    square += change[r] * change[r];
  }
  double norm = project(direction, lambda);
  // Steps are as long as the direction is short: one that is what rounding left of two
  // opposite ones would move the multipliers out of all proportion.
  if (norm >= 1e-4 * square)
    return norm;
  direction = change;
  return project(direction, lambda);
}

void Dual::stepMultipliers() {
  if (core.slack.empty())
    return;
  std::vector<double> change = excessOfRows(core, choice, lambda);
  size_t rows = change.size();
  bool exceeds =
      std::any_of(change.begin(), change.end(), [](double c) { return c > 0; });
  (exceeds ? over : under) = choice;
  if (std::all_of(change.begin(), change.end(), [](double c) { return c == 0; }))
    return;
  double norm = deflect(direction, change, lambda, 0.3);
  if (norm == 0)
    return;
  double goal = std::min(cut.upper, expected);
  if (isInfinite(goal) || goal <= best)
    goal = isInfinite(cut.upper) ? best + std::abs(best) * 0.02 + 1 : cut.upper;
  double gap = std::max(goal - best, 1e-9 * std::abs(goal));
  // A step that overshot must not make the next one larger without end.
  double step = scale * std::clamp(goal - last, gap, 3 * gap) / norm;
  for (size_t r = 0; r < rows; ++r) {
    double next = std::max(0.0, lambda[r] + step * direction[r]);
    change[r] = next - lambda[r];
    lambda[r] = next;
  }
  penalties(change, 1);
  level();
}

void Dual::moveTo(std::vector<double> target) {
  std::vector<double> change(lambda.size());
  for (size_t r = 0; r < lambda.size(); ++r)
    change[r] = target[r] - lambda[r];
  lambda = std::move(target);
  penalties(change, 1);
  level();
  direction.clear();
}

/// How far the bound may at most rise, as far as is known.
double Dual::gapAbove() const {
  return isInfinite(cut.upper) ? std::abs(best) + 1 : cut.upper - best + 1;
}

bool Dual::run(int maxSweeps, double tolerance) {
  double before = -infinite;
  for (int i = 0; i < maxSweeps; ++i) {
    double previous = best;
    if (!sweep())
      return false;
    if (best > previous + 1e-7 * std::abs(best)) {
      stalled = 0;
      scale = std::min(scale * 1.1, 1.5);
    } else if (++stalled >= 6 || best - last > 20 * gapAbove()) {
      // Overshot: back to the best multipliers, with smaller steps.
      scale *= 0.5;
      stalled = 0;
      moveTo(bestLambda);
    }
    if (i % 32 == 31) {
      if (best - before < tolerance * std::max(1.0, std::abs(best)))
        break;
      before = best;
    }
    if (isBeyond(best, enough) || (budget && budget->exhausted(core.work)))
      break;
    if (i + 1 < maxSweeps)
      stepMultipliers();
  }
  // The multipliers of the best bound, with messages settled for them.
  if (last < best) {
    moveTo(bestLambda);
    for (int i = 0; i < 3 && !(budget && budget->exhausted(core.work)); ++i)
      if (!sweep())
        return false;
  }
  return true;
}

std::vector<double> Dual::marginal(int var) {
  std::span<double> mine = own(var);
  std::vector<double> result(mine.begin(), mine.end()), least(mine.size()), given;
  for (int e : core.vars[var].edges) {
    const CoreEdge &edge = core.edges[e];
    const int o = core.other(e, var);
    std::span<double> theirs = own(o);
    const double *away = moved(e, o), *from = moved(e, var);
    given.resize(theirs.size());
    for (size_t t = 0; t < theirs.size(); ++t)
      given[t] = isInfinite(theirs[t]) ? -infinite : away[t] - theirs[t];
    if (edge.first == var)
      leastOfRows(edge.table.data(), given.data(), mine.size(), given.size(),
                  least.data());
    else
      leastOfColumns(edge.table.data(), given.data(), given.size(), mine.size(),
                     least.data());
    core.work += static_cast<int64_t>(mine.size() * given.size());
    for (size_t s = 0; s < mine.size(); ++s)
      result[s] = isInfinite(result[s]) || isInfinite(least[s])
                      ? infinite
                      : result[s] + least[s] - from[s];
  }
  return result;
}

bool Dual::settleInCore() { return core.tableEntries() > mostBaked ? keep() : bake(); }

bool Dual::keep() {
  double room = cut.value(core.noise) - constant;
  for (size_t e = 0; e < core.edges.size(); ++e)
    if (CoreEdge &edge = core.edges[e]; edge.alive) {
      const double *first = moved(static_cast<int>(e), edge.first);
      const double *second = moved(static_cast<int>(e), edge.second);
      edge.movedFirst.assign(first, first + core.vars[edge.first].size());
      edge.movedSecond.assign(second, second + core.vars[edge.second].size());
    }
  core.lambda = lambda;
  for (const Stop &stop : stops) {
    bool any = false;
    for (int s = 0; s < stop.size; ++s) {
      double &cost = core.vars[stop.var].cost[s];
      if (isInfinite(stop.cost[s]) || stop.cost[s] > room)
        cost = infinite;
      any |= !isInfinite(cost);
    }
    if (!any)
      return false;
  }
  return true;
}

bool Dual::bake() {
  core.repeats = false;
  double room = cut.value(core.noise) - constant;
  for (size_t e = 0; e < core.edges.size(); ++e) {
    CoreEdge &edge = core.edges[e];
    if (!edge.alive)
      continue;
    std::span<double> a = own(edge.first), b = own(edge.second);
    const double *first = moved(static_cast<int>(e), edge.first);
    const double *second = moved(static_cast<int>(e), edge.second);
    core.work += static_cast<int64_t>(a.size() * b.size());
    edge.movedFirst = edge.movedSecond = {};
    std::vector<double> &table = edge.table.edit();
    for (size_t s = 0; s < a.size(); ++s)
      for (size_t t = 0; t < b.size(); ++t) {
        double &c = table[s * b.size() + t];
        double left = c - first[s] - second[t];
        c = isInfinite(c) || isInfinite(left) || left + a[s] + b[t] > room ? infinite
                                                                           : left;
      }
  }
  // The core's costs are true costs: the multipliers' part is taken out again.
  double dual = constant;
  penalties(lambda, -1);
  core.constant = constant;
  constant = dual;
  core.lambda = lambda;
  for (const Stop &stop : stops) {
    core.vars[stop.var].cost.assign(stop.cost, stop.cost + stop.size);
    if (std::all_of(stop.cost, stop.cost + stop.size, isInfinite))
      return false;
  }
  return true;
}
