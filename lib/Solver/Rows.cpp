//===- Rows.cpp - Dropping memory rows that another row implies -----------===//
//
// compressRows compares a row with its neighbours in time only. Once equal layers have
// been contracted into few variables, far-apart rows turn out to be the same constraint;
// here rows are compared by what they say.
//
//===----------------------------------------------------------------------===//
#include "Core.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

using namespace partita;
using namespace partita::solver;

namespace {
/// What one variable uses over consecutive rows: a run begins where the bytes change.
struct Run {
  int begin, end;
  int64_t vector; // index into the variable's distinct byte vectors, -1 for none
};

struct VarRuns {
  std::vector<Run> runs;
  std::vector<std::vector<int64_t>> vectors;
  std::vector<uint64_t> keys;
};
} // namespace

static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

static VarRuns runsOf(const CoreVar &var) {
  struct Event {
    int row, member;
    bool begins;
  };
  std::vector<Event> events;
  for (size_t m = 0; m < var.members.size(); ++m) {
    events.push_back({var.members[m].begin, static_cast<int>(m), true});
    events.push_back({var.members[m].end, static_cast<int>(m), false});
  }
  std::sort(events.begin(), events.end(),
            [](const Event &a, const Event &b) { return a.row < b.row; });
  VarRuns result;
  std::unordered_map<uint64_t, int64_t> known;
  std::vector<int64_t> now(var.cost.size());
  size_t i = 0;
  while (i < events.size()) {
    int row = events[i].row;
    for (; i < events.size() && events[i].row == row; ++i)
      for (size_t s = 0; s < now.size(); ++s) {
        int64_t bytes = var.members[events[i].member].bytes[s];
        now[s] += events[i].begins ? bytes : -bytes;
      }
    if (i == events.size())
      break;
    // Two 64-bit keys would be needed to trust a hash; the vectors are compared.
    uint64_t key = 0;
    for (int64_t b : now)
      key = mix(key ^ static_cast<uint64_t>(b));
    int64_t id = -1;
    if (std::any_of(now.begin(), now.end(), [](int64_t b) { return b != 0; })) {
      while (known.count(key) && result.vectors[known[key]] != now)
        key = mix(key);
      auto [it, isNew] = known.emplace(key, result.vectors.size());
      if (isNew) {
        result.vectors.push_back(now);
        result.keys.push_back(key);
      }
      id = it->second;
    }
    int end = events[i].row;
    if (!result.runs.empty() && result.runs.back().vector == id &&
        result.runs.back().end == row)
      result.runs.back().end = end;
    else
      result.runs.push_back({row, end, id});
  }
  std::erase_if(result.runs, [](const Run &r) { return r.vector < 0; });
  return result;
}

namespace {
/// Which vector of which variable a row holds, in order of variables.
struct RowContents {
  std::vector<std::pair<int, int64_t>> parts;
};
} // namespace

/// Whether `more` uses at least as much as `less` for every choice of every variable.
static bool covers(const RowContents &more, const RowContents &less,
                   const std::vector<VarRuns> &runs) {
  size_t i = 0;
  for (const auto &[var, id] : less.parts) {
    while (i < more.parts.size() && more.parts[i].first < var)
      ++i;
    if (i == more.parts.size() || more.parts[i].first != var)
      return false;
    if (more.parts[i].second == id)
      continue;
    const auto &a = runs[var].vectors[more.parts[i].second], &b = runs[var].vectors[id];
    for (size_t s = 0; s < a.size(); ++s)
      if (a[s] < b[s])
        return false;
  }
  return true;
}

/// The rows that no other row implies, in order.
static std::vector<int> maximalRows(const std::vector<int64_t> &slack,
                                    const std::vector<VarRuns> &runs) {
  std::vector<RowContents> contents(slack.size());
  std::vector<uint64_t> hash(slack.size());
  for (size_t v = 0; v < runs.size(); ++v)
    for (const Run &run : runs[v].runs)
      for (int r = run.begin; r < run.end; ++r) {
        contents[r].parts.emplace_back(static_cast<int>(v), run.vector);
        hash[r] ^= mix(runs[v].keys[run.vector] + v);
      }
  std::vector<int> order(slack.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return slack[a] != slack[b] ? slack[a] < slack[b] : a < b;
  });
  std::unordered_map<uint64_t, std::vector<int>> same;
  std::vector<int> kept;
  int64_t budget = 20'000'000;
  for (int r : order) {
    std::vector<int> &twins = same[hash[r]];
    if (std::any_of(twins.begin(), twins.end(),
                    [&](int t) { return contents[t].parts == contents[r].parts; }))
      continue;
    twins.push_back(r);
    bool implied = false;
    for (size_t k = 0; k < kept.size() && !implied && budget > 0; ++k, --budget)
      implied = covers(contents[kept[k]], contents[r], runs);
    if (!implied)
      kept.push_back(r);
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

void Core::dropImpliedRows() {
  if (slack.empty())
    return;
  std::vector<VarRuns> runs(vars.size());
  int64_t cells = 0;
  for (size_t v = 0; v < vars.size(); ++v) {
    if (!vars[v].alive)
      continue;
    runs[v] = runsOf(vars[v]);
    for (const Run &run : runs[v].runs)
      cells += run.end - run.begin;
  }
  work += cells;
  // The comparison holds every row's contents at once.
  if (cells > 50'000'000)
    return;
  std::vector<int> kept = maximalRows(slack, runs);
  std::vector<int> before(slack.size() + 1);
  for (int r : kept)
    ++before[r + 1];
  for (size_t r = 1; r < before.size(); ++r)
    before[r] += before[r - 1];
  for (size_t v = 0; v < vars.size(); ++v) {
    if (!vars[v].alive)
      continue;
    std::vector<Member> members;
    for (const Run &run : runs[v].runs) {
      int begin = before[run.begin], end = before[run.end];
      if (begin == end)
        continue;
      const auto &bytes = runs[v].vectors[run.vector];
      if (!members.empty() && members.back().end == begin &&
          members.back().bytes == bytes)
        members.back().end = end;
      else
        members.push_back({begin, end, bytes});
    }
    vars[v].members = std::move(members);
    normalizeMembers(static_cast<int>(v));
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    slack[i] = slack[kept[i]];
    lambda[i] = lambda[kept[i]];
  }
  slack.resize(kept.size());
  lambda.resize(kept.size());
}
