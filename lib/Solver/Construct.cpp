//===- Construct.cpp - Answers by an auction of memory --------------------===//
//
// A try takes a hundredth of the time of a dive, and its answer is poor only where the
// variables that come last find no memory left. What they would have paid for it becomes
// the price of that memory at the next try, so that those who come first leave it where
// it is worth less to them.
//
//===----------------------------------------------------------------------===//
#include "Construct.h"

#include "Dual.h"
#include "Fixer.h"

#include <algorithm>
#include <numeric>

using namespace partita;
using namespace partita::solver;

namespace {
/// What a variable lost because rows had no room for a cheaper choice; infinite when it
/// was left with none.
struct Regret {
  double cost;
  std::vector<int> rows;
};

/// One try. A byte in row r costs `prices[r]` beside what the dual takes for it; all the
/// room that is left in a row is worth `thrift`.
class Try {
public:
  Try(const Core &original, Dual &dual, const std::vector<double> &prices, double thrift)
      : core(original), dual(dual), fixer(core), choices(core.vars.size(), -1),
        prices(prices.size() + 1), thrift(thrift) {
    std::partial_sum(prices.begin(), prices.end(), this->prices.begin() + 1);
    core.work = 0;
  }
  /// False: a variable is left without choices, or the budget is used up.
  bool run(const Budget &budget);
  int64_t work() const { return core.work; }

  std::vector<int> answer() const;
  std::vector<Regret> regrets;

private:
  bool fixCheapest(int var);
  void addPrices(int var, std::vector<double> &cost) const;

  Core core;
  Dual &dual;
  Fixer fixer;
  std::vector<int> choices;
  /// Sums of the prices of the rows before each.
  std::vector<double> prices;
  double thrift;
};

/// The prices of rows beside what the dual takes.
class Auction {
public:
  Auction(const Core &core, const Dual &dual);
  void raise(const std::vector<Regret> &regrets);
  const std::vector<double> &prices() const { return now; }
  double spread() const { return meanSpread; }

private:
  /// How far apart the costs of a variable's choices are, on average.
  double meanSpread;
  /// The first price of a row, and all of them now.
  std::vector<double> first, now;
};
} // namespace

void Try::addPrices(int var, std::vector<double> &cost) const {
  const CoreVar &v = core.vars[var];
  for (size_t i = 0; i < v.members.size(); ++i) {
    const Member &m = v.members[i];
    double price = prices[m.end] - prices[m.begin];
    double scarcity =
        thrift > 0 ? thrift / (static_cast<double>(fixer.roomIn(m.begin, m.end)) + 1) : 0;
    if (price == 0 && scarcity == 0)
      continue;
    for (int s = 0; s < v.size(); ++s)
      cost[s] += price * static_cast<double>(m.bytes[s]) +
                 scarcity * static_cast<double>(m.bytes[s] - fixer.charged(var, i));
  }
}

/// Takes for one variable the cheapest choice that leaves something for the others.
bool Try::fixCheapest(int var) {
  const CoreVar &v = core.vars[var];
  std::span<const double> excess = dual.excess(var);
  std::vector<double> cost(excess.begin(), excess.end());
  std::vector<int> order;
  core.work += static_cast<int64_t>(cost.size() * (1 + v.edges.size()));
  for (int s = 0; s < v.size(); ++s) {
    if (isInfinite(v.cost[s]))
      continue;
    order.push_back(s);
    for (int e : v.edges) {
      int o = core.other(e, var);
      if (choices[o] >= 0)
        cost[s] += dual.pairExcess(e, var, s, choices[o]);
    }
  }
  addPrices(var, cost);
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return cost[a] != cost[b] ? cost[a] < cost[b] : a < b; });
  Regret regret{infinite, {}};
  std::vector<int> &rows = regret.rows;
  for (int s : order) {
    if (fixer.fix(var, s)) {
      choices[var] = s;
      regret.cost = cost[s] - cost[order.front()];
      break;
    }
    const std::vector<int> &full = fixer.withoutRoom();
    rows.insert(rows.end(), full.begin(), full.end());
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  if (!rows.empty())
    regrets.push_back(std::move(regret));
  return choices[var] >= 0;
}

bool Try::run(const Budget &budget) {
  for (size_t v = 0; v < core.vars.size(); ++v) {
    if (v % 64 == 0 && budget.exhausted(core.work))
      return false;
    if (core.vars[v].alive && !fixCheapest(static_cast<int>(v)))
      return false;
  }
  return true;
}

std::vector<int> Try::answer() const {
  std::vector<int> result = choices;
  for (int &c : result)
    c = std::max(c, 0);
  return result;
}

Auction::Auction(const Core &core, const Dual &dual)
    : first(core.slack.size() + 1), now(core.slack.size()) {
  double sum = 0, count = 1;
  for (size_t v = 0; v < core.vars.size(); ++v) {
    double most = 0;
    for (double c : dual.excess(static_cast<int>(v)))
      if (!isInfinite(c))
        most = std::max(most, c);
    sum += most;
    count += core.vars[v].alive;
  }
  meanSpread = sum / count + 1;
  // What makes the choices differ by a twentieth of that if all that need a row use the
  // same part of its room.
  for (const CoreVar &v : core.vars)
    if (v.alive)
      for (const Member &m : v.members) {
        ++first[m.begin];
        --first[m.end];
      }
  double users = 0;
  for (size_t r = 0; r < now.size(); ++r) {
    users += first[r];
    first[r] = 0.05 * meanSpread * users / (static_cast<double>(core.slack[r]) + 1);
  }
}

void Auction::raise(const std::vector<Regret> &regrets) {
  std::vector<double> step(now.size());
  for (const Regret &regret : regrets)
    for (int r : regret.rows)
      step[r] = std::max(step[r], std::min(1.0, regret.cost / meanSpread) /
                                      static_cast<double>(regret.rows.size()));
  for (size_t r = 0; r < now.size(); ++r)
    if (step[r] > 0)
      now[r] = 1.3 * now[r] + first[r] * step[r];
}

std::optional<std::vector<int>> solver::construct(const Core &core, Dual &dual,
                                                  Budget &budget) {
  static constexpr int mostTries = 40, mostIdle = 3;
  // A first answer may take all the time there is, better ones only some of it.
  Budget leisure = budget.fraction(0.05);
  std::optional<std::vector<int>> best;
  double least = infinite;
  auto limit = [&]() -> Budget & { return best ? leisure : budget; };
  // What was missing, and whether the answer is worth going on.
  auto attempt = [&](const std::vector<double> &prices, double thrift) {
    Try one(core, dual, prices, thrift);
    bool left = one.run(limit());
    budget.work += one.work();
    leisure.work = budget.work;
    double before = least;
    std::vector<int> answer = one.answer();
    if (double cost = left ? core.price(answer) : infinite; cost < least) {
      least = cost;
      best = std::move(answer);
    }
    bool better = least < before - 0.02 * (before - dual.bound());
    return std::pair(std::move(one.regrets), better);
  };
  Auction auction(core, dual);
  for (int i = 0, idle = 0; i < mostTries && idle < mostIdle; ++i) {
    auto [regrets, better] = attempt(auction.prices(), 0);
    idle = best && !better ? idle + 1 : 0;
    if (regrets.empty() || limit().exhausted())
      break;
    auction.raise(regrets);
  }
  // Where prices do not help, scarcity in all rows may.
  std::vector<double> none(core.slack.size());
  for (double thrift = 1; !best && thrift <= 10'000 && !budget.exhausted(); thrift *= 10)
    attempt(none, thrift * auction.spread());
  return best;
}
