//===- Cuts.cpp - Rows that integrality implies ---------------------------===//
#include "Cuts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace partita;
using namespace partita::solver;

Mixture::Mixture(const Core &core) : share(core.vars.size()) {
  for (size_t v = 0; v < core.vars.size(); ++v)
    if (core.vars[v].alive)
      share[v].assign(core.vars[v].cost.size(), 0);
}

void Mixture::add(const std::vector<int> &choices, double weight) {
  for (size_t v = 0; v < share.size(); ++v) {
    for (double &s : share[v])
      s *= 1 - weight;
    if (!share[v].empty())
      share[v][choices[v]] += weight;
  }
}

namespace {
/// What one variable uses in the row that is rounded.
struct Entry {
  int var;
  std::vector<int64_t> bytes;
  int64_t base;
};

/// One row on its way to a cut.
class Rounding {
public:
  Rounding(const Core &core, const Mixture &mixture, int row);
  /// Whether the mixture comes near the row's room.
  bool isTight() const { return tight; }
  /// Looks for the step, and then for other bases, that the mixture breaks most.
  void search();
  double efficacy() const { return best; }
  void append(Core &core) const;

private:
  double rate(int64_t step) const;
  int64_t round(Wide bytes, int64_t step, int64_t rest) const;
  std::vector<int64_t> steps() const;

  const Mixture *mixture;
  std::vector<Entry> entries;
  /// The row's room without the bases.
  Wide room = 0;
  bool tight = false;
  int64_t chosen = 0;
  double best = 0;
};
} // namespace

Rounding::Rounding(const Core &core, const Mixture &mixture, int row)
    : mixture(&mixture) {
  double use = 0;
  room = core.slack[row];
  for (size_t v = 0; v < core.vars.size(); ++v) {
    const CoreVar &var = core.vars[v];
    if (!var.alive)
      continue;
    Entry entry{static_cast<int>(v), {}, 0};
    for (const Member &m : var.members) {
      if (row < m.begin || row >= m.end)
        continue;
      entry.bytes.resize(var.cost.size());
      for (size_t s = 0; s < m.bytes.size(); ++s)
        entry.bytes[s] = std::min(maxBytes, entry.bytes[s] + m.bytes[s]);
    }
    if (entry.bytes.empty())
      continue;
    const std::vector<double> &share = mixture[v];
    for (size_t s = 0; s < share.size(); ++s)
      use += share[s] * static_cast<double>(entry.bytes[s]);
    entry.base = entry.bytes[static_cast<size_t>(
        std::max_element(share.begin(), share.end()) - share.begin())];
    room -= entry.base;
    entries.push_back(std::move(entry));
  }
  tight = use > 0.97 * static_cast<double>(core.slack[row]);
}

static Wide floorDivide(Wide value, Wide by) {
  Wide quotient = value / by;
  return quotient * by > value ? quotient - 1 : quotient;
}

/// φ; `rest` is what the row's room leaves over a multiple of the step.
int64_t Rounding::round(Wide bytes, int64_t step, int64_t rest) const {
  Wide times = floorDivide(bytes, step);
  Wide over = bytes - times * step;
  return static_cast<int64_t>(times * (step - rest) + std::max<Wide>(0, over - rest));
}

/// By how much the mixture breaks the rounded row, in units of how far apart its choices
/// are.
double Rounding::rate(int64_t step) const {
  int64_t rest = static_cast<int64_t>(room - floorDivide(room, step) * step);
  double sum = -static_cast<double>(round(room, step, rest)), norm = 0;
  for (const Entry &e : entries) {
    const std::vector<double> &share = (*mixture)[e.var];
    double low = infinite, high = -infinite;
    for (size_t s = 0; s < share.size(); ++s) {
      double c = static_cast<double>(round(e.bytes[s] - e.base, step, rest));
      sum += share[s] * c;
      low = std::min(low, c);
      high = std::max(high, c);
    }
    norm += (high - low) * (high - low);
  }
  return norm > 0 ? sum / std::sqrt(norm) : 0;
}

/// The differences of bytes that the mixture is made of.
std::vector<int64_t> Rounding::steps() const {
  std::vector<int64_t> result;
  for (const Entry &e : entries) {
    const std::vector<double> &share = (*mixture)[e.var];
    for (size_t s = 0; s < share.size(); ++s)
      if (share[s] > 0.02 && e.bytes[s] != e.base)
        result.push_back(std::abs(e.bytes[s] - e.base));
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

void Rounding::search() {
  auto consider = [&](int64_t step) {
    double rated = step > 1 ? rate(step) : 0;
    if (rated <= best)
      return false;
    best = rated;
    chosen = step;
    return true;
  };
  for (int64_t step : steps())
    consider(step);
  for (int64_t part : {2, 3, 4, 5, 6, 7, 8})
    consider(chosen / part);
  if (chosen == 0)
    return;
  // Each undecided variable once more with the other choice as its base.
  for (Entry &e : entries) {
    const std::vector<double> &share = (*mixture)[e.var];
    int64_t kept = e.base;
    for (size_t s = 0; s < share.size(); ++s) {
      if (share[s] < 0.1 || e.bytes[s] == kept)
        continue;
      int64_t before = e.base;
      room += before - e.bytes[s];
      e.base = e.bytes[s];
      if (consider(chosen))
        continue;
      room += e.base - before;
      e.base = before;
    }
  }
}

/// The rounded row as the last of the core.
void Rounding::append(Core &core) const {
  int row = static_cast<int>(core.slack.size());
  int64_t rest = static_cast<int64_t>(room - floorDivide(room, chosen) * chosen);
  Wide slack = round(room, chosen, rest);
  for (const Entry &e : entries) {
    Member member{row, row + 1, {}};
    for (int64_t b : e.bytes)
      member.bytes.push_back(round(b - e.base, chosen, rest));
    int64_t least = *std::min_element(member.bytes.begin(), member.bytes.end());
    slack -= least;
    for (int64_t &b : member.bytes)
      b -= least;
    if (std::any_of(member.bytes.begin(), member.bytes.end(),
                    [](int64_t b) { return b != 0; }))
      core.vars[e.var].members.push_back(std::move(member));
  }
  core.slack.push_back(static_cast<int64_t>(std::clamp<Wide>(slack, -1, 2 * maxBytes)));
  core.lambda.push_back(0);
  if (!core.origin.empty())
    core.origin.emplace_back();
}

int solver::addCuts(Core &core, const Mixture &mixture, int rows, int most) {
  std::vector<Rounding> found;
  for (int r = 0; r < rows; ++r) {
    Rounding rounding(core, mixture, r);
    if (!rounding.isTight())
      continue;
    rounding.search();
    if (rounding.efficacy() > 1e-3)
      found.push_back(std::move(rounding));
    core.work += static_cast<int64_t>(core.vars.size());
  }
  std::vector<size_t> order(found.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(-found[a].efficacy(), a) < std::pair(-found[b].efficacy(), b);
  });
  int count = std::min(most, static_cast<int>(found.size()));
  for (int i = 0; i < count; ++i)
    found[order[i]].append(core);
  return count;
}
