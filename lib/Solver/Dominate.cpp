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
  size_t degree = v.edges.size(), k = v.cost.size();
  std::vector<int> partner(k * degree);
  std::vector<double> least(k);
  for (size_t i = 0; i < degree; ++i) {
    const CoreEdge &e = edges[v.edges[i]];
    const double *table = e.table.data();
    size_t ko = vars[other(v.edges[i], var)].cost.size();
    std::fill(least.begin(), least.end(), 2 * infinite);
    bool rows = e.first == var;
    for (size_t a = 0; a < (rows ? k : ko); ++a)
      for (size_t b = 0; b < (rows ? ko : k); ++b, ++table) {
        size_t s = rows ? a : b, t = rows ? b : a;
        if (*table < least[s]) {
          least[s] = *table;
          partner[s * degree + i] = static_cast<int>(t);
        }
      }
  }
  return partner;
}

/// Per choice which of up to 64 pairs with neighbours' choices, spread over all, are
/// forbidden: a choice with one that another lacks cannot replace it.
std::vector<uint64_t> Core::forbiddenSamples(int var) const {
  const CoreVar &v = vars[var];
  size_t columns = 0;
  for (int e : v.edges)
    columns += vars[other(e, var)].cost.size();
  std::vector<uint64_t> samples(v.cost.size(), 0);
  size_t before = 0, bit = 0;
  for (int e : v.edges) {
    size_t here = vars[other(e, var)].cost.size();
    for (; bit < 64 && bit * columns / 64 < before + here; ++bit) {
      if (bit * columns / 64 < before)
        continue;
      int t = static_cast<int>(bit * columns / 64 - before);
      for (size_t s = 0; s < samples.size(); ++s)
        if (isInfinite(entry(e, var, static_cast<int>(s), t)))
          samples[s] |= uint64_t(1) << bit;
    }
    before += here;
  }
  return samples;
}

/// The choices of var that another one can replace, each followed by that one.
std::vector<uint32_t> Core::dominated(int var) {
  CoreVar &v = vars[var];
  std::vector<int> partner = cheapestPartners(var);
  std::vector<uint64_t> forbids = forbiddenSamples(var);
  size_t degree = v.edges.size();
  std::vector<uint32_t> result;
  std::vector<double> kept = v.cost;
  // Per edge what all choices cost with the partner of the one that is looked at.
  struct Column {
    const double *first;
    size_t stride;
  };
  std::vector<Column> columns;
  for (int worse = 0; worse < v.size(); ++worse) {
    columns.clear();
    // Rounding must not reject here what the full comparison would accept.
    double mine = v.cost[worse] + 1e-6;
    for (size_t i = 0; i < degree; ++i) {
      int t = partner[worse * degree + i];
      double cost = entry(v.edges[i], var, worse, t);
      if (isInfinite(cost))
        continue;
      mine += cost + std::abs(cost) * 1e-9;
      const CoreEdge &edge = edges[v.edges[i]];
      auto width = static_cast<size_t>(vars[edge.second].size());
      auto place = static_cast<size_t>(t);
      columns.push_back(edge.first == var ? Column{edge.table.data() + place, width}
                                          : Column{edge.table.data() + place * width, 1});
    }
    for (int better = 0; better < v.size(); ++better) {
      if (better == worse || (forbids[better] & ~forbids[worse]) ||
          isInfinite(v.cost[better]))
        continue;
      work += 2;
      double room = mine - v.cost[better];
      for (const Column &column : columns)
        room -= column.first[static_cast<size_t>(better) * column.stride];
      if (room < 0 || !dominates(var, better, worse))
        continue;
      v.cost[worse] = infinite;
      result.push_back(static_cast<uint32_t>(worse));
      result.push_back(static_cast<uint32_t>(better));
      break;
    }
  }
  v.cost = std::move(kept);
  return result;
}

bool Core::dominateOne(int var) {
  CoreVar &v = vars[var];
  Memo::Key key{'d'};
  std::vector<Table> inputs;
  if (memo) {
    Memo::append(key, v.cost);
    key.push_back(v.members.size());
    for (const Member &m : v.members)
      key.insert(key.end(), m.bytes.begin(), m.bytes.end());
    for (int e : v.edges) {
      key.push_back(edges[e].table.id());
      key.push_back(edges[e].first == var);
      inputs.push_back(edges[e].table);
    }
  }
  const Memo::Result &result =
      remember(std::move(key), inputs, [&] { return Memo::Result{{}, dominated(var)}; });
  if (result.map.empty())
    return false;
  for (size_t i = 0; i < result.map.size(); i += 2)
    v.cost[result.map[i]] = infinite;
  trail.push_back({TrailRecord::Replaced, var, -1, -1, result.map, 0});
  return true;
}

bool Core::dominate() {
  bool any = false;
  for (size_t v = 0; v < vars.size() && !expired(); ++v)
    // Quadratic in choices; hubs with thousands of edges never pass it.
    if (vars[v].alive && vars[v].edges.size() <= 64 && vars[v].size() > 1)
      any |= dominateOne(static_cast<int>(v));
  return any;
}
