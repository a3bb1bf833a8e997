//===- Blocks.cpp - Solving repeated parts once ---------------------------===//
#include "Blocks.h"

#include "Search.h"

#include <algorithm>
#include <map>

using namespace partita;
using namespace partita::solver;

namespace {
/// Variables and rows as one graph: a variable is joined to its neighbours and to the
/// rows in which its choices differ. Node v < variables is a variable, others are rows.
struct Incidence {
  size_t variables, nodes;
  std::vector<int> start, to;
  explicit Incidence(const Core &core);
};

/// A part that hangs together when any one node is taken out, with the nodes that it
/// shares with other parts.
struct Part {
  std::vector<int> vars, rows;
  std::vector<int> seams;
  bool closed = true;
};

/// Finds the parts by depth-first search.
class PartFinder {
public:
  explicit PartFinder(const Incidence &graph)
      : graph(graph), order(graph.nodes, -1), low(graph.nodes), uses(graph.nodes) {}
  std::vector<Part> find(const Core &core);

private:
  void visit(int root);
  void close(int child, int parent);

  const Incidence &graph;
  std::vector<int> order, low, uses;
  std::vector<int> open;
  std::vector<std::vector<int>> found;
  int time = 0;
};
} // namespace

/// More memberships than this are not one of the chains that are looked for.
static constexpr int64_t mostIncidences = 20'000'000;

static int64_t countIncidences(const Core &core) {
  int64_t count = 0;
  for (const CoreVar &v : core.vars)
    if (v.alive) {
      count += static_cast<int64_t>(v.edges.size());
      for (const Member &m : v.members)
        count += 2 * (m.end - m.begin);
    }
  return count;
}

Incidence::Incidence(const Core &core)
    : variables(core.vars.size()), nodes(variables + core.slack.size()),
      start(nodes + 1) {
  auto forEach = [&](auto join) {
    for (size_t v = 0; v < variables; ++v) {
      if (!core.vars[v].alive)
        continue;
      for (int e : core.vars[v].edges)
        join(v, static_cast<size_t>(core.other(e, static_cast<int>(v))));
      for (const Member &m : core.vars[v].members)
        for (int r = m.begin; r < m.end; ++r) {
          join(v, variables + r);
          join(variables + r, v);
        }
    }
  };
  forEach([&](size_t from, size_t) { ++start[from + 1]; });
  for (size_t n = 0; n < nodes; ++n)
    start[n + 1] += start[n];
  to.resize(start[nodes]);
  std::vector<int> next(start.begin(), start.end() - 1);
  forEach([&](size_t from, size_t node) { to[next[from]++] = static_cast<int>(node); });
}

/// All that is open above the child is one part with the parent.
void PartFinder::close(int child, int parent) {
  std::vector<int> part{parent};
  for (;;) {
    part.push_back(open.back());
    open.pop_back();
    if (part.back() == child)
      break;
  }
  for (int n : part)
    ++uses[n];
  found.push_back(std::move(part));
}

void PartFinder::visit(int root) {
  struct Frame {
    int node, parent, next;
  };
  std::vector<Frame> stack{{root, -1, graph.start[root]}};
  order[root] = low[root] = time++;
  open.push_back(root);
  while (!stack.empty()) {
    Frame &f = stack.back();
    if (f.next < graph.start[f.node + 1]) {
      int n = graph.to[f.next++];
      if (n == f.parent)
        continue;
      if (order[n] >= 0) {
        low[f.node] = std::min(low[f.node], order[n]);
        continue;
      }
      order[n] = low[n] = time++;
      open.push_back(n);
      stack.push_back({n, f.node, graph.start[n]});
      continue;
    }
    Frame done = f;
    stack.pop_back();
    if (stack.empty())
      break;
    Frame &above = stack.back();
    low[above.node] = std::min(low[above.node], low[done.node]);
    if (low[done.node] >= order[above.node])
      close(done.node, above.node);
  }
  open.clear();
}

std::vector<Part> PartFinder::find(const Core &core) {
  for (size_t v = 0; v < graph.variables; ++v)
    if (core.vars[v].alive && order[v] < 0)
      visit(static_cast<int>(v));
  std::vector<Part> parts;
  for (std::vector<int> &nodes : found) {
    Part &part = parts.emplace_back();
    std::sort(nodes.begin(), nodes.end());
    for (int n : nodes) {
      bool isRow = static_cast<size_t>(n) >= graph.variables;
      if (uses[n] > 1) {
        part.closed &= !isRow;
        part.seams.push_back(n);
      }
      if (isRow)
        part.rows.push_back(n - static_cast<int>(graph.variables));
      else
        part.vars.push_back(n);
    }
    part.closed &= part.seams.size() <= 2 && part.vars.size() > part.seams.size();
  }
  return parts;
}

namespace {
/// One kind of part as a core of its own, and what came of solving it.
class Kind {
public:
  Kind(const Core &core, const Part &part);
  /// All that distinguishes kinds. Seams bring only their bytes: their costs stay.
  Memo::Key key() const;
  bool solve(Budget &budget);
  void apply(Core &core, const Part &part) const;
  Table result() const { return Table(table); }

private:
  size_t local(const Part &part, int var) const {
    return std::lower_bound(part.vars.begin(), part.vars.end(), var) - part.vars.begin();
  }
  Core sub;
  std::vector<int> seams;
  int rows = 1, columns = 1;
  std::vector<double> table;
  std::vector<std::shared_ptr<const std::vector<uint32_t>>> maps;
};
} // namespace

Kind::Kind(const Core &core, const Part &part) {
  auto rank = [&](int row) {
    return static_cast<int>(std::lower_bound(part.rows.begin(), part.rows.end(), row) -
                            part.rows.begin());
  };
  for (int v : part.vars) {
    CoreVar &var = sub.vars.emplace_back();
    var.cost = core.vars[v].cost;
    for (const Member &m : core.vars[v].members)
      if (rank(m.begin) < rank(m.end))
        var.members.push_back({rank(m.begin), rank(m.end), m.bytes});
  }
  for (int v : part.seams) {
    seams.push_back(static_cast<int>(local(part, v)));
    for (double &c : sub.vars[seams.back()].cost)
      c = isInfinite(c) ? infinite : 0;
  }
  for (size_t i = 0; i < part.vars.size(); ++i)
    for (int e : core.vars[part.vars[i]].edges) {
      const CoreEdge &edge = core.edges[e];
      size_t j = local(part, edge.second);
      if (edge.first != part.vars[i] || j == part.vars.size() ||
          part.vars[j] != edge.second)
        continue;
      sub.vars[i].edges.push_back(static_cast<int>(sub.edges.size()));
      sub.vars[j].edges.push_back(static_cast<int>(sub.edges.size()));
      sub.edges.push_back({static_cast<int>(i), static_cast<int>(j), edge.table});
    }
  for (int r : part.rows)
    sub.slack.push_back(core.slack[r]);
  sub.lambda.assign(sub.slack.size(), 0);
}

Memo::Key Kind::key() const {
  Memo::Key key{sub.vars.size(), seams.size(), sub.slack.size()};
  key.insert(key.end(), seams.begin(), seams.end());
  for (const CoreVar &v : sub.vars) {
    Memo::append(key, v.cost);
    key.push_back(v.members.size());
    for (const Member &m : v.members) {
      key.push_back(static_cast<uint64_t>(m.begin));
      key.push_back(static_cast<uint64_t>(m.end));
      key.insert(key.end(), m.bytes.begin(), m.bytes.end());
    }
  }
  key.insert(key.end(), sub.slack.begin(), sub.slack.end());
  for (const CoreEdge &e : sub.edges) {
    key.push_back(static_cast<uint64_t>(e.first) << 32 | static_cast<uint64_t>(e.second));
    key.push_back(e.table.id());
  }
  return key;
}

/// Work for one pair of choices, and tables of more pairs than this are left alone: then
/// the part is not the small thing that this is meant for.
static constexpr int64_t mostWorkPerPair = 200'000'000;
static constexpr int mostPairs = 4096;

bool Kind::solve(Budget &budget) {
  rows = seams.empty() ? 1 : sub.vars[seams[0]].size();
  columns = seams.size() < 2 ? 1 : sub.vars[seams[1]].size();
  if (rows * columns > mostPairs)
    return false;
  table.assign(static_cast<size_t>(rows) * columns, infinite);
  std::vector<std::vector<uint32_t>> choices(sub.vars.size(),
                                             std::vector<uint32_t>(table.size()));
  for (int s = 0; s < rows; ++s)
    for (int t = 0; t < columns; ++t) {
      Core core = sub;
      if ((!seams.empty() && !core.fix(seams[0], s)) ||
          (seams.size() == 2 && !core.fix(seams[1], t)))
        continue;
      Budget part = budget.part(mostWorkPerPair);
      core.limit = &part;
      Search search(part, Cut());
      Search::Result result = search.solve(std::move(core));
      budget.work = part.work;
      if (!isInfinite(result.open))
        return false;
      if (!result.choices)
        continue;
      table[s * columns + t] = search.upper();
      for (size_t v = 0; v < sub.vars.size(); ++v)
        choices[v][s * columns + t] = static_cast<uint32_t>((*result.choices)[v]);
    }
  for (auto &map : choices)
    maps.push_back(std::make_shared<const std::vector<uint32_t>>(std::move(map)));
  return true;
}

void Kind::apply(Core &core, const Part &part) const {
  int a = part.seams.empty() ? -1 : part.seams[0];
  int b = part.seams.size() < 2 ? -1 : part.seams[1];
  for (size_t i = 0; i < part.vars.size(); ++i) {
    int v = part.vars[i];
    if (v == a || v == b)
      continue;
    TrailRecord record{
        b < 0 ? TrailRecord::Follows : TrailRecord::FollowsTwo, v, a, b, {}, columns};
    record.shared = maps[i];
    core.trail.push_back(std::move(record));
    core.removeVar(v);
  }
  if (a < 0) {
    core.constant += table[0];
    return;
  }
  if (b < 0) {
    for (int s = 0; s < rows; ++s)
      core.vars[a].cost[s] = std::min(infinite, core.vars[a].cost[s] + table[s]);
    return;
  }
  // An edge between the seams is in the table already.
  if (int e = core.findEdge(a, b); e >= 0)
    core.removeEdge(e);
}

void solver::foldBlocks(Core &core, Budget &budget) {
  if (!core.repeats || countIncidences(core) > mostIncidences)
    return;
  Incidence graph(core);
  std::vector<Part> parts = PartFinder(graph).find(core);
  std::map<Memo::Key, std::vector<size_t>> kinds;
  for (size_t p = 0; p < parts.size(); ++p)
    if (parts[p].closed)
      kinds[Kind(core, parts[p]).key()].push_back(p);
  std::vector<bool> dropped(core.slack.size());
  auto fold = [&](const std::vector<size_t> &same) {
    Kind kind(core, parts[same.front()]);
    if (!kind.solve(budget))
      return false;
    Table table = kind.result();
    for (size_t p : same) {
      const Part &part = parts[p];
      kind.apply(core, part);
      if (part.seams.size() == 2)
        core.addTable(part.seams[0], part.seams[1], table);
      for (int r : part.rows)
        dropped[r] = true;
    }
    return true;
  };
  bool any = false;
  for (const auto &[key, same] : kinds)
    if (same.size() > 1)
      any |= fold(same);
  // Once the middle of a chain is a table, so should be its ends.
  for (const auto &[key, same] : kinds)
    if (any && same.size() == 1)
      fold(same);
  core.dropRows(dropped);
}
