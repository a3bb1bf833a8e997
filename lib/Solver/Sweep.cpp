//===- Sweep.cpp - A pass of sequential message passing -------------------===//
#include "Dual.h"

#include <algorithm>

using namespace partita;
using namespace partita::solver;

// Wider vectors where the machine has them; the sums are the same either way, because
// minimum and subtraction do not depend on the order.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define PARTITA_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define PARTITA_WIDE
#endif

/// Entries that are looked at side by side.
static constexpr size_t lanes = 8;

/// min over t of row[t] − given[t].
PARTITA_WIDE static double leastOfRow(const double *row, const double *given,
                                      size_t size) {
  if (size < lanes) {
    double least = infinite;
    for (size_t t = 0; t < size; ++t) {
      double c = row[t] - given[t];
      least = c < least ? c : least;
    }
    return least;
  }
  double least[lanes];
  for (double &l : least)
    l = infinite;
  auto look = [&](size_t t) {
    for (size_t j = 0; j < lanes; ++j) {
      double c = row[t + j] - given[t + j];
      least[j] = c < least[j] ? c : least[j];
    }
  };
  for (size_t t = 0; t + lanes <= size; t += lanes)
    look(t);
  // Some are looked at twice, which changes no minimum.
  if (size % lanes != 0)
    look(size - lanes);
  for (size_t width = lanes / 2; width > 0; width /= 2)
    for (size_t j = 0; j < width; ++j)
      least[j] = least[j + width] < least[j] ? least[j + width] : least[j];
  return least[0];
}

/// least[t] = min over s of table[s][t] − given[s].
PARTITA_WIDE static void leastOfColumns(const double *table, const double *given,
                                        size_t rows, size_t columns,
                                        double *__restrict least) {
  // Narrow tables stay in the nearest cache, so that columns can be walked down one
  // group after the other with the minima in registers.
  static constexpr size_t narrow = 64;
  if (columns < lanes || columns > narrow) {
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
    return;
  }
  auto look = [&](size_t t) {
    double group[lanes];
    for (double &l : group)
      l = infinite;
    for (size_t s = 0; s < rows; ++s)
      for (size_t j = 0; j < lanes; ++j) {
        double c = table[s * columns + t + j] - given[s];
        group[j] = c < group[j] ? c : group[j];
      }
    for (size_t j = 0; j < lanes; ++j)
      least[t + j] = group[j];
  };
  for (size_t t = 0; t + lanes <= columns; t += lanes)
    look(t);
  if (columns % lanes != 0)
    look(columns - lanes);
}

/// Takes from an edge all it can spare for each choice of the visited end.
void Dual::pull(const Stop &stop, const Arc &arc) {
  size_t mine = static_cast<size_t>(stop.size),
         other = static_cast<size_t>(arc.otherSize);
  core.work += static_cast<int64_t>(mine * other);
  double *least = scratch.data();
  if (arc.isFirst)
    for (size_t s = 0; s < mine; ++s)
      least[s] = leastOfRow(arc.table + s * other, arc.theirs, other);
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
