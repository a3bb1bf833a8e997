//===- Alike.cpp - Variables with equal surroundings ----------------------===//
#include "Alike.h"

#include "Numbered.h"

#include <algorithm>
#include <map>
#include <utility>

using namespace partita;
using namespace partita::solver;

/// What variables are by themselves.
static std::vector<int> firstColours(const Problem &problem) {
  std::vector<std::vector<int64_t>> keys;
  for (const Variable &v : problem.variables) {
    std::vector<int64_t> &key = keys.emplace_back(v.costs);
    for (const Usage &usage : v.usages)
      if (usage.begin < usage.end)
        key.insert(key.end(), usage.bytes.begin(), usage.bytes.end());
  }
  return numbered(std::move(keys));
}

Ties solver::tiesOfAlike(const Problem &problem, int steps) {
  std::vector<int> colour = firstColours(problem);
  std::map<const void *, int64_t> tables;
  for (int step = 0; step < steps; ++step) {
    // An edge as one end sees it: its table, which end it is, the colour of the other.
    std::vector<std::vector<std::pair<int64_t, int>>> keys(colour.size());
    for (const Edge &e : problem.edges) {
      int64_t table =
          tables.emplace(e.costs.id(), static_cast<int64_t>(tables.size())).first->second;
      keys[e.first].push_back({2 * table, colour[e.second]});
      keys[e.second].push_back({2 * table + 1, colour[e.first]});
    }
    for (size_t v = 0; v < keys.size(); ++v) {
      std::sort(keys[v].begin(), keys[v].end());
      keys[v].push_back({-1, colour[v]});
    }
    colour = numbered(std::move(keys));
  }
  std::map<int, uint32_t> first;
  Ties ties;
  for (uint32_t v = 0; v < colour.size(); ++v)
    if (auto [it, isNew] = first.emplace(colour[v], v); !isNew)
      ties.push_back({it->second, v});
  return ties;
}
