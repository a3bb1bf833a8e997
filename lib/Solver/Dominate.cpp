//===- Dominate.cpp - Choices that another choice can always replace ------===//
#include "Core.h"

#include <algorithm>
#include <cmath>

using namespace partita;
using namespace partita::solver;

/// Whether `better` can replace `worse` whatever the neighbours choose.
bool Core::dominates(int var, int better, int worse) const {
  const CoreVar &v = vars[var];
  double room = v.cost[worse] - v.cost[better];
  // Beyond 2^53 sums are rounded: ask for a gap that rounding cannot fake.
  double size = std::max(std::abs(v.cost[worse]), std::abs(v.cost[better]));
  room -= size > 4e15 ? size * 1e-14 : 0;
  if (room < 0 && v.edges.empty())
    return false;
  for (const Member &m : v.members)
    if (m.bytes[better] > m.bytes[worse])
      return false;
  for (int e : v.edges) {
    const CoreEdge &edge = edges[e];
    int columns = vars[edge.second].size(), o = other(e, var);
    double most = -infinite;
    for (int t = 0; t < vars[o].size(); ++t) {
      double cb, cw;
      if (edge.first == var) {
        cb = edge.table[better * columns + t];
        cw = edge.table[worse * columns + t];
      } else {
        cb = edge.table[t * columns + better];
        cw = edge.table[t * columns + worse];
      }
      if (isInfinite(cw))
        continue;
      if (isInfinite(cb))
        return false;
      double size = std::max(std::abs(cb), std::abs(cw));
      most = std::max(most, cb - cw + (size > 4e15 ? size * 1e-14 : 0));
    }
    room -= most;
  }
  return room >= 0;
}

/// For each choice of `var` and each of its edges, the cheapest partner: a place where a
/// dominating choice has to be as good, looked at before whole rows are compared.
std::vector<int> Core::cheapestPartners(int var) const {
  const CoreVar &v = vars[var];
  size_t degree = v.edges.size();
  std::vector<int> partner(v.cost.size() * degree);
  for (size_t i = 0; i < degree; ++i) {
    int ko = vars[other(v.edges[i], var)].size();
    for (int s = 0; s < v.size(); ++s) {
      double least = 2 * infinite;
      for (int t = 0; t < ko; ++t) {
        double c = entry(v.edges[i], var, s, t);
        if (c < least) {
          least = c;
          partner[s * degree + i] = t;
        }
      }
    }
  }
  return partner;
}

bool Core::dominateOne(int var) {
  CoreVar &v = vars[var];
  std::vector<int> partner = cheapestPartners(var);
  size_t degree = v.edges.size();
  bool any = false;
  for (int worse = 0; worse < v.size(); ++worse)
    for (int better = 0; better < v.size(); ++better) {
      if (better == worse || isInfinite(v.cost[better]))
        continue;
      work += 2;
      // Rounding must not reject here what the full comparison would accept.
      double room = v.cost[worse] - v.cost[better] + 1e-6;
      for (size_t i = 0; i < degree; ++i) {
        int t = partner[worse * degree + i];
        double cw = entry(v.edges[i], var, worse, t);
        if (!isInfinite(cw))
          room += cw - entry(v.edges[i], var, better, t) + std::abs(cw) * 1e-9;
      }
      if (room < 0 || !dominates(var, better, worse))
        continue;
      v.cost[worse] = infinite;
      any = true;
      break;
    }
  return any;
}

bool Core::dominate() {
  bool any = false;
  for (size_t v = 0; v < vars.size(); ++v)
    // Quadratic in choices; hubs with thousands of edges never pass it.
    if (vars[v].alive && vars[v].edges.size() <= 64 && vars[v].size() > 1)
      any |= dominateOne(static_cast<int>(v));
  return any;
}
