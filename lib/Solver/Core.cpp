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
  e.table.clear();
  e.movedFirst = e.movedSecond = {};
}

void Core::removeVar(int var) {
  while (!vars[var].edges.empty())
    removeEdge(vars[var].edges.back());
  vars[var].members.clear();
  vars[var].alive = false;
}

/// x + y over (rows, columns); y is stored by columns where `turned`.
static std::vector<double> sumOf(const Table &x, const Table &y, bool turned, size_t rows,
                                 size_t columns) {
  std::vector<double> sum(x.begin(), x.end());
  for (size_t s = 0; s < rows; ++s)
    for (size_t t = 0; t < columns; ++t) {
      double &c = sum[s * columns + t];
      c = std::min(infinite, c + y[turned ? t * rows + s : s * columns + t]);
    }
  return sum;
}

void Core::addTable(int a, int b, const Table &table) {
  int existing = findEdge(a, b);
  work += static_cast<int64_t>(table.size());
  if (existing < 0) {
    vars[a].edges.push_back(static_cast<int>(edges.size()));
    vars[b].edges.push_back(static_cast<int>(edges.size()));
    edges.push_back({a, b, table});
    return;
  }
  CoreEdge &e = edges[existing];
  size_t rows = vars[e.first].cost.size(), columns = vars[e.second].cost.size();
  bool turned = e.first != a;
  Memo::Key key{'+', e.table.id(), table.id(), turned, rows};
  Table sum =
      remember(std::move(key), {e.table, table}, [&] {
        return Memo::Result{Table(sumOf(e.table, table, turned, rows, columns)), {}};
      }).table;
  e.table = std::move(sum);
  e.movedFirst = e.movedSecond = {};
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
      result.edges.push_back(edges[e]);
      result.edges.back().first = renamed[edges[e].first];
      result.edges.back().second = renamed[edges[e].second];
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
  result.limit = limit;
  result.repeats = repeats;
  return result;
}

std::vector<int> Core::expand(std::vector<int> choices) const {
  for (auto record = trail.rbegin(); record != trail.rend(); ++record) {
    int &choice = choices[record->var];
    switch (record->kind) {
    case TrailRecord::Renumbered:
      choice = static_cast<int>(record->choices()[choice]);
      break;
    case TrailRecord::Replaced:
      break;
    case TrailRecord::Follows:
      choice = static_cast<int>(
          record->choices()[record->first < 0 ? 0 : choices[record->first]]);
      break;
    case TrailRecord::FollowsTwo:
      choice =
          static_cast<int>(record->choices()[choices[record->first] * record->stride +
                                             choices[record->second]]);
      break;
    }
  }
  return choices;
}

std::vector<int> Core::project(std::vector<int> choices, size_t from) const {
  auto projected = projectIfLeft(std::move(choices), from);
  assert(projected);
  return *std::move(projected);
}

std::optional<std::vector<int>> Core::projectIfLeft(std::vector<int> choices,
                                                    size_t from) const {
  for (size_t i = from; i < trail.size(); ++i) {
    const TrailRecord &record = trail[i];
    int &choice = choices[record.var];
    if (record.kind == TrailRecord::Replaced)
      for (size_t j = 0; j < record.map.size(); j += 2)
        if (static_cast<int>(record.map[j]) == choice)
          choice = static_cast<int>(record.map[j + 1]);
    if (record.kind != TrailRecord::Renumbered)
      continue;
    auto at = std::lower_bound(record.map.begin(), record.map.end(),
                               static_cast<uint32_t>(choice));
    if (at == record.map.end() || *at != static_cast<uint32_t>(choice))
      return std::nullopt;
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
