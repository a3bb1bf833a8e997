//===- Core.cpp - Bookkeeping of the reducible form -----------------------===//
#include "Core.h"

#include <algorithm>
#include <cassert>

using namespace partita;
using namespace partita::solver;

int Core::findEdge(int a, int b) const {
  if (vars[a].edges.size() > vars[b].edges.size())
    std::swap(a, b);
  for (int e : vars[a].edges)
    if (other(e, a) == b)
      return e;
  return -1;
}

void Core::removeEdge(int edge) {
  CoreEdge &e = edges[edge];
  for (int v : {e.first, e.second})
    std::erase(vars[v].edges, edge);
  e.alive = false;
  e.table = {};
}

void Core::addTable(int a, int b, std::vector<double> &&table) {
  int existing = findEdge(a, b);
  work += static_cast<int64_t>(table.size());
  if (existing < 0) {
    vars[a].edges.push_back(static_cast<int>(edges.size()));
    vars[b].edges.push_back(static_cast<int>(edges.size()));
    edges.push_back({a, b, std::move(table)});
    return;
  }
  CoreEdge &e = edges[existing];
  int ka = vars[a].size(), kb = vars[b].size();
  for (int s = 0; s < ka; ++s)
    for (int t = 0; t < kb; ++t) {
      double &sum = e.first == a ? e.table[s * kb + t] : e.table[t * ka + s];
      sum = std::min(infinite, sum + table[s * kb + t]);
    }
}

int Core::aliveVars() const {
  return static_cast<int>(
      std::count_if(vars.begin(), vars.end(), [](const CoreVar &v) { return v.alive; }));
}

int64_t Core::tableEntries() const {
  int64_t sum = 0;
  for (const CoreEdge &e : edges)
    sum += e.alive ? static_cast<int64_t>(e.table.size()) : 0;
  return sum;
}

Core Core::pack(std::vector<int> &ids) const {
  Core result;
  ids.clear();
  std::vector<int> renamed(vars.size(), -1), renamedEdge(edges.size(), -1);
  for (size_t v = 0; v < vars.size(); ++v)
    if (vars[v].alive) {
      renamed[v] = static_cast<int>(ids.size());
      ids.push_back(static_cast<int>(v));
    }
  for (size_t e = 0; e < edges.size(); ++e)
    if (edges[e].alive) {
      renamedEdge[e] = static_cast<int>(result.edges.size());
      result.edges.push_back(
          {renamed[edges[e].first], renamed[edges[e].second], edges[e].table});
    }
  result.vars.reserve(ids.size());
  for (int v : ids) {
    result.vars.push_back(vars[v]);
    for (int &e : result.vars.back().edges)
      e = renamedEdge[e];
  }
  result.constant = constant;
  result.slack = slack;
  result.lambda = lambda;
  result.noise = noise;
  return result;
}

std::vector<int> Core::expand(std::vector<int> choices) const {
  for (auto record = trail.rbegin(); record != trail.rend(); ++record) {
    int &choice = choices[record->var];
    switch (record->kind) {
    case TrailRecord::Renumbered:
      choice = static_cast<int>(record->map[choice]);
      break;
    case TrailRecord::Follows:
      choice =
          static_cast<int>(record->map[record->first < 0 ? 0 : choices[record->first]]);
      break;
    case TrailRecord::FollowsTwo:
      choice = static_cast<int>(
          record->map[choices[record->first] * record->stride + choices[record->second]]);
      break;
    }
  }
  return choices;
}

std::vector<int> Core::project(std::vector<int> choices, size_t from) const {
  for (size_t i = from; i < trail.size(); ++i) {
    const TrailRecord &record = trail[i];
    if (record.kind != TrailRecord::Renumbered)
      continue;
    int &choice = choices[record.var];
    auto at = std::lower_bound(record.map.begin(), record.map.end(),
                               static_cast<uint32_t>(choice));
    assert(at != record.map.end() && *at == static_cast<uint32_t>(choice));
    choice = static_cast<int>(at - record.map.begin());
  }
  return choices;
}

double Core::price(const std::vector<int> &choices) const {
  double sum = constant;
  for (size_t v = 0; v < vars.size(); ++v)
    if (vars[v].alive)
      sum += vars[v].cost[choices[v]];
  for (const CoreEdge &e : edges)
    if (e.alive)
      sum += e.table[choices[e.first] * vars[e.second].size() + choices[e.second]];
  return sum;
}

std::vector<Wide> Core::rowUse(const std::vector<int> &choices) const {
  std::vector<Wide> use(slack.size() + 1);
  for (size_t v = 0; v < vars.size(); ++v)
    if (vars[v].alive)
      for (const Member &m : vars[v].members) {
        use[m.begin] += m.bytes[choices[v]];
        use[m.end] -= m.bytes[choices[v]];
      }
  for (size_t r = 1; r < use.size(); ++r)
    use[r] += use[r - 1];
  use.pop_back();
  return use;
}

bool Core::fits(const std::vector<int> &choices) const {
  std::vector<Wide> use = rowUse(choices);
  for (size_t r = 0; r < use.size(); ++r)
    if (use[r] > slack[r])
      return false;
  return true;
}
