//===- Sweep.cpp - A pass of sequential message passing -------------------===//
#include "Dual.h"

#include "Minima.h"

#include <algorithm>

using namespace partita;
using namespace partita::solver;

/// Takes from an edge all it can spare for each choice of the visited end.
void Dual::pull(const Stop &stop, const Arc &arc) {
  size_t mine = static_cast<size_t>(stop.size),
         other = static_cast<size_t>(arc.otherSize);
  core.work += static_cast<int64_t>(mine * other);
  double *least = scratch.data();
  if (arc.isFirst)
    leastOfRows(arc.table, arc.theirs, mine, other, least);
  else
    leastOfColumns(arc.table, arc.theirs, other, mine, least);
  for (size_t s = 0; s < mine; ++s) {
    if (isInfinite(stop.cost[s]))
      continue;
    if (isInfinite(least[s])) {
      stop.cost[s] = infinite;
      continue;
    }
    double spare = least[s] - arc.mine[s];
    arc.mine[s] += spare;
    stop.cost[s] += spare;
  }
}

/// Takes the minimum out of a variable's costs and drops what lies above the cut. A
/// dropped choice looks infinitely expensive from every edge.
bool Dual::settle(const Stop &stop) {
  double least = *std::min_element(stop.cost, stop.cost + stop.size);
  if (isInfinite(least))
    return false;
  constant += least;
  double room = cut.value(core.noise) - constant;
  for (int s = 0; s < stop.size; ++s) {
    if (!isInfinite(stop.cost[s])) {
      stop.cost[s] -= least;
      if (stop.cost[s] <= room)
        continue;
      stop.cost[s] = infinite;
    }
    for (size_t a = stop.arcs; a < stop.end && arcs[a].mine[s] > -infinite; ++a)
      arcs[a].mine[s] = -infinite;
  }
  return room >= 0;
}

/// Picks the choice that is cheapest with the neighbours picked before. Edges only add,
/// so most choices are out by their own cost, before any table is read.
void Dual::decode(const Stop &stop) {
  double least = 2 * infinite;
  auto consider = [&](int s) {
    double sum = stop.cost[s];
    for (size_t a = stop.arcs; a < stop.ahead && sum < least; ++a) {
      const Arc &arc = arcs[a];
      int t = choice[arc.other];
      double entry =
          arc.isFirst ? arc.table[s * arc.otherSize + t] : arc.table[t * stop.size + s];
      sum += entry - arc.mine[s] - arc.theirs[t];
    }
    if (sum < least) {
      least = sum;
      choice[stop.var] = s;
    }
  };
  consider(
      static_cast<int>(std::min_element(stop.cost, stop.cost + stop.size) - stop.cost));
  for (int s = 0; s < stop.size; ++s)
    if (stop.cost[s] < least)
      consider(s);
}

bool Dual::visit(const Stop &stop, bool forward) {
  size_t from = forward ? stop.arcs : stop.ahead;
  size_t to = forward ? stop.ahead : stop.end;
  for (size_t a = from; a < to; ++a)
    pull(stop, arcs[a]);
  if (!settle(stop))
    return false;
  if (forward)
    decode(stop);
  size_t behind = to - from, ahead = stop.end - stop.arcs - behind;
  if (ahead == 0)
    return true;
  double share = 1.0 / static_cast<double>(std::max(ahead, behind));
  double left = std::max(0.0, 1 - share * static_cast<double>(ahead));
  from = forward ? stop.ahead : stop.arcs;
  for (size_t a = from; a < from + ahead; ++a)
    for (int s = 0; s < stop.size; ++s)
      if (!isInfinite(stop.cost[s]))
        arcs[a].mine[s] -= share * stop.cost[s];
  for (int s = 0; s < stop.size; ++s)
    if (!isInfinite(stop.cost[s]))
      stop.cost[s] *= left;
  return true;
}

bool Dual::sweep() {
  size_t visits = 0;
  auto isCutShort = [&] {
    return ++visits % 64 == 0 && budget && budget->exhausted(core.work);
  };
  bool stopped = false;
  for (auto stop = stops.begin(); stop != stops.end() && !stopped; ++stop) {
    if (!visit(*stop, true))
      return false;
    stopped = isCutShort();
  }
  for (auto stop = stops.rbegin(); stop != stops.rend() && !stopped; ++stop) {
    if (!visit(*stop, false))
      return false;
    stopped = isCutShort();
  }
  last = constant;
  core.noise = std::max(core.noise, std::abs(constant));
  if (last > best || best <= -infinite) {
    best = last;
    bestLambda = lambda;
  }
  return true;
}
