//===- Neighbourhood.cpp - Improving an answer piece by piece -------------===//
#include "Neighbourhood.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <utility>

using namespace partita;
using namespace partita::solver;

Neighbourhood::Neighbourhood(const Core &core, std::vector<int> start, uint64_t seed)
    : core(core), choices(std::move(start)), mark(core.vars.size()), random(seed) {
  for (size_t v = 0; v < core.vars.size(); ++v)
    if (core.vars[v].alive && core.vars[v].size() > 1)
      alive.push_back(static_cast<int>(v));
  use = core.rowUse(choices);
  cost = core.price(choices);
}

/// A connected piece around a random variable, or around the memory of a random row.
std::vector<int> Neighbourhood::piece(size_t wanted) {
  ++stamp;
  std::vector<int> result;
  auto add = [&](int v) {
    if (mark[v] == stamp || core.vars[v].size() < 2 || result.size() >= wanted)
      return;
    mark[v] = stamp;
    result.push_back(v);
  };
  int seed = alive[random() % alive.size()];
  add(seed);
  if (random() % 3 == 0 && !core.vars[seed].members.empty()) {
    // Variables that compete with the seed for one row.
    const Member &m = core.vars[seed].members[random() % core.vars[seed].members.size()];
    int row = m.begin + static_cast<int>(random() % (m.end - m.begin));
    size_t from = random() % alive.size();
    for (size_t i = 0; i < alive.size() && result.size() < wanted / 3; ++i) {
      int v = alive[(from + i) % alive.size()];
      for (const Member &other : core.vars[v].members)
        if (other.begin <= row && row < other.end) {
          add(v);
          break;
        }
    }
  }
  for (size_t head = 0; head < result.size() && result.size() < wanted; ++head) {
    const std::vector<int> &edges = core.vars[result[head]].edges;
    if (edges.empty())
      continue;
    size_t from = random() % edges.size();
    for (size_t i = 0; i < edges.size(); ++i)
      add(core.other(edges[(from + i) % edges.size()], result[head]));
  }
  std::sort(result.begin(), result.end());
  return result;
}

void Neighbourhood::solvePiece(Attempt &attempt, Budget part) const {
  Core sub = condition(core, choices, attempt.free, use);
  sub.limit = &part;
  std::vector<int> now;
  for (int v : attempt.free)
    now.push_back(choices[v]);
  attempt.before = sub.price(now);
  Search search(part, Cut{attempt.before}, 40, 1);
  // A piece's work is for many nodes.
  search.setTreeEntries(200'000);
  Search::Result result = search.solve(std::move(sub));
  attempt.work = part.work;
  attempt.after = search.upper();
  attempt.complete = isInfinite(result.open);
  attempt.found = std::move(result.choices);
}

/// The cost of the variables of a piece and of all edges that they touch.
double Neighbourhood::costOf(const std::vector<int> &piece,
                             const std::vector<int> &now) const {
  double sum = 0;
  for (int v : piece) {
    sum += core.vars[v].cost[now[v]];
    for (int e : core.vars[v].edges) {
      int o = core.other(e, v);
      // An edge inside the piece is counted at its lower end.
      if (o > v || !std::binary_search(piece.begin(), piece.end(), o))
        sum += core.entry(e, v, now[v], now[o]);
    }
  }
  return sum;
}

/// Takes an attempt over if it still helps after those applied before it. Only what the
/// piece touches is looked at: a model has many times more.
bool Neighbourhood::apply(const Attempt &attempt) {
  std::vector<int> before;
  for (int v : attempt.free)
    before.push_back(choices[v]);
  double old = costOf(attempt.free, choices);
  for (size_t i = 0; i < attempt.free.size(); ++i)
    choices[attempt.free[i]] = (*attempt.found)[i];
  double change = costOf(attempt.free, choices) - old;
  int low = static_cast<int>(use.size()), high = 0;
  for (int v : attempt.free)
    for (const Member &m : core.vars[v].members) {
      low = std::min(low, m.begin);
      high = std::max(high, m.end);
    }
  std::vector<Wide> more(std::max(0, high - low) + 1);
  for (size_t i = 0; i < attempt.free.size(); ++i)
    for (const Member &m : core.vars[attempt.free[i]].members) {
      Wide bytes = m.bytes[choices[attempt.free[i]]] - m.bytes[before[i]];
      more[m.begin - low] += bytes;
      more[m.end - low] -= bytes;
    }
  bool better = change < 0;
  for (int r = low; r < high && better; ++r) {
    if (r > low)
      more[r - low] += more[r - low - 1];
    better = use[r] + more[r - low] <= core.slack[r];
  }
  if (!better) {
    for (size_t i = 0; i < attempt.free.size(); ++i)
      choices[attempt.free[i]] = before[i];
    return false;
  }
  for (int r = low; r < high; ++r)
    use[r] += more[r - low];
  cost += change;
  return true;
}

bool Neighbourhood::round(Budget &budget, int threads) {
  // Nothing can be freed where all choices are made. That counts as a piece, as callers
  // stop after so many without a gain.
  if (alive.empty()) {
    ++pieces;
    return false;
  }
  // Pieces take unequal time: several per thread leave none of them waiting for long.
  static constexpr int perThread = 4;
  std::vector<Attempt> attempts(threads == 1 ? 1 : threads * perThread);
  for (Attempt &a : attempts)
    a.free = piece(std::min(size, alive.size()));
  // All are pieces of the same answer; what comes of them is applied in order, so the
  // outcome does not depend on which is ready first.
  Budget part = budget.part(20'000'000);
  part.workLimit -= part.work;
  part.work = 0;
  std::atomic<size_t> next = 0;
  auto solveSome = [&] {
    for (size_t i = next++; i < attempts.size(); i = next++)
      solvePiece(attempts[i], part);
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t)
    others.emplace_back(solveSome);
  solveSome();
  for (std::thread &t : others)
    t.join();
  pieces += attempts.size();
  bool improved = false;
  for (const Attempt &a : attempts) {
    budget.work += a.work;
    if (a.found)
      improved |= apply(a);
    // Pieces as large as can still be searched to the end.
    if (a.complete)
      growth += 0.05;
    else
      growth -= 0.15;
  }
  growth = std::clamp(growth, -3.0, 4.0);
  size = static_cast<size_t>(60.0 * std::exp2(growth));
  return improved;
}

bool Neighbourhood::merge(const std::vector<int> &other, Budget &budget) {
  Attempt attempt;
  ++stamp;
  auto add = [&](int v) {
    if (core.vars[v].size() < 2 || std::exchange(mark[v], stamp) == stamp)
      return;
    attempt.free.push_back(v);
  };
  for (int v : alive)
    if (choices[v] != other[v])
      add(v);
  const size_t differ = attempt.free.size();
  if (differ == 0)
    return false;
  for (size_t i = 0; i < differ; ++i)
    for (int e : core.vars[attempt.free[i]].edges)
      add(core.other(e, attempt.free[i]));
  std::sort(attempt.free.begin(), attempt.free.end());
  Budget part = budget.part(100'000'000);
  part.workLimit -= part.work;
  part.work = 0;
  solvePiece(attempt, part);
  budget.work += attempt.work;
  return attempt.found && apply(attempt);
}
