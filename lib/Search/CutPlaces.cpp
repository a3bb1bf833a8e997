//===- CutPlaces.cpp - Where a program can be cut into stages -------------===//
#include "CutPlaces.h"

#include <algorithm>
#include <functional>
#include <limits>

using namespace partita;
using namespace partita::search;

/// Places that are looked at per stage, and in all.
static constexpr size_t placesPerStage = 64, mostPlaces = 1024;
static constexpr double never = std::numeric_limits<double>::infinity();

std::vector<bool> search::madeOfParameters(const FlowGraph &graph) {
  std::vector<bool> result(graph.ops.size(), false);
  for (size_t i = 0; i < result.size(); ++i) {
    const FlowOp &op = graph.ops[i];
    result[i] = op.kind == FlowKind::Source || op.kind == FlowKind::State ||
                (op.kind == FlowKind::Compute &&
                 std::ranges::all_of(op.operands, [&](int32_t value) {
                   int32_t maker = graph.values[static_cast<size_t>(value)].producer;
                   return maker >= 0 && result[static_cast<size_t>(maker)];
                 }));
  }
  return result;
}

/// Every place, the program's two ends among them. A value crosses from behind its
/// producer to its last user; sources and arguments are wherever they are read.
static std::vector<Cut> allCuts(const FlowGraph &graph, const StageCost &cost,
                                const std::vector<int32_t> &ops) {
  std::vector<size_t> place(graph.ops.size(), 0);
  for (size_t i = 0; i < ops.size(); ++i)
    place[static_cast<size_t>(ops[i])] = i;
  std::vector<double> change(ops.size() + 1, 0);
  const std::vector<bool> isMadeAgain = madeOfParameters(graph);
  for (const FlowValue &value : graph.values) {
    if (value.producer < 0 || isMadeAgain[static_cast<size_t>(value.producer)] ||
        graph.ops[static_cast<size_t>(value.producer)].kind != FlowKind::Compute)
      continue;
    size_t made = place[static_cast<size_t>(value.producer)], last = made;
    for (const FlowUse &use : value.uses)
      if (graph.ops[static_cast<size_t>(use.op)].kind == FlowKind::Compute)
        last = std::max(last, place[static_cast<size_t>(use.op)]);
    auto bytes = static_cast<double>(elementCount(value.shape) * value.elementBytes);
    change[made + 1] += bytes;
    change[last + 1 <= ops.size() ? last + 1 : ops.size()] -= bytes;
  }
  std::vector<Cut> cuts(ops.size() + 1);
  double before = 0, bytes = 0;
  for (size_t i = 0; i <= ops.size(); ++i) {
    bytes += change[i];
    cuts[i] = {i, before, i == 0 || i == ops.size() ? 0 : bytes};
    if (i < ops.size())
      before += cost.seconds[static_cast<size_t>(ops[i])];
  }
  return cuts;
}

/// Drops the places inside a node that became several ops: hints speak of whole nodes.
static std::vector<Cut> betweenNodes(const FlowGraph &graph,
                                     const std::vector<int32_t> &ops,
                                     std::vector<Cut> cuts) {
  auto nameOf = [&](size_t i) -> const std::string & {
    return graph.ops[static_cast<size_t>(ops[i])].name;
  };
  std::erase_if(cuts, [&](const Cut &cut) {
    return cut.op > 0 && cut.op < ops.size() && nameOf(cut.op - 1) == nameOf(cut.op);
  });
  return cuts;
}

std::set<int32_t> search::opsOfState(const FlowGraph &graph, const FlowOp &state) {
  std::set<int32_t> ops;
  if (state.tied < 0)
    return ops;
  auto addUsers = [&](int32_t value) {
    for (const FlowUse &use : graph.values[static_cast<size_t>(value)].uses)
      if (graph.ops[static_cast<size_t>(use.op)].kind == FlowKind::Compute)
        ops.insert(use.op);
  };
  addUsers(state.results[0]);
  int32_t next = graph.ops[static_cast<size_t>(state.tied)].operands[0];
  addUsers(next);
  if (int32_t maker = graph.values[static_cast<size_t>(next)].producer;
      graph.ops[static_cast<size_t>(maker)].kind == FlowKind::Compute)
    ops.insert(maker);
  return ops;
}

/// Drops the places that would part the ops of a state.
static std::vector<Cut> aroundStates(const FlowGraph &graph,
                                     const std::vector<int32_t> &ops,
                                     std::vector<Cut> cuts) {
  std::vector<bool> isInside(ops.size() + 1, false);
  for (const FlowOp &op : graph.ops) {
    if (op.kind != FlowKind::State)
      continue;
    std::set<int32_t> own = opsOfState(graph, op);
    if (own.empty())
      continue;
    auto place = [&](int32_t number) {
      return std::lower_bound(ops.begin(), ops.end(), number) - ops.begin();
    };
    for (auto i = place(*own.begin()) + 1; i <= place(*own.rbegin()); ++i)
      isInside[static_cast<size_t>(i)] = true;
  }
  std::erase_if(cuts, [&](const Cut &cut) { return isInside[cut.op]; });
  return cuts;
}

/// The ends, and of each run of equal work in between the place that fewest bytes cross.
static std::vector<Cut> worthLookingAt(const std::vector<Cut> &all, int32_t stages) {
  size_t most = std::min(mostPlaces, placesPerStage * static_cast<size_t>(stages));
  if (all.size() <= most)
    return all;
  double run = all.back().before / static_cast<double>(most);
  std::vector<Cut> cuts{all.front()};
  for (size_t i = 1; i + 1 < all.size();) {
    size_t best = i, end = i;
    for (; end + 1 < all.size() && all[end].before <= all[i].before + run; ++end)
      if (all[end].bytes < all[best].bytes)
        best = end;
    cuts.push_back(all[best]);
    i = end;
  }
  cuts.push_back(all.back());
  return cuts;
}

namespace {
/// The first k stages end at a place: what that costs, and where the last of them begins.
struct Best {
  double cost = never;
  size_t from = 0;
};
/// The cost of stages that cost `before` and one more, stage k, from place i to j.
using Extend = std::function<double(double before, size_t i, size_t j, size_t k)>;
} // namespace

/// Best cuts by number of stages and place.
static std::vector<std::vector<Best>> bestCut(size_t places, size_t stages,
                                              const Extend &extend) {
  std::vector<std::vector<Best>> best(stages + 1, std::vector<Best>(places));
  best[0][0].cost = 0;
  for (size_t k = 1; k <= stages; ++k)
    for (size_t j = k; j < places; ++j)
      for (size_t i = k - 1; i < j; ++i) {
        if (best[k - 1][i].cost == never)
          continue;
        double now = extend(best[k - 1][i].cost, i, j, k - 1);
        if (now < best[k][j].cost)
          best[k][j] = {now, i};
      }
  return best;
}

Expected<CutPlaces> search::cutPlaces(const FlowGraph &graph, const StageCost &cost,
                                      int32_t stages) {
  std::vector<int32_t> ops;
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (graph.ops[i].kind == FlowKind::Compute)
      ops.push_back(static_cast<int32_t>(i));
  if (ops.size() < static_cast<size_t>(stages))
    return makeError("the program has " + std::to_string(ops.size()) + " ops, too few " +
                     "for " + std::to_string(stages) + " stages");
  std::vector<Cut> all = aroundStates(graph, ops, allCuts(graph, cost, ops));
  if (all.size() <= static_cast<size_t>(stages))
    return makeError("the program can be cut into " + std::to_string(all.size() - 1) +
                     " stages at most, as the ops of a state are in one stage; " +
                     std::to_string(stages) + " are asked for");
  std::vector<Cut> cuts = worthLookingAt(betweenNodes(graph, ops, all), stages);
  if (cuts.size() <= static_cast<size_t>(stages))
    cuts = std::move(all);
  return CutPlaces{std::move(ops), std::move(cuts)};
}

std::vector<size_t>
search::evenBounds(const std::vector<Cut> &cuts, const StageCost &cost, int32_t stages,
                   const std::function<bool(size_t, size_t, size_t)> &fits) {
  auto seconds = [&](size_t i, size_t j, size_t stage) {
    if (fits && !fits(i, j, stage))
      return never;
    return (cuts[j].before - cuts[i].before) /
               (cost.ranks.empty() ? 1 : cost.ranks[stage]) +
           (cuts[i].bytes + cuts[j].bytes) / cost.bytesPerSecond;
  };
  // First how fast the slowest stage can be, then the fewest bytes with stages that are
  // no slower.
  const auto count = static_cast<size_t>(stages);
  double slowest = bestCut(cuts.size(), count,
                           [&](double before, size_t i, size_t j, size_t stage) {
                             return std::max(before, seconds(i, j, stage));
                           })[count]
                       .back()
                       .cost;
  if (slowest == never)
    return {};
  auto best =
      bestCut(cuts.size(), count, [&](double before, size_t i, size_t j, size_t stage) {
        return seconds(i, j, stage) > slowest ? never : before + cuts[j].bytes;
      });
  std::vector<size_t> bounds(count + 1, cuts.size() - 1);
  for (size_t k = count; k > 0; --k)
    bounds[k - 1] = best[k][bounds[k]].from;
  return bounds;
}

std::vector<int32_t> CutPlaces::stages(const std::vector<size_t> &bounds,
                                       const FlowGraph &graph) const {
  std::vector<int32_t> result(graph.ops.size(), -1);
  for (size_t k = 0; k + 1 < bounds.size(); ++k)
    for (size_t i = cuts[bounds[k]].op; i < cuts[bounds[k + 1]].op; ++i)
      result[static_cast<size_t>(ops[i])] = static_cast<int32_t>(k);
  const std::vector<bool> isOfParameters = madeOfParameters(graph);
  for (size_t i = graph.ops.size(); i-- > 0;) {
    if (!isOfParameters[i] || graph.ops[i].kind != FlowKind::Compute)
      continue;
    int32_t first = std::numeric_limits<int32_t>::max();
    for (int32_t value : graph.ops[i].results)
      for (const FlowUse &use : graph.values[static_cast<size_t>(value)].uses)
        if (int32_t stage = result[static_cast<size_t>(use.op)]; stage >= 0)
          first = std::min(first, stage);
    if (first < std::numeric_limits<int32_t>::max())
      result[i] = first;
  }
  return result;
}

Expected<std::vector<int32_t>>
search::cutIntoStages(const FlowGraph &graph, const StageCost &cost, int32_t stages) {
  return cutPlaces(graph, cost, stages).map([&](const CutPlaces &places) {
    return places.stages(evenBounds(places.cuts, cost, stages), graph);
  });
}
