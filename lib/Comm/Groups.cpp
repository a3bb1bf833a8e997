//===- Groups.cpp - Few groups of ranks -----------------------------------===//
#include "partita/Comm/Groups.h"

#include "Partial.h"

#include <algorithm>
#include <set>
#include <tuple>

using namespace partita;

AxisList partita::groupOf(AxisList axes) {
  std::ranges::sort(axes);
  return canonical(std::move(axes));
}

/// Adds the axis to each part, or as a part of its own. `anywhere`: not to the last part
/// alone.
static std::vector<AxisParts> withAxis(const std::vector<AxisParts> &ways,
                                       const AxisRef &axis, bool anywhere) {
  std::vector<AxisParts> result;
  for (const AxisParts &way : ways) {
    for (size_t p = anywhere || way.empty() ? 0 : way.size() - 1; p < way.size(); ++p) {
      result.push_back(way);
      result.back()[p].push_back(axis);
    }
    result.push_back(way);
    result.back().push_back({axis});
  }
  return result;
}

std::vector<AxisParts> partita::partsOf(const Step &step) {
  if (step.kind != StepKind::AllReduce && step.kind != StepKind::ReduceScatter &&
      step.kind != StepKind::AllGather)
    return {{step.axes}};
  // Partitions of a set are many from here on.
  constexpr size_t mostFree = 6;
  const bool anywhere = step.kind == StepKind::AllReduce && step.axes.size() <= mostFree;
  std::vector<AxisParts> ways{{}};
  for (const AxisRef &axis : step.axes)
    ways = withAxis(ways, axis, anywhere);
  std::ranges::sort(ways, {},
                    [](const AxisParts &way) { return std::pair(way.size(), way); });
  return ways;
}

std::vector<Step> partita::stepsByParts(const Mesh &mesh, const Step &step,
                                        const AxisParts &parts) {
  if (parts.size() < 2)
    return {};
  const bool gathers = step.kind == StepKind::AllGather;
  if (!gathers && step.kind != StepKind::AllReduce &&
      step.kind != StepKind::ReduceScatter)
    return {};
  const Layout &whole = gathers ? step.after : step.before;
  const AxisList rest = gathers ? AxisList() : partialAxesOf(step.after, step.reduce);
  // Layouts by the number of major parts that scatter, or that are left to reduce.
  std::vector<Layout> layouts;
  for (size_t major = 0; major <= parts.size(); ++major) {
    Layout layout = whole;
    AxisList first, second;
    for (size_t p = 0; p < parts.size(); ++p)
      (p < major ? first : second) = joined(p < major ? first : second, parts[p]);
    if (step.kind != StepKind::AllReduce) {
      AxisList &axes = layout.dims[static_cast<size_t>(step.dim)]
                           .factors[static_cast<size_t>(step.factor)]
                           .axes;
      axes = canonical(joined(axes, first));
    }
    if (!gathers)
      layout =
          withPartial(std::move(layout), step.reduce,
                      joined(rest, step.kind == StepKind::AllReduce ? first : second));
    layouts.push_back(std::move(layout));
  }
  if (step.kind != StepKind::ReduceScatter)
    std::ranges::reverse(layouts);
  return stepsThrough(mesh, layouts, std::vector(parts.size(), step.kind));
}

namespace {
/// Tries the ways of one use after the other, up to a number of tries that takes less
/// than a second: from there on the best choice so far stays.
class Chooser {
public:
  Chooser(int64_t most, const std::vector<GroupUse> &uses) : most(most), uses(uses) {
    // Single axes are the fewest groups in most programs: little is tried beyond them.
    for (const GroupUse &use : uses)
      choice.push_back(use.ways.size() - 1);
    least.assign(uses.size() + 1, 0);
    for (size_t u = uses.size(); u-- > 0;)
      least[u] = least[u + 1] + uses[u].steps;
    rate();
    choice.assign(uses.size(), 0);
    choose(0, {}, 0);
  }

  std::vector<size_t> best;

private:
  using Rank = std::tuple<int64_t, int64_t>;
  Rank rankOf(const std::set<AxisList> &groups, int64_t steps) const {
    return {std::max(most, static_cast<int64_t>(groups.size())), steps};
  }

  /// Takes the choice as it is for the best.
  void rate() {
    std::set<AxisList> groups;
    int64_t steps = 0;
    for (size_t u = 0; u < uses.size(); ++u) {
      const AxisParts &way = uses[u].ways[choice[u]];
      for (const AxisList &part : way)
        groups.insert(groupOf(part));
      steps += uses[u].steps * static_cast<int64_t>(way.size());
    }
    best = choice;
    bestRank = rankOf(groups, steps);
  }

  void choose(size_t use, const std::set<AxisList> &groups, int64_t steps) {
    // The uses that are left are at least one step each.
    if (++tries > mostTries || rankOf(groups, steps + least[use]) >= bestRank)
      return;
    if (use == uses.size()) {
      best = choice;
      bestRank = rankOf(groups, steps);
      return;
    }
    const std::vector<AxisParts> &ways = uses[use].ways;
    for (size_t w = 0; w < ways.size(); ++w) {
      std::set<AxisList> more = groups;
      for (const AxisList &part : ways[w])
        more.insert(groupOf(part));
      choice[use] = w;
      choose(use + 1, more,
             steps + uses[use].steps * static_cast<int64_t>(ways[w].size()));
    }
  }

  const int64_t most;
  const std::vector<GroupUse> &uses;
  std::vector<size_t> choice;
  std::vector<int64_t> least; ///< per use the fewest steps of it and those behind it
  Rank bestRank;
  static constexpr int64_t mostTries = 200'000;
  int64_t tries = 0;
};
} // namespace

std::vector<size_t> partita::groupsWithin(int64_t most,
                                          const std::vector<GroupUse> &uses) {
  return Chooser(most, uses).best;
}
