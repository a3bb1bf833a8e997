//===- Build.cpp - From a problem to its core -----------------------------===//
#include "Core.h"

#include <algorithm>
#include <deque>
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

  /// What the variables of pairs need of them.
  std::deque<Usage> ofPairs = {};

  void addEdges();
  void addCosts(const Edge &edge);
  void addPairVariable(const Edge &edge);
  void addTies(const Ties &ties);
  void addMemory();
  Table table(const CostTable &costs);

  /// Tables that the problem shares are converted once.
  std::unordered_map<const void *, Table> converted = {};
  /// The core's edges by their ends. Parallel edges are found by looking here, not
  /// through a hub's neighbours.
  std::map<std::pair<uint32_t, uint32_t>, int> edges = {};
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

namespace {
/// The choices of both ends of an edge in classes: those of one class have equal entries
/// in some tables.
struct PairClasses {
  PairClasses(size_t rows, size_t columns, const std::vector<const CostTable *> &tables)
      : rowOf(classesOf(rows, columns, columns, 1, tables)),
        columnOf(classesOf(columns, rows, 1, columns, tables)) {}

  /// The first of every class.
  static std::vector<size_t> firstOf(const std::vector<size_t> &classes) {
    std::vector<size_t> first;
    for (size_t i = 0; i < classes.size(); ++i)
      if (classes[i] == first.size())
        first.push_back(i);
    return first;
  }
  size_t pairs() const {
    return (std::ranges::max(rowOf) + 1) * (std::ranges::max(columnOf) + 1);
  }
  std::vector<size_t> rowOf, columnOf;

private:
  static std::vector<size_t> classesOf(size_t count, size_t others, size_t step,
                                       size_t otherStep,
                                       const std::vector<const CostTable *> &tables) {
    std::map<std::vector<int64_t>, size_t> known;
    std::vector<size_t> classes;
    for (size_t i = 0; i < count; ++i) {
      std::vector<int64_t> key;
      for (const CostTable *table : tables)
        for (size_t j = 0; j < others; ++j)
          key.push_back((*table)[i * step + j * otherStep]);
      classes.push_back(known.try_emplace(std::move(key), known.size()).first->second);
    }
    return classes;
  }
};
} // namespace

/// Beyond so many pairs of classes costs are no part of the variable.
static constexpr size_t mostPairs = 4096;

/// Says that a variable's choice follows from that of a pair.
static Table functionOf(size_t pairs, const std::vector<size_t> &classes, size_t divisor,
                        size_t modulus) {
  std::vector<double> allowed(pairs * classes.size(), infinite);
  for (size_t pair = 0; pair < pairs; ++pair)
    for (size_t choice = 0; choice < classes.size(); ++choice)
      if (pair / divisor % modulus == classes[choice])
        allowed[pair * classes.size() + choice] = 0;
  return Table(std::move(allowed));
}

/// A pair that uses memory becomes a variable that says which pair is taken. Choices of
/// an end with equal costs and bytes are one there: bytes know few forms.
void Builder::addPairVariable(const Edge &edge) {
  Core &core = root.core;
  int first = static_cast<int>(edge.first), second = static_cast<int>(edge.second);
  const size_t ka = core.vars[first].cost.size(), kb = core.vars[second].cost.size();
  std::vector<const CostTable *> tables;
  for (const Usage &usage : edge.usages)
    tables.push_back(&usage.bytes);
  PairClasses classes(ka, kb, tables);
  tables.push_back(&edge.costs);
  PairClasses withCosts(ka, kb, tables);
  const bool hasCosts = withCosts.pairs() <= mostPairs;
  if (hasCosts)
    classes = std::move(withCosts);
  else
    addCosts(edge);
  std::vector<size_t> rows = PairClasses::firstOf(classes.rowOf),
                      columns = PairClasses::firstOf(classes.columnOf);
  auto compressed = [&](const CostTable &table) {
    std::vector<int64_t> entries;
    for (size_t row : rows)
      for (size_t column : columns)
        entries.push_back(table[row * kb + column]);
    return entries;
  };
  const size_t pairs = rows.size() * columns.size();
  int pair = static_cast<int>(core.vars.size());
  CoreVar var;
  var.cost = hasCosts ? toCosts(compressed(edge.costs)) : std::vector<double>(pairs, 0);
  core.vars.push_back(std::move(var));
  core.addTable(pair, first,
                functionOf(pairs, classes.rowOf, columns.size(), rows.size()));
  core.addTable(pair, second, functionOf(pairs, classes.columnOf, 1, columns.size()));
  for (const Usage &usage : edge.usages) {
    ofPairs.push_back({usage.begin, usage.end, compressed(usage.bytes)});
    pending.push_back({pair, &ofPairs.back()});
  }
  root.pairs.push_back({edge.first, edge.second, std::move(classes.rowOf),
                        std::move(classes.columnOf), columns.size()});
}

std::vector<int> Root::complete(const std::vector<uint32_t> &choices) const {
  std::vector<int> all(choices.begin(), choices.end());
  for (const Pair &pair : pairs)
    all.push_back(static_cast<int>(pair.columns * pair.rowOf[choices[pair.first]] +
                                   pair.columnOf[choices[pair.second]]));
  return all;
}

static bool usesMemory(const std::vector<Usage> &usages) {
  for (const Usage &usage : usages)
    if (usage.begin < usage.end &&
        std::any_of(
            usage.bytes.begin(), usage.bytes.end(), [](int64_t b) { return b != 0; }))
      return true;
  return false;
}

void Builder::addCosts(const Edge &edge) {
  Core &core = root.core;
  auto [it, isNew] = edges.emplace(std::minmax(edge.first, edge.second),
                                   static_cast<int>(core.edges.size()));
  int a = static_cast<int>(edge.first), b = static_cast<int>(edge.second);
  if (!isNew)
    return core.addTable(a, b, table(edge.costs));
  core.vars[a].edges.push_back(it->second);
  core.vars[b].edges.push_back(it->second);
  core.edges.push_back({a, b, table(edge.costs)});
}

void Builder::addEdges() {
  for (const Edge &edge : problem.edges)
    if (problem.memoryLimit && usesMemory(edge.usages))
      addPairVariable(edge);
    else
      addCosts(edge);
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
  Builder builder{problem, {}, {}};
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
