//===- Work.cpp - Who computes what, and what twice -----------------------===//
#include "partita/Rule/Decide/Work.h"

#include <algorithm>
#include <cmath>

using namespace partita;

/// Whether axes have a part of the mesh axis, or how many of its ranks they tell apart.
static int64_t waysAlong(const AxisList &axes, int32_t axis) {
  int64_t ways = 1;
  for (const AxisRef &it : axes)
    if (it.axis == axis)
      ways *= it.size;
  return ways;
}

Work partita::workOf(const FlowGraph &graph, const std::vector<Strategy> &strategies) {
  Work work;
  std::vector<int32_t> numbers;
  for (size_t a = 0; a < graph.mesh.axes().size(); ++a)
    if (int64_t size = graph.mesh.axes()[a].size; size > 1) {
      numbers.push_back(static_cast<int32_t>(a));
      work.axes.push_back({graph.mesh.axes()[a].name, size, 0, 0});
    }
  double distinct = 0, computed = 0, undivided = 0;
  std::vector<std::pair<double, std::string>> whole;
  const auto ranks = static_cast<double>(graph.mesh.numRanks());
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const FlowOp &op = graph.ops[i];
    double flops = static_cast<double>(op.flops) * static_cast<double>(op.trips);
    if (op.kind != FlowKind::Compute)
      continue;
    if (!numbers.empty() && strategies[i].axes().empty()) {
      undivided += flops;
      whole.emplace_back(-flops, op.name);
    }
    if (flops == 0)
      continue;
    work.total += flops;
    // Of every loop a rank does its block, which the last blocks fill in part.
    double most = flops, mean = flops;
    std::vector<bool> idle(numbers.size());
    AxisList used;
    for (const DimLayout &dim : strategies[i].factors)
      for (const DimFactor &factor : dim.factors) {
        int64_t shards = factor.shards();
        if (shards == 1)
          continue;
        most *= static_cast<double>(factor.local()) / static_cast<double>(factor.size);
        mean /= static_cast<double>(shards);
        used.insert(used.end(), factor.axes.begin(), factor.axes.end());
        int64_t full = (factor.size + factor.local() - 1) / factor.local();
        for (size_t n = 0; n < numbers.size(); ++n)
          if (factor.blocks.empty() && full < shards &&
              waysAlong(factor.axes, numbers[n]) > 1)
            idle[n] = true;
      }
    work.mostPerRank += most;
    work.meanPerRank += mean;
    distinct += flops;
    computed += mean * ranks;
    for (size_t n = 0; n < numbers.size(); ++n) {
      // Of an axis of which a part is used, the other part is not.
      double ways = static_cast<double>(waysAlong(used, numbers[n]));
      double size = static_cast<double>(work.axes[n].size);
      work.axes[n].unused += flops * (1 - std::log(ways) / std::log(size));
      work.axes[n].onlyPadding += idle[n] ? flops : 0;
    }
  }
  std::sort(whole.begin(), whole.end());
  work.numWhole = whole.size();
  for (auto &[flops, name] : whole) // a node may be several ops
    if (std::find(work.whole.begin(), work.whole.end(), name) == work.whole.end())
      work.whole.push_back(std::move(name));
  if (work.total == 0)
    return work;
  work.wholeShare = undivided / work.total;
  work.duplicated = computed == 0 ? 0 : 1 - distinct / computed;
  for (Work::Axis &axis : work.axes) {
    axis.unused /= work.total;
    axis.onlyPadding /= work.total;
  }
  return work;
}

static std::string percent(double share) {
  return std::to_string(std::lround(100 * share)) + "%";
}

/// "2 ops (41% of the work) run whole on every rank: 'fc2', 'act'".
static std::string wholeText(const Work &work) {
  constexpr size_t shown = 3;
  bool isOne = work.numWhole == 1;
  std::string text = std::to_string(work.numWhole) + (isOne ? " op (" : " ops (") +
                     percent(work.wholeShare) + " of the work) " +
                     (isOne ? "runs" : "run") + " whole on every rank: ";
  for (size_t i = 0; i < std::min(work.whole.size(), shown); ++i)
    text += (i ? ", '" : "'") + work.whole[i] + "'";
  return text + (work.whole.size() > shown ? ", …" : "");
}

std::vector<std::string> partita::workNotes(const Work &work) {
  // A smaller share is no fault of a plan: normalizations and the like.
  constexpr double told = 0.1, all = 0.995;
  std::vector<std::string> notes;
  std::string sentence = work.whole.empty() ? "" : wholeText(work);
  for (const Work::Axis &axis : work.axes) {
    std::string alike =
        "the " + std::to_string(axis.size) + " ranks along it compute the same";
    // Work that no axis divides has been told of.
    double others = axis.unused - work.wholeShare;
    if (axis.unused > all && work.wholeShare <= all)
      notes.push_back("axis " + axis.name + " is not used: " + alike);
    else if (others >= told)
      sentence += (sentence.empty() ? "axis " : "; besides, axis ") + axis.name +
                  " is not used by " + percent(others) + " of the work: there " + alike;
    if (axis.onlyPadding >= told)
      notes.push_back("along axis " + axis.name + " some ranks have only padding in " +
                      percent(axis.onlyPadding) +
                      " of the work: a dim has too few "
                      "elements for " +
                      std::to_string(axis.size) + " blocks");
  }
  if (!sentence.empty())
    notes.insert(notes.begin(), std::move(sentence));
  return notes;
}
