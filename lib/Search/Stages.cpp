//===- Stages.cpp - A program cut into pipeline stages --------------------===//
#include "partita/Search/Stages.h"

#include "partita/Rule/Decide/ModuleNames.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <set>

using namespace partita;
using namespace partita::search;

/// Places that are looked at per stage, and in all.
static constexpr size_t placesPerStage = 64, mostPlaces = 1024;
static constexpr double never = std::numeric_limits<double>::infinity();

namespace {
/// A place between two ops: work before it, bytes that cross it.
struct Cut {
  size_t op = 0; ///< the first op behind it, among those that compute
  double before = 0;
  double bytes = 0;
};
} // namespace

/// Every place, the program's two ends among them. A value crosses from behind its
/// producer to its last user; sources and arguments are wherever they are read.
static std::vector<Cut> allCuts(const FlowGraph &graph, const StageCost &cost,
                                const std::vector<int32_t> &ops) {
  std::vector<size_t> place(graph.ops.size(), 0);
  for (size_t i = 0; i < ops.size(); ++i)
    place[static_cast<size_t>(ops[i])] = i;
  std::vector<double> change(ops.size() + 1, 0);
  for (const FlowValue &value : graph.values) {
    if (value.producer < 0 ||
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

/// Without the places inside a node that became several ops: hints speak of whole nodes.
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

/// The ops that read a state, make what becomes of it, or read that: they are in one
/// stage, where it lies. A state that nothing changes, as a parameter before its step is
/// derived, may be read in several.
static std::set<int32_t> opsOfState(const FlowGraph &graph, const FlowOp &state) {
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

/// Without the places that would part the ops of a state.
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

/// By number of stages and place.
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

Expected<std::vector<int32_t>>
search::cutIntoStages(const FlowGraph &graph, const StageCost &cost, int32_t stages) {
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
    cuts = all;
  auto seconds = [&](size_t i, size_t j, size_t stage) {
    return (cuts[j].before - cuts[i].before) /
               (cost.ranks.empty() ? 1 : cost.ranks[stage]) +
           (cuts[i].bytes + cuts[j].bytes) / cost.bytesPerSecond;
  };
  // First how fast the slowest stage can be, then the fewest bytes with stages that are
  // no slower.
  auto k = static_cast<size_t>(stages);
  double slowest = bestCut(cuts.size(), k,
                           [&](double before, size_t i, size_t j, size_t stage) {
                             return std::max(before, seconds(i, j, stage));
                           })[k]
                       .back()
                       .cost;
  auto best =
      bestCut(cuts.size(), k, [&](double before, size_t i, size_t j, size_t stage) {
        return seconds(i, j, stage) > slowest ? never : before + cuts[j].bytes;
      });
  std::vector<int32_t> result(graph.ops.size(), -1);
  size_t end = cuts.size() - 1;
  for (; k > 0; --k) {
    size_t begin = best[k][end].from;
    for (size_t i = cuts[begin].op; i < cuts[end].op; ++i)
      result[static_cast<size_t>(ops[i])] = static_cast<int32_t>(k) - 1;
    end = begin;
  }
  return result;
}

namespace {
/// Which stage globs want each op in.
class GlobStages {
public:
  GlobStages(const FlowGraph &graph, const std::string &where)
      : graph(graph), where(where), wanted(graph.ops.size(), -1),
        by(graph.ops.size(), nullptr) {}

  Expected<void> add(const std::string &glob, int32_t stage) {
    bool found = false;
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      const FlowOp &op = graph.ops[i];
      if (op.kind != FlowKind::Compute || !isNamed(graph, op, glob))
        continue;
      found = true;
      if (wanted[i] >= 0 && wanted[i] != stage)
        return makeError(where + ": node '" + op.name + "' is to be in stage " +
                         std::to_string(wanted[i]) + " by '" + *by[i] +
                         "' and in stage " + std::to_string(stage) + " by '" + glob +
                         "'");
      wanted[i] = stage;
      by[i] = &glob;
    }
    if (!found)
      return makeError(where + ": no node and no module is named '" + glob + "'" +
                       nearMisses(graph, glob));
    return {};
  }

  void set(size_t op, int32_t stage) { wanted[op] = stage; }

  Expected<std::vector<int32_t>> assign() const {
    std::vector<int32_t> result(graph.ops.size(), -1);
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      const FlowOp &op = graph.ops[i];
      if (op.kind != FlowKind::Compute)
        continue;
      int32_t latest = 0;
      const FlowOp *from = nullptr;
      for (int32_t operand : op.operands) {
        int32_t producer = graph.values[static_cast<size_t>(operand)].producer;
        if (producer >= 0 && result[static_cast<size_t>(producer)] > latest) {
          latest = result[static_cast<size_t>(producer)];
          from = &graph.ops[static_cast<size_t>(producer)];
        }
      }
      if (wanted[i] >= 0 && wanted[i] < latest)
        return makeError(where + ": node '" + op.name + "' is to be in stage " +
                         std::to_string(wanted[i]) + " and reads '" + from->name +
                         "', which is in stage " + std::to_string(latest));
      result[i] = std::max(wanted[i], latest);
    }
    return result;
  }

private:
  const FlowGraph &graph;
  const std::string &where;
  std::vector<int32_t> wanted;
  std::vector<const std::string *> by; ///< the glob that wants it
};
} // namespace

static Expected<void> checkStates(const FlowGraph &graph,
                                  const std::vector<int32_t> &stages,
                                  const std::string &where) {
  for (const FlowOp &op : graph.ops) {
    if (op.kind != FlowKind::State)
      continue;
    std::set<int32_t> own = opsOfState(graph, op);
    for (int32_t user : own)
      if (stages[static_cast<size_t>(user)] != stages[static_cast<size_t>(*own.begin())])
        return makeError(
            where + ": state '" + op.name + "' is used by '" +
            graph.ops[static_cast<size_t>(*own.begin())].name + "' in stage " +
            std::to_string(stages[static_cast<size_t>(*own.begin())]) + " and by '" +
            graph.ops[static_cast<size_t>(user)].name + "' in stage " +
            std::to_string(stages[static_cast<size_t>(user)]) +
            "; a state lies in one stage");
  }
  return {};
}

Expected<std::vector<int32_t>>
search::stagesByGlob(const FlowGraph &graph,
                     const std::vector<std::pair<std::string, int32_t>> &globs,
                     const std::string &where) {
  GlobStages stages(graph, where);
  int32_t count = 1;
  for (const auto &[glob, stage] : globs) {
    if (auto ok = stages.add(glob, stage); !ok)
      return tl::unexpected(ok.error());
    count = std::max(count, stage + 1);
  }
  auto result = stages.assign();
  if (!result)
    return result;
  if (auto ok = checkStates(graph, *result, where); !ok)
    return tl::unexpected(ok.error());
  std::set<int32_t> used(result->begin(), result->end());
  for (int32_t stage = 0; stage < count; ++stage)
    if (!used.count(stage))
      return makeError(where + ": stage " + std::to_string(stage) + " has no node");
  return result;
}

Expected<std::vector<int32_t>>
search::stagesByName(const FlowGraph &graph,
                     const std::map<std::string, int32_t> &stageOfNode,
                     const std::string &where) {
  GlobStages stages(graph, where);
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (auto known = stageOfNode.find(graph.ops[i].name);
        graph.ops[i].kind == FlowKind::Compute && known != stageOfNode.end())
      stages.set(i, known->second);
  auto result = stages.assign();
  if (!result)
    return result;
  if (auto ok = checkStates(graph, *result, where); !ok)
    return tl::unexpected(ok.error());
  return result;
}
