//===- Reduce.cpp - Loss-free reductions ----------------------------------===//
#include "Core.h"

#include <algorithm>

using namespace partita;
using namespace partita::solver;

/// Forbids choices of `var` that the edge supports with no choice of the other end.
/// False when none is left.
bool Core::reviseEdge(int edge, int var, bool &changed) {
  const CoreEdge &e = edges[edge];
  int o = other(edge, var), k = vars[var].size();
  bool any = false;
  size_t columns = vars[e.second].cost.size();
  const double *table = e.table.data();
  partners.clear();
  for (int t = 0; t < vars[o].size(); ++t)
    if (!isInfinite(vars[o].cost[t]))
      partners.push_back(t);
  for (int s = 0; s < k; ++s) {
    if (isInfinite(vars[var].cost[s]))
      continue;
    bool supported = false;
    for (size_t i = 0; i < partners.size() && !supported; ++i)
      supported = !isInfinite(e.first == var ? table[s * columns + partners[i]]
                                             : table[partners[i] * columns + s]);
    ++work;
    if (!supported) {
      forbid(var, s);
      changed = true;
    }
    any |= supported;
  }
  return any;
}

bool Core::propagate(std::vector<int> changed) {
  queued.resize(vars.size());
  for (int v : changed)
    queued[v] = true;
  bool left = true;
  for (size_t head = 0; head < changed.size(); ++head) {
    int v = changed[head];
    queued[v] = false;
    if (!vars[v].alive || !left)
      continue;
    for (int e : vars[v].edges) {
      int o = other(e, v);
      bool shrunk = false;
      left = reviseEdge(e, o, shrunk);
      if (!left)
        break;
      if (shrunk && !queued[o]) {
        queued[o] = true;
        changed.push_back(o);
      }
    }
  }
  return left;
}

bool Core::fix(int var, int choice) {
  for (int s = 0; s < vars[var].size(); ++s)
    if (s != choice && !isInfinite(vars[var].cost[s]))
      forbid(var, s);
  return !isInfinite(vars[var].cost[choice]) && propagate({var});
}

/// Brings the least of every member back to 0. False when a row overflows.
bool Core::normalizeMembers(int var) {
  std::vector<Member> &members = vars[var].members;
  for (Member &m : members) {
    int64_t least = *std::min_element(m.bytes.begin(), m.bytes.end());
    if (least != 0) {
      for (int64_t &b : m.bytes)
        b -= least;
      for (int r = m.begin; r < m.end; ++r) {
        slack[r] -= least;
        if (slack[r] < 0)
          return false;
      }
    }
  }
  std::erase_if(members, [](const Member &m) {
    return std::all_of(m.bytes.begin(), m.bytes.end(), [](int64_t b) { return b == 0; });
  });
  return true;
}

static void keepOnly(std::vector<double> &values, const std::vector<int> &keep) {
  if (values.empty())
    return;
  for (size_t i = 0; i < keep.size(); ++i)
    values[i] = values[keep[i]];
  values.resize(keep.size());
}

/// Removes forbidden choices physically. False when a variable has none left or a row
/// overflows.
bool Core::compact() {
  std::vector<std::vector<int>> keep(vars.size());
  bool any = false;
  for (size_t v = 0; v < vars.size(); ++v) {
    if (!vars[v].alive)
      continue;
    for (int s = 0; s < vars[v].size(); ++s)
      if (!isInfinite(vars[v].cost[s]))
        keep[v].push_back(s);
    if (keep[v].empty())
      return false;
    any |= static_cast<int>(keep[v].size()) < vars[v].size();
  }
  if (!any)
    return true;
  for (CoreEdge &e : edges) {
    if (!e.alive)
      continue;
    const auto &rows = keep[e.first], &columns = keep[e.second];
    size_t k = vars[e.first].cost.size(), l = vars[e.second].cost.size();
    if (rows.size() == k && columns.size() == l)
      continue;
    Memo::Key key{'c', e.table.id(), rows.size()};
    key.insert(key.end(), rows.begin(), rows.end());
    key.insert(key.end(), columns.begin(), columns.end());
    Table kept = remember(std::move(key), {e.table}, [&] {
                   std::vector<double> table;
                   table.reserve(rows.size() * columns.size());
                   for (int s : rows)
                     for (int t : columns)
                       table.push_back(e.table[s * l + t]);
                   work += static_cast<int64_t>(table.size());
                   return Memo::Result{Table(std::move(table)), {}};
                 }).table;
    e.table = std::move(kept);
    keepOnly(e.movedFirst, rows);
    keepOnly(e.movedSecond, columns);
  }
  for (size_t v = 0; v < vars.size(); ++v) {
    CoreVar &var = vars[v];
    if (!var.alive || keep[v].size() == var.cost.size())
      continue;
    TrailRecord record{TrailRecord::Renumbered, static_cast<int>(v), -1, -1, {}, 0};
    record.map.assign(keep[v].begin(), keep[v].end());
    trail.push_back(std::move(record));
    for (size_t i = 0; i < keep[v].size(); ++i) {
      var.cost[i] = var.cost[keep[v][i]];
      for (Member &m : var.members)
        m.bytes[i] = m.bytes[keep[v][i]];
    }
    var.cost.resize(keep[v].size());
    for (Member &m : var.members)
      m.bytes.resize(keep[v].size());
    if (!normalizeMembers(static_cast<int>(v)))
      return false;
  }
  return true;
}

/// Forbids choices that use more than a row has left even if all others take least.
bool Core::pruneMemory(std::vector<int> &changed) {
  if (slack.empty())
    return true;
  // least[j][r]: the least room in the 2^j rows from r.
  std::vector<std::vector<int64_t>> least{slack};
  for (size_t width = 2; width <= slack.size(); width *= 2) {
    const std::vector<int64_t> &half = least.back();
    std::vector<int64_t> next(slack.size() - width + 1);
    for (size_t r = 0; r < next.size(); ++r)
      next[r] = std::min(half[r], half[r + width / 2]);
    least.push_back(std::move(next));
  }
  for (size_t v = 0; v < vars.size(); ++v) {
    CoreVar &var = vars[v];
    bool shrunk = false;
    for (const Member &m : var.members) {
      int level = 31 - __builtin_clz(static_cast<unsigned>(m.end - m.begin));
      int64_t room = std::min(least[level][m.begin], least[level][m.end - (1 << level)]);
      for (int s = 0; s < var.size(); ++s)
        if (m.bytes[s] > room && !isInfinite(var.cost[s])) {
          var.cost[s] = infinite;
          shrunk = true;
        }
    }
    if (!shrunk)
      continue;
    changed.push_back(static_cast<int>(v));
    if (std::all_of(var.cost.begin(), var.cost.end(), isInfinite))
      return false;
  }
  return true;
}

void Core::absorb(int var) {
  constant += vars[var].cost[0];
  std::vector<int> incident = vars[var].edges;
  for (int e : incident) {
    int o = other(e, var);
    for (int t = 0; t < vars[o].size(); ++t)
      vars[o].cost[t] = std::min(infinite, vars[o].cost[t] + edges[e].table[t]);
    std::erase(vars[o].edges, e);
    edges[e].alive = false;
    edges[e].table.clear();
    edges[e].movedFirst = edges[e].movedSecond = {};
  }
  trail.push_back({TrailRecord::Follows, var, -1, -1, {0}, 0});
  vars[var].edges.clear();
  vars[var].members.clear();
  vars[var].alive = false;
}

/// Whether each choice of the other end leaves exactly one choice of `var`; then the map
/// holds it.
Memo::Result Core::findFunction(int edge, int var) const {
  const CoreEdge &e = edges[edge];
  int k = vars[var].size(), ko = vars[other(edge, var)].size();
  int columns = vars[e.second].size();
  const double *table = e.table.data();
  Memo::Result result;
  for (int t = 0; t < ko; ++t) {
    int found = -1;
    for (int s = 0; s < k; ++s) {
      double c = e.first == var ? table[s * columns + t] : table[t * columns + s];
      if (isInfinite(c))
        continue;
      if (found >= 0)
        return result;
      found = s;
    }
    if (found < 0)
      return result;
    result.map.push_back(static_cast<uint32_t>(found));
  }
  result.holds = true;
  return result;
}

bool Core::functionOf(int edge, int var, std::vector<uint32_t> &map) {
  const Table &table = edges[edge].table;
  // Most tables are seen not to be one within their first row.
  Memo::Key key{'f', table.id(), edges[edge].first == var};
  const Memo::Result &result =
      remember(std::move(key), {table}, [&] { return findFunction(edge, var); });
  if (result.holds)
    map = result.map;
  return result.holds;
}

/// Contracting a function of a larger variable repeats rows of its tables: only while
/// the tables do not grow much.
bool Core::worthContracting(int into, int var) const {
  int64_t k = vars[var].size(), ki = vars[into].size();
  if (k == ki)
    return true;
  int64_t saved = k * ki, growth = 0;
  for (int e : vars[var].edges) {
    int o = other(e, var);
    if (o == into)
      continue;
    if (findEdge(into, o) >= 0)
      saved += k * vars[o].size();
    else
      growth += (ki - k) * vars[o].size();
  }
  return growth <= saved + 256;
}

void Core::contract(int into, int var, int edge, std::vector<uint32_t> map) {
  CoreVar &target = vars[into];
  int ki = target.size();
  for (int s = 0; s < ki; ++s)
    target.cost[s] +=
        vars[var].cost[map[s]] + entry(edge, into, s, static_cast<int>(map[s]));
  for (const Member &m : vars[var].members) {
    Member moved{m.begin, m.end, {}};
    for (int s = 0; s < ki; ++s)
      moved.bytes.push_back(m.bytes[map[s]]);
    target.members.push_back(std::move(moved));
  }
  removeEdge(edge);
  std::vector<int> incident = vars[var].edges;
  for (int e : incident) {
    int o = other(e, var), ko = vars[o].size();
    const Table &from = edges[e].table;
    Memo::Key key{'m', from.id(), edges[e].first == var, static_cast<uint64_t>(ko)};
    key.insert(key.end(), map.begin(), map.end());
    Table moved = remember(std::move(key), {from}, [&] {
                    std::vector<double> table;
                    table.reserve(static_cast<size_t>(ki) * ko);
                    for (int s = 0; s < ki; ++s)
                      for (int t = 0; t < ko; ++t)
                        table.push_back(entry(e, var, static_cast<int>(map[s]), t));
                    return Memo::Result{Table(std::move(table)), {}};
                  }).table;
    removeEdge(e);
    addTable(into, o, moved);
  }
  trail.push_back({TrailRecord::Follows, var, into, -1, std::move(map), 0});
  vars[var].members.clear();
  vars[var].alive = false;
}

bool Core::mergeFunctional() {
  bool any = false;
  std::vector<uint32_t> map;
  for (size_t e = 0; e < edges.size() && !expired(); ++e) {
    if (!edges[e].alive)
      continue;
    int a = edges[e].first, b = edges[e].second;
    // Of two equivalent ends, the one with fewer edges moves.
    int ka = vars[a].size(), kb = vars[b].size();
    bool bFirst = ka != kb ? kb < ka : vars[b].edges.size() <= vars[a].edges.size();
    for (int i = 0; i < 2; ++i) {
      int var = (i == 0) == bFirst ? b : a, into = var == a ? b : a;
      if (!functionOf(static_cast<int>(e), var, map) || !worthContracting(into, var))
        continue;
      work += ka * kb;
      contract(into, var, static_cast<int>(e), std::move(map));
      any = true;
      break;
    }
  }
  return any;
}

/// The least over var's choices for each choice of its one or two neighbours, and which.
namespace {
struct Least {
  double cost;
  size_t at; ///< the first of equals; 0 where all are infinite
};
} // namespace

/// The least of a[i] + b[i]. Eight at a time first, which compilers do in registers, then
/// the place of what was found.
static Least leastSum(const double *a, const double *b, size_t count) {
  constexpr size_t width = 8;
  double least[width];
  std::fill(least, least + width, infinite);
  size_t i = 0;
  for (; i + width <= count; i += width)
    for (size_t l = 0; l < width; ++l) {
      double sum = a[i + l] + b[i + l];
      least[l] = sum < least[l] ? sum : least[l];
    }
  for (; i < count; ++i) {
    double sum = a[i] + b[i];
    least[0] = sum < least[0] ? sum : least[0];
  }
  double cost = *std::min_element(least, least + width);
  if (!(cost < infinite))
    return {infinite, 0};
  size_t at = 0;
  while (a[at] + b[at] != cost)
    ++at;
  return {cost, at};
}

Memo::Result Core::eliminationTable(int var, int ea, int eb) const {
  const CoreVar &v = vars[var];
  int k = v.size(), a = other(ea, var), ka = vars[a].size();
  bool two = eb >= 0;
  int b = two ? other(eb, var) : -1, kb = two ? vars[b].size() : 1;
  std::vector<double> table(static_cast<size_t>(ka) * kb);
  std::vector<uint32_t> map(table.size());
  std::vector<double> row(k), columns(static_cast<size_t>(kb) * k, 0);
  for (int t = 0; two && t < kb; ++t)
    for (int c = 0; c < k; ++c)
      columns[static_cast<size_t>(t) * k + c] = entry(eb, b, t, c);
  for (int s = 0; s < ka; ++s) {
    for (int c = 0; c < k; ++c)
      row[c] = v.cost[c] + entry(ea, a, s, c);
    for (int t = 0; t < kb; ++t) {
      size_t at = static_cast<size_t>(s) * kb + t;
      Least least = leastSum(row.data(), &columns[static_cast<size_t>(t) * k], k);
      table[at] = least.cost;
      map[at] = static_cast<uint32_t>(least.at);
    }
  }
  return {Table(std::move(table)), std::move(map)};
}

/// Removes a variable without memory and with at most two neighbours exactly.
bool Core::eliminateOne(int var) {
  CoreVar &v = vars[var];
  int k = v.size();
  if (v.edges.empty()) {
    auto best = std::min_element(v.cost.begin(), v.cost.end());
    constant += *best;
    trail.push_back({TrailRecord::Follows,
                     var,
                     -1,
                     -1,
                     {static_cast<uint32_t>(best - v.cost.begin())},
                     0});
    v.alive = false;
    return true;
  }
  int ea = v.edges[0], a = other(ea, var), ka = vars[a].size();
  bool two = v.edges.size() == 2;
  int eb = two ? v.edges[1] : -1, b = two ? other(eb, var) : -1;
  int kb = two ? vars[b].size() : 1;
  if (two && findEdge(a, b) < 0 && ka * kb > 2 * k * (ka + kb) + 64)
    return false;
  if (static_cast<int64_t>(ka) * kb * k > 20'000'000)
    return false;
  Memo::Key key{'e', edges[ea].table.id(), edges[ea].first == var};
  if (two) {
    key.push_back(edges[eb].table.id());
    key.push_back(edges[eb].first == var);
  }
  Memo::append(key, v.cost);
  std::vector<Table> inputs{edges[ea].table};
  if (two)
    inputs.push_back(edges[eb].table);
  Memo::Result result =
      remember(std::move(key), inputs, [&] { return eliminationTable(var, ea, eb); });
  work += static_cast<int64_t>(result.table.size()) * k;
  removeEdge(ea);
  if (two) {
    removeEdge(eb);
    addTable(a, b, result.table);
    trail.push_back({TrailRecord::FollowsTwo, var, a, b, std::move(result.map), kb});
  } else {
    for (int s = 0; s < ka; ++s)
      vars[a].cost[s] = std::min(infinite, vars[a].cost[s] + result.table[s]);
    trail.push_back({TrailRecord::Follows, var, a, -1, std::move(result.map), 0});
  }
  v.alive = false;
  return true;
}

bool Core::eliminate() {
  bool any = false;
  for (size_t v = 0; v < vars.size() && !expired(); ++v)
    if (vars[v].alive && vars[v].members.empty() && vars[v].edges.size() <= 2)
      any |= eliminateOne(static_cast<int>(v));
  return any;
}

bool Core::reduce(bool dominance) {
  Memo results;
  memo = repeats ? &results : nullptr;
  bool left = reduceAll(dominance);
  memo = nullptr;
  return left;
}

bool Core::reduceAll(bool dominance) {
  std::vector<int> changed;
  for (size_t v = 0; v < vars.size(); ++v)
    if (vars[v].alive)
      changed.push_back(static_cast<int>(v));
  for (;;) {
    if (!pruneMemory(changed) || !propagate(std::move(changed)) || !compact())
      return false;
    changed.clear();
    bool any = false;
    for (size_t v = 0; v < vars.size(); ++v)
      if (vars[v].alive && vars[v].size() == 1) {
        absorb(static_cast<int>(v));
        any = true;
      }
    any |= mergeFunctional();
    for (size_t v = 0; v < vars.size(); ++v)
      if (vars[v].alive && !normalizeMembers(static_cast<int>(v)))
        return false;
    compressRows();
    any |= eliminate();
    if (dominance && dominate()) {
      any = true;
      for (size_t v = 0; v < vars.size(); ++v)
        if (vars[v].alive &&
            std::any_of(vars[v].cost.begin(), vars[v].cost.end(), isInfinite))
          changed.push_back(static_cast<int>(v));
    }
    if (!any || expired())
      return true;
    for (size_t v = 0; v < vars.size(); ++v)
      if (vars[v].alive &&
          std::any_of(vars[v].cost.begin(), vars[v].cost.end(), isInfinite))
        changed.push_back(static_cast<int>(v));
    std::sort(changed.begin(), changed.end());
    changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
  }
}
