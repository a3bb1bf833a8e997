//===- Dual.cpp - Lower bounds by reparametrization -----------------------===//
#include "Dual.h"

#include <algorithm>
#include <cmath>

using namespace partita;
using namespace partita::solver;

Dual::Dual(Core &core, Cut cut, const Budget *budget)
    : core(core), cut(cut), budget(budget) {
  theta.resize(core.vars.size());
  first.resize(core.edges.size());
  second.resize(core.edges.size());
  choice.assign(core.vars.size(), 0);
  size_t widest = 0;
  for (size_t v = 0; v < core.vars.size(); ++v)
    if (core.vars[v].alive) {
      order.push_back(static_cast<int>(v));
      theta[v] = core.vars[v].cost;
      widest = std::max(widest, theta[v].size());
    }
  for (size_t e = 0; e < core.edges.size(); ++e)
    if (core.edges[e].alive) {
      first[e].assign(core.vars[core.edges[e].first].cost.size(), 0);
      second[e].assign(core.vars[core.edges[e].second].cost.size(), 0);
    }
  scratch.resize(widest);
  lambda = core.lambda;
  constant = core.constant;
  penalties(lambda, 1);
  for (size_t e = 0; e < core.edges.size(); ++e) {
    if (!core.edges[e].movedFirst.empty()) {
      loadHints(static_cast<int>(e));
      continue;
    }
    // No table of a problem has negative costs, and only such are shared.
    const Table &table = core.edges[e].table;
    if (!core.repeats &&
        std::any_of(table.begin(), table.end(), [](double c) { return c < 0; }))
      pull(static_cast<int>(e), core.edges[e].first);
  }
  level();
}

/// Starts from what an earlier dual moved.
void Dual::loadHints(int edge) {
  const CoreEdge &e = core.edges[edge];
  first[edge] = e.movedFirst;
  second[edge] = e.movedSecond;
  auto add = [](std::vector<double> &cost, const std::vector<double> &moved) {
    for (size_t s = 0; s < cost.size(); ++s)
      if (!isInfinite(cost[s]))
        cost[s] += moved[s];
  };
  add(theta[e.first], first[edge]);
  add(theta[e.second], second[edge]);
}

/// Takes every variable's minimum out, so that the constant is a bound again: after the
/// multipliers moved, costs may be negative. Pruning relies on nothing being so.
void Dual::level() {
  for (int v : order) {
    double least = *std::min_element(theta[v].begin(), theta[v].end());
    if (isInfinite(least))
      continue;
    constant += least;
    for (double &c : theta[v])
      if (!isInfinite(c))
        c -= least;
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
  for (int v : order)
    for (const Member &m : core.vars[v].members) {
      double price = sign * (sum[m.end] - sum[m.begin]);
      if (price == 0)
        continue;
      for (size_t s = 0; s < theta[v].size(); ++s)
        if (!isInfinite(theta[v][s]))
          theta[v][s] += price * static_cast<double>(m.bytes[s]);
    }
}

// Wider vectors where the machine has them; the sums are the same either way, because
// minimum and subtraction do not depend on the order.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define PARTITA_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define PARTITA_WIDE
#endif

/// min over t of row[t] − given[t].
PARTITA_WIDE static double leastOfRow(const double *row, const double *given,
                                      size_t size) {
  double least[8];
  for (double &l : least)
    l = infinite;
  size_t t = 0;
  for (; t + 8 <= size; t += 8)
    for (int j = 0; j < 8; ++j) {
      double c = row[t + j] - given[t + j];
      least[j] = c < least[j] ? c : least[j];
    }
  for (; t < size; ++t) {
    double c = row[t] - given[t];
    least[0] = c < least[0] ? c : least[0];
  }
  for (int j = 1; j < 8; ++j)
    least[0] = least[j] < least[0] ? least[j] : least[0];
  return least[0];
}

/// least[t] = min over s of table[s][t] − given[s].
PARTITA_WIDE static void leastOfColumns(const double *table, const double *given,
                                        size_t rows, size_t columns,
                                        double *__restrict least) {
  for (size_t t = 0; t < columns; ++t)
    least[t] = infinite;
  for (size_t s = 0; s < rows; ++s) {
    const double *row = table + s * columns;
    double g = given[s];
    for (size_t t = 0; t < columns; ++t) {
      double c = row[t] - g;
      least[t] = c < least[t] ? c : least[t];
    }
  }
}

/// Takes from an edge all it can spare for each choice of var.
void Dual::pull(int edge, int var) {
  const CoreEdge &e = core.edges[edge];
  size_t k = first[edge].size(), l = second[edge].size();
  core.work += static_cast<int64_t>(k * l);
  bool isFirst = e.first == var;
  double *mine = isFirst ? first[edge].data() : second[edge].data();
  const double *theirs = isFirst ? second[edge].data() : first[edge].data();
  double *out = theta[var].data();
  double *least = scratch.data();
  if (isFirst)
    for (size_t s = 0; s < k; ++s)
      least[s] = leastOfRow(e.table.data() + s * l, theirs, l);
  else
    leastOfColumns(e.table.data(), theirs, k, l, least);
  for (size_t s = 0; s < theta[var].size(); ++s) {
    if (isInfinite(out[s]))
      continue;
    if (isInfinite(least[s])) {
      out[s] = infinite;
      continue;
    }
    double spare = least[s] - mine[s];
    mine[s] += spare;
    out[s] += spare;
  }
}

void Dual::push(int edge, int var, double share) {
  double *given = message(edge, var);
  for (size_t s = 0; s < theta[var].size(); ++s)
    if (!isInfinite(theta[var][s]))
      given[s] -= share * theta[var][s];
}

/// Takes the minimum out of var's costs and drops what lies above the cut. A dropped
/// choice looks infinitely expensive from every edge.
bool Dual::settle(int var) {
  std::vector<double> &cost = theta[var];
  double least = *std::min_element(cost.begin(), cost.end());
  if (isInfinite(least))
    return false;
  constant += least;
  double room = cut.value(core.noise) - constant;
  for (size_t s = 0; s < cost.size(); ++s) {
    if (!isInfinite(cost[s])) {
      cost[s] -= least;
      if (cost[s] <= room)
        continue;
      cost[s] = infinite;
    }
    for (int e : core.vars[var].edges)
      message(e, var)[s] = -infinite;
  }
  return room >= 0;
}

/// Picks the choice that is cheapest with the neighbours picked before. Edges only add,
/// so most choices are out by their own cost, before any table is read.
void Dual::decode(int var) {
  const std::vector<double> &cost = theta[var];
  double least = 2 * infinite;
  auto consider = [&](size_t s) {
    double sum = cost[s];
    for (int e : core.vars[var].edges) {
      if (sum >= least)
        return;
      int o = core.other(e, var);
      if (o < var)
        sum += core.entry(e, var, static_cast<int>(s), choice[o]) - message(e, var)[s] -
               message(e, o)[choice[o]];
    }
    if (sum < least) {
      least = sum;
      choice[var] = static_cast<int>(s);
    }
  };
  consider(
      static_cast<size_t>(std::min_element(cost.begin(), cost.end()) - cost.begin()));
  for (size_t s = 0; s < cost.size(); ++s)
    if (cost[s] < least)
      consider(s);
}

bool Dual::visit(int var, bool forward) {
  int ahead = 0, behind = 0;
  for (int e : core.vars[var].edges) {
    if ((core.other(e, var) < var) == forward) {
      ++behind;
      pull(e, var);
    } else {
      ++ahead;
    }
  }
  if (!settle(var))
    return false;
  if (forward)
    decode(var);
  if (ahead == 0)
    return true;
  double share = 1.0 / std::max(ahead, behind);
  for (int e : core.vars[var].edges)
    if ((core.other(e, var) < var) != forward)
      push(e, var, share);
  double left = std::max(0.0, 1 - share * ahead);
  for (double &c : theta[var])
    if (!isInfinite(c))
      c *= left;
  return true;
}

bool Dual::sweep() {
  size_t visits = 0;
  bool stopped = false;
  for (auto v = order.begin(); v != order.end() && !stopped; ++v) {
    if (!visit(*v, true))
      return false;
    stopped = isCutShort(++visits);
  }
  for (auto v = order.rbegin(); v != order.rend() && !stopped; ++v) {
    if (!visit(*v, false))
      return false;
    stopped = isCutShort(++visits);
  }
  last = constant;
  core.noise = std::max(core.noise, std::abs(constant));
  if (last > best || best <= -infinite) {
    best = last;
    bestLambda = lambda;
  }
  return true;
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
    if (budget && budget->exhausted(core.work))
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

bool Dual::settleInCore() { return core.tableEntries() > mostBaked ? keep() : bake(); }

bool Dual::keep() {
  double room = cut.value(core.noise) - constant;
  for (size_t e = 0; e < core.edges.size(); ++e)
    if (core.edges[e].alive) {
      core.edges[e].movedFirst = first[e];
      core.edges[e].movedSecond = second[e];
    }
  core.lambda = lambda;
  for (int v : order) {
    bool any = false;
    for (size_t s = 0; s < theta[v].size(); ++s) {
      if (isInfinite(theta[v][s]) || theta[v][s] > room)
        core.vars[v].cost[s] = infinite;
      any |= !isInfinite(core.vars[v].cost[s]);
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
    size_t k = first[e].size(), l = second[e].size();
    core.work += static_cast<int64_t>(k * l);
    const auto &a = theta[edge.first], &b = theta[edge.second];
    edge.movedFirst = edge.movedSecond = {};
    std::vector<double> &table = edge.table.edit();
    for (size_t s = 0; s < k; ++s)
      for (size_t t = 0; t < l; ++t) {
        double &c = table[s * l + t];
        double moved = c - first[e][s] - second[e][t];
        c = isInfinite(c) || isInfinite(moved) || moved + a[s] + b[t] > room ? infinite
                                                                             : moved;
      }
  }
  core.constant = constant;
  std::vector<double> kept = lambda;
  for (size_t v : order)
    core.vars[v].cost.swap(theta[v]);
  // The core's costs are true costs: take the multipliers' part out again.
  for (size_t v : order)
    theta[v] = core.vars[v].cost;
  double dual = constant;
  penalties(kept, -1);
  core.constant = constant;
  constant = dual;
  for (size_t v : order) {
    core.vars[v].cost = theta[v];
    if (std::all_of(theta[v].begin(), theta[v].end(), isInfinite))
      return false;
  }
  core.lambda = kept;
  return true;
}
