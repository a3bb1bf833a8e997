//===- Build.cpp - From a problem to its core -----------------------------===//
#include "Core.h"

#include <algorithm>
#include <map>
#include <span>
#include <unordered_map>

using namespace partita;
using namespace partita::solver;

namespace {
/// A usage table waiting to become a member of a core variable.
struct Pending {
  int var;
  const Usage *usage;
};

struct Builder {
  const Problem &problem;
  Root root;
  std::vector<Pending> pending;

  void addEdges();
  void addPairVariable(const Edge &edge);
  void addTies(const Ties &ties);
  void addMemory();
  Table table(const CostTable &costs);

  /// Tables that the problem shares are converted once.
  std::unordered_map<const void *, Table> converted;
};
} // namespace

static double toCost(int64_t cost) {
  return cost == forbidden ? infinite : static_cast<double>(cost);
}

static std::vector<double> toCosts(std::span<const int64_t> costs) {
  std::vector<double> result;
  result.reserve(costs.size());
  for (int64_t c : costs)
    result.push_back(toCost(c));
  return result;
}

Table Builder::table(const CostTable &costs) {
  Table &known = converted[costs.id()];
  if (known.size() != costs.size())
    known = Table(toCosts(costs));
  return known;
}

/// A pair that uses memory becomes a variable that says which pair is taken; both ends
/// are functions of it.
void Builder::addPairVariable(const Edge &edge) {
  Core &core = root.core;
  int pair = static_cast<int>(core.vars.size());
  CoreVar var;
  var.cost = toCosts(edge.costs);
  core.vars.push_back(std::move(var));
  int first = static_cast<int>(edge.first), second = static_cast<int>(edge.second);
  size_t ka = core.vars[first].cost.size(), kb = core.vars[second].cost.size();
  std::vector<double> toFirst(ka * kb * ka, infinite), toSecond(ka * kb * kb, infinite);
  for (size_t p = 0; p < ka * kb; ++p) {
    toFirst[p * ka + p / kb] = 0;
    toSecond[p * kb + p % kb] = 0;
  }
  core.addTable(pair, first, Table(std::move(toFirst)));
  core.addTable(pair, second, Table(std::move(toSecond)));
  for (const Usage &usage : edge.usages)
    pending.push_back({pair, &usage});
}

static bool usesMemory(const std::vector<Usage> &usages) {
  for (const Usage &usage : usages)
    if (usage.begin < usage.end &&
        std::any_of(
            usage.bytes.begin(), usage.bytes.end(), [](int64_t b) { return b != 0; }))
      return true;
  return false;
}

void Builder::addEdges() {
  // Parallel edges are found by sorting, not by looking through a hub's neighbours.
  std::map<std::pair<uint32_t, uint32_t>, int> known;
  Core &core = root.core;
  for (const Edge &edge : problem.edges) {
    if (problem.memoryLimit && usesMemory(edge.usages)) {
      addPairVariable(edge);
      continue;
    }
    auto key = std::minmax(edge.first, edge.second);
    auto [it, isNew] = known.emplace(key, static_cast<int>(core.edges.size()));
    int a = static_cast<int>(edge.first), b = static_cast<int>(edge.second);
    if (!isNew) {
      core.addTable(a, b, table(edge.costs));
      continue;
    }
    core.vars[a].edges.push_back(it->second);
    core.vars[b].edges.push_back(it->second);
    core.edges.push_back({a, b, table(edge.costs)});
  }
}

/// Equal variables are joined by tables that reductions contract.
void Builder::addTies(const Ties &ties) {
  std::map<size_t, Table> tables;
  for (auto [a, b] : ties) {
    size_t k = root.core.vars[a].cost.size();
    Table &table = tables[k];
    if (table.size() == 0) {
      std::vector<double> equal(k * k, infinite);
      for (size_t s = 0; s < k; ++s)
        equal[s * k + s] = 0;
      table = Table(std::move(equal));
    }
    root.core.addTable(static_cast<int>(a), static_cast<int>(b), table);
  }
}

/// Turns time steps into rows: one per stretch between two interval ends, with what every
/// choice needs at least taken off the limit.
void Builder::addMemory() {
  Core &core = root.core;
  std::vector<int64_t> times;
  for (const Pending &p : pending)
    if (p.usage->begin < p.usage->end) {
      times.push_back(p.usage->begin);
      times.push_back(p.usage->end);
    }
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  std::vector<Wide> least(times.size() + 1);
  auto row = [&](int64_t time) {
    return static_cast<int>(std::lower_bound(times.begin(), times.end(), time) -
                            times.begin());
  };
  for (const Pending &p : pending) {
    const Usage &usage = *p.usage;
    if (usage.begin >= usage.end)
      continue;
    int64_t low = *std::min_element(usage.bytes.begin(), usage.bytes.end());
    Member member{
        row(usage.begin), row(usage.end), {usage.bytes.begin(), usage.bytes.end()}};
    least[member.begin] += low;
    least[member.end] -= low;
    for (int64_t &b : member.bytes)
      b -= low;
    if (std::any_of(member.bytes.begin(), member.bytes.end(),
                    [](int64_t b) { return b != 0; }))
      core.vars[p.var].members.push_back(std::move(member));
  }
  Wide now = 0, most = -1;
  size_t worst = 0;
  for (size_t r = 0; r < times.size(); ++r) {
    now += least[r];
    if (now > most) {
      most = now;
      worst = r;
    }
    core.slack.push_back(
        static_cast<int64_t>(std::max<Wide>(*problem.memoryLimit - now, -1)));
  }
  core.lambda.assign(core.slack.size(), 0);
  for (size_t r = 0; r < core.slack.size(); ++r)
    core.origin.push_back({static_cast<int>(r)});
  if (!times.empty() && most > *problem.memoryLimit)
    root.infeasible = "at time step " + std::to_string(times[worst]) +
                      " every answer needs at least " + toString(most) +
                      " bytes, the limit is " + std::to_string(*problem.memoryLimit);
}

Root solver::buildCore(const Problem &problem, const Ties &ties) {
  Builder builder{problem, {}, {}, {}};
  Core &core = builder.root.core;
  core.vars.resize(problem.variables.size());
  for (size_t v = 0; v < problem.variables.size(); ++v) {
    core.vars[v].cost = toCosts(problem.variables[v].costs);
    if (problem.memoryLimit)
      for (const Usage &usage : problem.variables[v].usages)
        builder.pending.push_back({static_cast<int>(v), &usage});
  }
  builder.addEdges();
  builder.addTies(ties);
  if (problem.memoryLimit)
    builder.addMemory();
  core.repeats = builder.converted.size() < 0.8 * static_cast<double>(core.edges.size());
  return std::move(builder.root);
}
