//===- KnownPlans.cpp - Plans that people write ---------------------------===//
#include "partita/Search/KnownPlans.h"

#include "partita/Rule/Decide/Decide.h"
#include "partita/Rule/Decide/Kept.h"
#include "partita/Rule/Decide/ReadyRules.h"
#include "partita/Search/Memory.h"

#include <algorithm>
#include <set>

using namespace partita;
using namespace partita::search;

static KnownPlan priced(Timing &timing, std::string name, const Decided &plan) {
  return {std::move(name), evaluate(timing, plan).total(),
          memoryOf(timing, plan, 0).peak(), plan};
}

/// Each device keeps a part of every weight with one user that reads it whole; the weight
/// is gathered before its user runs.
static Decided fullySharded(const FlowGraph &graph, std::vector<Strategy> strategies) {
  Decided plan{std::move(strategies), {}};
  for (const FlowOp &op : graph.ops) {
    if (op.kind != FlowKind::Source)
      continue;
    const FlowValue &value = graph.values[static_cast<size_t>(op.results[0])];
    if (value.bytes() < ModelOptions().leastGathered)
      continue;
    if (auto kept = keptInParts(graph, plan.strategies, op.results[0], graph.mesh.all()))
      plan.servings[op.results[0]] = std::move(*kept);
  }
  return plan;
}

/// Parameters smaller than this stay whole, as is the default of optimizer_parallel.
static constexpr int64_t leastSplit = 65536;

/// Makes two readings of each that both passes share, of weights that lie in parts.
static void gatherAgain(const FlowGraph &graph, const std::map<int32_t, Layout> &homes,
                        Decided &plan) {
  for (const auto &[end, home] : homes) {
    const FlowOp &state = graph.ops[static_cast<size_t>(end)];
    if (!state.isParameter)
      continue;
    auto served = serveUses(graph, plan.strategies, state.results[0]);
    for (size_t i = 0, n = served.size(); i < n; ++i) {
      auto comesFrom = [&](const ServedLayout &it) {
        return it.from == static_cast<int32_t>(i);
      };
      if (served[i].halo || served[i].layout == home ||
          std::any_of(served.begin(), served.end(), comesFrom))
        continue;
      ServedLayout again = served[i];
      auto isBackward = [&](const FlowUse &use) {
        return !graph.ops[static_cast<size_t>(use.op)].isForward();
      };
      std::erase_if(served[i].uses, isBackward);
      std::erase_if(again.uses, [&](const FlowUse &use) { return !isBackward(use); });
      if (served[i].uses.empty())
        served[i] = std::move(again);
      else if (!again.uses.empty())
        served.push_back(std::move(again));
    }
    giveEpochs(graph, home, served);
    plan.servings[state.results[0]] = std::move(served);
  }
}

/// A plan whose parameters lie in parts, as optimizer_parallel has them.
static KnownPlan withParts(Timing &timing, std::string name, Decision decision, int level,
                           const std::vector<ParameterOps> &parameters) {
  const FlowGraph &graph = timing.graph;
  std::vector<std::string> notes;
  std::map<int32_t, Layout> homes =
      optimizerHomes(graph, decision, {level, leastSplit, -1}, parameters, notes);
  placeOptimizer(graph, homes, parameters, decision);
  Decided plan{std::move(decision.strategies), std::move(decision.servings)};
  gatherAgain(graph, homes, plan);
  return priced(timing, std::move(name), plan);
}

/// Hints for the columns of products with weights that are in no block, above all those
/// of the head: the vocabulary is split too.
static void addColumns(const FlowGraph &graph, const AxisList &axes, Hints &hints) {
  std::set<int32_t> inBlocks;
  for (const Block &block : findBlocks(graph)) {
    inBlocks.insert(block.row);
    inBlocks.insert(block.columns.begin(), block.columns.end());
  }
  for (size_t o = 0; o < graph.ops.size(); ++o) {
    const FlowOp &op = graph.ops[o];
    if (!isMatmul(op) || !op.isForward() || inBlocks.count(static_cast<int32_t>(o)))
      continue;
    int32_t producer = graph.values[static_cast<size_t>(op.operands[1])].producer;
    const FlowOp &weight = graph.ops[static_cast<size_t>(producer)];
    const TensorFactors &result = op.rule.results[0];
    const TensorFactors &columns = op.rule.operands[1];
    if ((weight.kind != FlowKind::Source && !weight.isParameter) || result.empty() ||
        std::find(columns.begin(), columns.end(), result.back()) == columns.end())
      continue;
    std::vector<DimHint> dims(result.size());
    dims.back().open = false;
    for (const AxisRef &axis : axes)
      dims.back().axes.push_back(graph.mesh.str(axis));
    hints.nodes.push_back({op.name, {}, {std::move(dims)}, 1});
  }
}

/// A ready rule over an axis, with the batch over the axes that it leaves and, where that
/// can be, the vocabulary split too, and the same with its moments in parts; nothing
/// where the model has no blocks of its kind, or none that divides.
static std::vector<KnownPlan> byRule(const FlowGraph &given, const Placement &placement,
                                     const std::string &rule, const AxisRef &axis,
                                     const std::vector<ParameterOps> &parameters) {
  auto blocks = readyHints(given, rule + ":" + given.mesh.str(axis));
  if (!blocks || blocks->nodes.empty())
    return {};
  Hints withHead = *blocks;
  addColumns(given, {axis}, withHead);
  auto copy = std::make_unique<FlowGraph>(given); // hints may cut its dims
  auto decision = decide(*copy, ShardMode::DataParallel, withHead);
  if (!decision) {
    copy = std::make_unique<FlowGraph>(given);
    decision = decide(*copy, ShardMode::DataParallel, *blocks);
  }
  if (!decision)
    return {};
  const FlowGraph &graph = *copy;
  Timing timing(graph, placement);
  std::vector<KnownPlan> plans{
      priced(timing, rule, {decision->strategies, decision->servings})};
  if (!parameters.empty())
    plans.push_back(
        withParts(timing, rule + " zero-1", std::move(*decision), 1, parameters));
  if (graph.atoms.size() != given.atoms.size())
    for (KnownPlan &plan : plans)
      plan.plan.reset();
  return plans;
}

/// The batch over all axes, and what is kept in parts of that.
static std::vector<KnownPlan> dataParallel(FlowGraph &graph, const Placement &placement,
                                           const std::vector<ParameterOps> &parameters) {
  Timing timing(graph, placement);
  auto decision = decide(graph, ShardMode::DataParallel, {});
  if (!decision)
    return {};
  std::vector<KnownPlan> plans{
      priced(timing, "data-parallel", {decision->strategies, {}})};
  if (parameters.empty()) {
    plans.push_back(priced(timing, "fully sharded",
                           fullySharded(graph, std::move(decision->strategies))));
    return plans;
  }
  bool accumulates =
      std::any_of(parameters.begin(), parameters.end(),
                  [](const ParameterOps &p) { return !p.gradients.empty(); });
  for (int level : {1, 2, 3})
    if (level != 2 || accumulates)
      plans.push_back(withParts(timing, "zero-" + std::to_string(level), *decision, level,
                                parameters));
  return plans;
}

/// Those of ready rules alone: the others are the same on every mesh.
static std::vector<KnownPlan> readyPlans(const FlowGraph &graph,
                                         const Placement &placement,
                                         const std::vector<ParameterOps> &parameters) {
  std::vector<KnownPlan> plans;
  for (const char *rule : {"megatron", "megatron-sp", "megatron-ep"})
    for (const AxisRef &axis : graph.mesh.all())
      if (axis.size > 1)
        for (KnownPlan &plan : byRule(graph, placement, rule, axis, parameters))
          plans.push_back(std::move(plan));
  for (KnownPlan &plan : plans)
    plan.mesh = graph.mesh.str();
  return plans;
}

std::vector<KnownPlan> search::knownPlans(const FlowGraph &graph,
                                          const Placement &placement,
                                          const std::vector<ParameterOps> &parameters) {
  FlowGraph copy = graph; // what is decided may cut its dims
  std::vector<KnownPlan> plans = dataParallel(copy, placement, parameters);
  for (KnownPlan &plan : plans) {
    plan.mesh = graph.mesh.str();
    plan.isOfBatch = true;
    if (copy.atoms.size() != graph.atoms.size())
      plan.plan.reset();
  }
  for (KnownPlan &plan : readyPlans(graph, placement, parameters))
    plans.push_back(std::move(plan));
  return plans;
}

/// The best of plans with one name, names in the order in which they come.
static std::vector<KnownPlan> bestOfEach(std::vector<KnownPlan> plans,
                                         std::optional<int64_t> memoryLimit) {
  auto rank = [&](const KnownPlan &plan) {
    return std::pair(memoryLimit && plan.memory > *memoryLimit, plan.time);
  };
  std::vector<KnownPlan> best;
  for (KnownPlan &plan : plans) {
    auto same = std::ranges::find(best, plan.name, &KnownPlan::name);
    if (same == best.end())
      best.push_back(std::move(plan));
    else if (rank(plan) < rank(*same))
      *same = std::move(plan);
  }
  return best;
}

std::vector<KnownPlan> search::knownPlans(const std::vector<MeshProgram> &meshes,
                                          std::optional<int64_t> memoryLimit,
                                          const std::vector<KnownPlan> *first) {
  std::vector<KnownPlan> known;
  // A mesh whose plans are slower than the best of each name has none to tell.
  auto isBehind = [&](Picos bound) {
    return std::ranges::all_of(known, [&](const KnownPlan &it) {
      return it.isOfBatch ||
             ((!memoryLimit || it.memory <= *memoryLimit) && it.time <= bound);
    });
  };
  for (const MeshProgram &it : meshes) {
    const bool isFirst = &it == &meshes.front();
    if (!isFirst && isBehind(it.lowerBound))
      continue;
    std::vector<KnownPlan> more = isFirst && first ? *first
                                  : isFirst
                                      ? knownPlans(it.graph, it.placement, it.parameters)
                                      : readyPlans(it.graph, it.placement, it.parameters);
    known.insert(known.end(), more.begin(), more.end());
    known = bestOfEach(std::move(known), memoryLimit);
  }
  return known;
}
