//===- SplitBound.cpp - Bounds by elimination with split variables --------===//
#include "SplitBound.h"

#include "Minima.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>

using namespace partita;
using namespace partita::solver;

/// What bags pass on has this many entries at most: half a GiB.
static constexpr double mostPassedOn = 60'000'000;

/// What steps keep of the direction before.
static constexpr double momentum = 0.6;

static double product(const Core &core, const std::vector<int> &scope) {
  double result = 1;
  for (int v : scope)
    result *= core.vars[v].size();
  return result;
}

SplitBound::SplitBound(const Core &core, double mostEntries, int threads)
    : core(core), threads(static_cast<size_t>(threads)) {
  order(mostEntries);
  double passedOn = 0;
  for (const Bag &bag : bags)
    passedOn += product(core, bag.scope) / core.vars[bag.var].size();
  isSmall = passedOn <= mostPassedOn;
  if (!isSmall)
    return;
  link();
  constant = core.constant;
  for (Bag &bag : bags) {
    bag.cost = core.vars[bag.var].cost;
    const Group &group = groups[bag.group];
    for (double &c : bag.cost)
      if (!isInfinite(c))
        c /= static_cast<double>(group.size());
  }
  prices.resize(core.lambda.size());
  priceRows(core.lambda);
  choice.resize(bags.size());
}

static void addTables(const std::vector<const double *> &tables,
                      std::vector<double> &sums) {
  if (tables.size() < 2) {
    if (tables.empty())
      std::fill(sums.begin(), sums.end(), 0);
    else
      std::copy_n(tables[0], sums.size(), sums.begin());
    return;
  }
  for (size_t i = 0; i < sums.size(); ++i)
    sums[i] = tables[0][i] + tables[1][i];
  for (size_t t = 2; t < tables.size(); ++t)
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i] += tables[t][i];
}

static std::vector<int> united(const std::vector<int> &a, const std::vector<int> &b) {
  std::vector<int> all;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
  return all;
}

/// Eliminates the variable with the smallest table first.
void SplitBound::order(double mostEntries) {
  size_t count = core.vars.size();
  std::vector<Function> functions;
  std::vector<std::vector<int>> of(count); // functions of each variable
  std::vector<double> weight(count);
  std::set<std::pair<double, int>> queue;
  auto addFunction = [&](Function f) {
    for (int v : f.scope)
      of[v].push_back(static_cast<int>(functions.size()));
    functions.push_back(std::move(f));
  };
  auto joined = [&](int v) {
    std::vector<int> all{v};
    for (int f : of[v])
      all = united(all, functions[f].scope);
    return all;
  };
  for (size_t e = 0; e < core.edges.size(); ++e)
    if (const CoreEdge &edge = core.edges[e]; edge.alive)
      addFunction({{std::min(edge.first, edge.second), std::max(edge.first, edge.second)},
                   static_cast<int>(e),
                   -1,
                   -1});
  for (Function &f : rowFunctions(mostEntries))
    addFunction(std::move(f));
  for (size_t v = 0; v < count; ++v)
    if (core.vars[v].alive)
      queue.emplace(weight[v] = product(core, joined(static_cast<int>(v))),
                    static_cast<int>(v));
  while (!queue.empty()) {
    int var = queue.begin()->second;
    queue.erase(queue.begin());
    std::vector<int> neighbours = joined(var);
    std::vector<Function> mine;
    std::vector<int> used = of[var];
    for (int f : used) {
      for (int o : functions[f].scope)
        std::erase(of[o], f);
      mine.push_back(std::move(functions[f]));
    }
    size_t from = bags.size();
    eliminate(var, mine, mostEntries);
    for (Function &f : mine)
      if (f.row >= 0 && !f.scope.empty())
        addFunction(std::move(f));
    for (size_t b = from; b < bags.size(); ++b) {
      std::vector<int> rest = bags[b].scope;
      std::erase(rest, var);
      if (!rest.empty())
        addFunction({std::move(rest), -1, static_cast<int>(b), -1});
    }
    for (int o : neighbours)
      if (o != var) {
        queue.erase({weight[o], o});
        queue.emplace(weight[o] = product(core, joined(o)), o);
      }
  }
}

/// The rows whose variables have no more pairs of choices, triples and so on than this.
std::vector<SplitBound::Function> SplitBound::rowFunctions(double mostEntries) const {
  std::vector<std::vector<int>> scopes(core.slack.size());
  std::vector<double> entries(core.slack.size(), 1);
  for (size_t i = 0; i < core.vars.size(); ++i) {
    const int v = static_cast<int>(i);
    if (!core.vars[v].alive)
      continue;
    for (const Member &m : core.vars[v].members)
      for (int r = m.begin; r < m.end; ++r)
        if (entries[r] <= mostEntries && (scopes[r].empty() || scopes[r].back() != v)) {
          scopes[r].push_back(v);
          entries[r] *= core.vars[v].size();
        }
  }
  std::vector<Function> result;
  for (size_t r = 0; r < scopes.size(); ++r)
    if (!scopes[r].empty() && entries[r] <= mostEntries)
      result.push_back({std::move(scopes[r]), -1, -1, static_cast<int>(r)});
  return result;
}

/// Puts rows into the bags from `from` on, each where it takes the least. Where none has
/// room, the variable is taken to use its least, and the row stays for the others.
void SplitBound::placeRows(int var, size_t from, std::vector<Function> &functions,
                           double mostEntries) {
  for (Function &f : functions) {
    if (f.row < 0)
      continue;
    size_t at = bags.size();
    double least = mostEntries;
    for (size_t b = from; b < bags.size(); ++b)
      if (double all = product(core, united(bags[b].scope, f.scope)); all <= least) {
        least = all;
        at = b;
      }
    if (at == bags.size()) {
      std::erase(f.scope, var);
      continue;
    }
    bags[at].scope = united(bags[at].scope, f.scope);
    made[at].push_back({std::move(f.scope), -1, -1, f.row});
    f.row = -1;
  }
}

/// The margin keeps what is too much by rounding alone.
SplitBound::Limit SplitBound::limitOf(const Function &f, const Bag &bag) const {
  const double room = static_cast<double>(core.slack[f.row]);
  Limit limit{room + 1e-9 * std::abs(room), 0, {}};
  for (size_t d = 0; d < bag.scope.size(); ++d) {
    std::vector<double> &bytes = limit.bytes.emplace_back();
    if (!std::binary_search(f.scope.begin(), f.scope.end(), bag.scope[d]))
      continue;
    const CoreVar &var = core.vars[bag.scope[d]];
    bytes.resize(var.cost.size());
    for (const Member &m : var.members)
      if (m.begin <= f.row && f.row < m.end)
        for (size_t s = 0; s < bytes.size(); ++s)
          bytes[s] += static_cast<double>(m.bytes[s]);
    if (d + 2 >= bag.scope.size())
      limit.mostOfBlock += *std::max_element(bytes.begin(), bytes.end());
  }
  return limit;
}

/// Makes the bags of a variable: one, or as many as small tables need.
void SplitBound::eliminate(int var, std::vector<Function> &functions,
                           double mostEntries) {
  std::sort(functions.begin(), functions.end(),
            [&](const Function &a, const Function &b) {
              return product(core, a.scope) > product(core, b.scope);
            });
  size_t from = bags.size();
  for (Function &f : functions) {
    if (f.row >= 0)
      continue;
    size_t b = from;
    for (; b < bags.size(); ++b)
      if (std::vector<int> all = united(bags[b].scope, f.scope);
          product(core, all) <= mostEntries) {
        bags[b].scope = std::move(all);
        break;
      }
    if (b == bags.size()) {
      bags.emplace_back(var, static_cast<int>(groups.size()), f.scope);
      made.emplace_back();
    }
    made[b].push_back(std::move(f));
  }
  if (bags.size() == from) {
    bags.emplace_back(var, static_cast<int>(groups.size()), std::vector<int>{var});
    made.emplace_back();
  }
  placeRows(var, from, functions, mostEntries);
  groups.push_back({from, bags.size()});
}

/// The table of an edge with its second variable's choices as rows.
static std::vector<double> turnedRound(const CoreEdge &edge, const Core &core) {
  size_t n = core.vars[edge.first].cost.size(), m = core.vars[edge.second].cost.size();
  std::vector<double> result(n * m);
  const double *table = edge.table.data();
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < m; ++j)
      result[j * n + i] = table[i * m + j];
  return result;
}

/// Lays scopes out so that what a bag passes on ends with the variable that takes it in.
void SplitBound::link() {
  std::vector<size_t> place(core.vars.size());
  for (size_t g = 0; g < groups.size(); ++g)
    place[bags[groups[g].begin].var] = g;
  turned.resize(core.edges.size());
  std::vector<int> parent(bags.size(), -1);
  for (size_t b = 0; b < bags.size(); ++b) {
    Bag &bag = bags[b];
    std::sort(bag.scope.begin(), bag.scope.end(),
              [&](int u, int v) { return place[u] > place[v]; });
    size_t total = 1;
    for (int v : bag.scope) {
      bag.sizes.push_back(core.vars[v].cost.size());
      total *= bag.sizes.back();
    }
    bag.least.resize(total / bag.sizes.back());
    for (const Function &f : made[b]) {
      if (f.row >= 0) {
        bag.limits.push_back(limitOf(f, bag));
        hasLimits = true;
        continue;
      }
      std::vector<int> scope;
      Input input{nullptr, std::vector<size_t>(bag.scope.size())};
      if (f.edge >= 0) {
        const CoreEdge &edge = core.edges[f.edge];
        scope = {edge.first, edge.second};
        input.data = edge.table.data();
        if (edge.second != bag.var) {
          turned[f.edge] = turnedRound(edge, core);
          input.data = turned[f.edge].data();
          std::swap(scope[0], scope[1]);
        }
      } else {
        scope = bags[f.bag].scope;
        scope.pop_back();
        parent[f.bag] = static_cast<int>(b);
        input.data = bags[f.bag].least.data();
      }
      size_t stride = 1;
      for (size_t i = scope.size(); i-- > 0;) {
        size_t at =
            std::find(bag.scope.begin(), bag.scope.end(), scope[i]) - bag.scope.begin();
        input.strides[at] = stride;
        stride *= bag.sizes[at];
      }
      bag.inputs.push_back(std::move(input));
    }
  }
  made.clear();
  for (size_t b = bags.size(); b-- > 0;) {
    Bag &bag = bags[b];
    for (size_t d = 0; d + 1 < bag.scope.size(); ++d) {
      const Bag &above = bags[parent[b]];
      size_t at = std::find(above.scope.begin(), above.scope.end(), bag.scope[d]) -
                  above.scope.begin();
      bag.copies.push_back(at + 1 == above.scope.size() ? parent[b] : above.copies[at]);
    }
  }
}

/// Forbids what leaves the row too little room in a block whose outer variables have the
/// choices `at`.
void SplitBound::Limit::forbid(const std::vector<size_t> &at, size_t choices,
                               std::vector<double> &sums) const {
  double left = room;
  for (size_t d = 0; d < at.size(); ++d)
    if (!bytes[d].empty())
      left -= bytes[d][at[d]];
  if (left >= mostOfBlock)
    return;
  const std::vector<double> &own = bytes.back();
  const bool isInner = bytes.size() > 1 && !bytes[bytes.size() - 2].empty();
  for (size_t from = 0, i = 0; from < sums.size(); from += choices, ++i) {
    double *row = sums.data() + from;
    double rest = isInner ? left - bytes[bytes.size() - 2][i] : left;
    if (own.empty() && rest < 0)
      std::fill(row, row + choices, infinite);
    for (size_t s = 0; s < own.size(); ++s)
      row[s] = own[s] > rest ? infinite : row[s];
  }
}

/// The same for one row of a table: the choices of all variables but the last.
void SplitBound::Limit::forbidAt(const std::vector<size_t> &above,
                                 std::vector<double> &costs) const {
  double left = room;
  for (size_t d = 0; d < above.size(); ++d)
    if (!bytes[d].empty())
      left -= bytes[d][above[d]];
  for (size_t s = 0; s < costs.size(); ++s)
    if ((bytes.back().empty() ? 0 : bytes.back()[s]) > left)
      costs[s] = infinite;
}

/// Calls body(row, rows, table, given) for blocks of rows that differ in the variable
/// before the bag's own alone: what the bag's choices cost in a row is its row of the
/// table minus `given`.
template <typename Fn>
void SplitBound::blocks(const Bag &bag, size_t from, size_t to, Fn body) const {
  size_t outer = bag.scope.size() - 1, k = bag.sizes.back(), inner = bag.rowsOfBlock();
  std::vector<const double *> fixed, varying;
  std::vector<const std::vector<size_t> *> fixedStrides, varyingStrides;
  for (const Input &input : bag.inputs) {
    bool varies = outer > 0 && input.strides[outer - 1] > 0;
    (varies ? varying : fixed).push_back(input.data);
    (varies ? varyingStrides : fixedStrides).push_back(&input.strides);
  }
  size_t dims = outer > 0 ? outer - 1 : 0;
  std::vector<size_t> at(dims);
  for (size_t d = dims, rest = from; d-- > 0; rest /= bag.sizes[d])
    at[d] = rest % bag.sizes[d];
  auto move = [&](size_t d, ptrdiff_t steps) {
    for (size_t i = 0; i < fixed.size(); ++i)
      fixed[i] += steps * static_cast<ptrdiff_t>((*fixedStrides[i])[d]);
    for (size_t i = 0; i < varying.size(); ++i)
      varying[i] += steps * static_cast<ptrdiff_t>((*varyingStrides[i])[d]);
  };
  for (size_t d = 0; d < dims; ++d)
    move(d, static_cast<ptrdiff_t>(at[d]));
  // What rows forbid is written into the sums.
  const bool isPlain = varying.size() == 1 && bag.limits.empty();
  std::vector<double> given(k), sums(isPlain ? 0 : inner * k);
  for (size_t block = from; block < to; ++block) {
    for (size_t s = 0; s < k; ++s)
      given[s] = -bag.cost[s];
    for (const double *data : fixed)
      for (size_t s = 0; s < k; ++s)
        given[s] -= data[s];
    const double *table = isPlain ? varying[0] : sums.data();
    if (!isPlain)
      addTables(varying, sums);
    for (const Limit &limit : bag.limits)
      limit.forbid(at, k, sums);
    body(block * inner, inner, table, given.data());
    for (size_t d = dims; d-- > 0;) {
      if (++at[d] < bag.sizes[d]) {
        move(d, 1);
        break;
      }
      at[d] = 0;
      move(d, 1 - static_cast<ptrdiff_t>(bag.sizes[d]));
    }
  }
}

/// Calls body(from, to, thread) for parts of the blocks of a bag, side by side where they
/// are worth a thread.
template <typename Fn> void SplitBound::spread(const Bag &bag, Fn body) const {
  static constexpr size_t worthAThread = 200'000;
  size_t blocks = bag.least.size() / bag.rowsOfBlock(), count = threads;
  if (bag.least.size() * bag.sizes.back() * bag.inputs.size() < worthAThread)
    count = 1;
  std::vector<std::thread> others;
  for (size_t t = 1; t < count; ++t)
    others.emplace_back(body, blocks * t / count, blocks * (t + 1) / count, t);
  body(0, blocks / count, 0);
  for (std::thread &other : others)
    other.join();
}

/// Moves costs between copies until their choices cost the same at least. Gives the work.
int64_t SplitBound::match(const Group &group) {
  size_t k = bags[group.begin].sizes.back();
  std::vector<double> mean(k);
  std::vector<std::vector<double>> marginals;
  int64_t work = 0;
  for (size_t b = group.begin; b < group.end; ++b) {
    std::vector<std::vector<double>> parts(threads, std::vector<double>(k, infinite));
    spread(bags[b], [&](size_t from, size_t to, size_t thread) {
      std::vector<double> &least = parts[thread], zero(bags[b].rowsOfBlock()), columns(k);
      blocks(bags[b], from, to,
             [&](size_t, size_t count, const double *table, const double *given) {
               leastOfColumns(table, zero.data(), count, k, columns.data());
               for (size_t s = 0; s < k; ++s)
                 least[s] = std::min(least[s], columns[s] - given[s]);
             });
    });
    std::vector<double> &least = marginals.emplace_back(k, infinite);
    for (const std::vector<double> &part : parts)
      for (size_t s = 0; s < k; ++s)
        least[s] = std::min(least[s], part[s]);
    for (size_t s = 0; s < k; ++s)
      mean[s] += least[s] / static_cast<double>(group.size());
    work += static_cast<int64_t>(bags[b].least.size() * k);
  }
  for (size_t b = group.begin; b < group.end; ++b)
    for (size_t s = 0; s < k; ++s)
      if (!isInfinite(mean[s]))
        bags[b].cost[s] += mean[s] - marginals[b - group.begin][s];
      else
        bags[b].cost[s] = infinite;
  return work;
}

bool SplitBound::pass(Budget &budget) {
  double total = constant;
  for (const Group &group : groups) {
    if (budget.exhausted())
      return false;
    if (group.size() > 1 && passes == 0)
      budget.work += match(group);
    for (size_t b = group.begin; b < group.end; ++b) {
      Bag &bag = bags[b];
      size_t k = bag.sizes.back();
      spread(bag, [&](size_t from, size_t to, size_t) {
        blocks(bag, from, to,
               [&](size_t row, size_t rows, const double *table, const double *given) {
                 leastOfRows(table, given, rows, k, bag.least.data() + row);
               });
      });
      budget.work += static_cast<int64_t>(bag.least.size() * k * (1 + bag.limits.size()));
      if (bag.scope.size() == 1)
        total += bag.least[0];
    }
  }
  ++passes;
  // What memory is worth in all may be many times the bound.
  double worth = 0;
  for (size_t r = 0; r < prices.size(); ++r)
    worth += prices[r] * static_cast<double>(core.slack[r]);
  last = total -= 1e-12 * worth;
  if (total > best) {
    best = total;
    bestCosts.clear();
    for (const Bag &bag : bags)
      bestCosts.push_back(bag.cost);
    bestPrices = prices;
    bestConstant = constant;
    stalled = 0;
  } else {
    ++stalled;
  }
  decode();
  return true;
}

/// The choices that have the least cost, from the variable eliminated last to the first.
void SplitBound::decode() {
  for (size_t b = bags.size(); b-- > 0;) {
    const Bag &bag = bags[b];
    std::vector<double> sums = bag.cost;
    std::vector<size_t> above;
    for (int copy : bag.copies)
      above.push_back(static_cast<size_t>(choice[copy]));
    for (const Input &input : bag.inputs) {
      size_t offset = 0;
      for (size_t d = 0; d + 1 < bag.scope.size(); ++d)
        offset += input.strides[d] * above[d];
      for (size_t s = 0; s < sums.size(); ++s)
        sums[s] += input.data[offset + s];
    }
    for (const Limit &limit : bag.limits)
      limit.forbidAt(above, sums);
    choice[b] =
        static_cast<int>(std::min_element(sums.begin(), sums.end()) - sums.begin());
  }
}

/// Changes what a byte of each row costs.
void SplitBound::priceRows(const std::vector<double> &change) {
  std::vector<double> sums(change.size() + 1);
  for (size_t r = 0; r < change.size(); ++r) {
    prices[r] += change[r];
    sums[r + 1] = sums[r] + change[r];
    constant -= change[r] * static_cast<double>(core.slack[r]);
  }
  for (Bag &bag : bags)
    for (const Member &m : core.vars[bag.var].members) {
      double price =
          (sums[m.end] - sums[m.begin]) / static_cast<double>(groups[bag.group].size());
      for (size_t s = 0; s < bag.cost.size(); ++s)
        if (!isInfinite(bag.cost[s]))
          bag.cost[s] += price * static_cast<double>(m.bytes[s]);
    }
}

/// By how much the choices seen last exceed each row, on average over the copies.
std::vector<double> SplitBound::excess() const {
  std::vector<double> over(prices.size() + 1);
  for (const Group &group : groups)
    for (const Member &m : core.vars[bags[group.begin].var].members) {
      double bytes = 0;
      for (size_t b = group.begin; b < group.end; ++b)
        bytes += static_cast<double>(m.bytes[choice[b]]);
      bytes /= static_cast<double>(group.size());
      over[m.begin] += bytes;
      over[m.end] -= bytes;
    }
  double use = 0;
  for (size_t r = 0; r < prices.size(); ++r) {
    use += over[r];
    over[r] = use - static_cast<double>(core.slack[r]);
  }
  over.pop_back();
  return over;
}

/// Moves the prices of memory by a step that would raise the bound by `rise`. False:
/// there is none.
bool SplitBound::stepPrices(double rise) {
  std::vector<double> change = excess();
  double norm = deflect(priceDirection, change, prices, momentum);
  if (norm == 0)
    return false;
  for (size_t r = 0; r < change.size(); ++r)
    change[r] = std::max(0.0, prices[r] + rise / norm * priceDirection[r]) - prices[r];
  priceRows(change);
  return true;
}

/// Moves costs between copies that chose differently, by a step that would raise the
/// bound by `rise`. False: all agree.
bool SplitBound::stepCopies(double rise) {
  bool isFirst = direction.empty();
  direction.resize(bags.size());
  double norm = 0;
  for (const Group &group : groups) {
    if (group.size() < 2)
      continue;
    size_t k = bags[group.begin].sizes.back();
    std::vector<double> mean(k);
    for (size_t b = group.begin; b < group.end; ++b)
      mean[choice[b]] += 1.0 / static_cast<double>(group.size());
    for (size_t b = group.begin; b < group.end; ++b) {
      direction[b].resize(k);
      for (size_t s = 0; s < k; ++s) {
        double now = (choice[b] == static_cast<int>(s)) - mean[s];
        double &d = direction[b][s];
        d = isFirst ? now : momentum * d + (1 - momentum) * now;
        norm += d * d;
      }
    }
  }
  if (norm < 1e-12)
    return false;
  for (size_t b = 0; b < bags.size(); ++b)
    for (size_t s = 0; s < direction[b].size(); ++s)
      if (!isInfinite(bags[b].cost[s]))
        bags[b].cost[s] += rise / norm * direction[b][s];
  return true;
}

bool SplitBound::step(double upper) {
  if (stalled >= 4) {
    // Towards agreement of the choices seen last, but from the best costs.
    scale *= 0.6;
    stalled = 0;
    direction.clear();
    priceDirection.clear();
    for (size_t b = 0; b < bags.size(); ++b)
      bags[b].cost = bestCosts[b];
    prices = bestPrices;
    constant = bestConstant;
  } else if (stalled == 0 && passes > 1) {
    scale = std::min(1.0, scale * 1.1);
  }
  double gap = std::max(upper - best, 1e-9 * std::abs(upper));
  double rise = scale * std::clamp(upper - last, gap, 2 * gap);
  // Where no row is exact, message passing has moved the prices to where they belong.
  bool priced = hasLimits && stepPrices(rise), moved = stepCopies(rise);
  return priced || moved;
}
