//===- StageMachine.cpp - Where stages lie, and what they cost there ------===//
#include "passes/Pipelines/StageMachine.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Base/Units.h"
#include "partita/Search/Timing.h"
#include "partita/Topology/HostFile.h"
#include "partita/Topology/Part.h"
#include "passes/Shard/SearchPlan.h"
#include "passes/Stage/Stages.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

using namespace mlir;
using namespace partita;

std::vector<int64_t> StageMachine::ranksOf(int64_t group) const {
  int64_t first = 0;
  for (int64_t g = 0; g < group; ++g)
    first += meshOf(g).numRanks();
  std::vector<int64_t> ranks(static_cast<size_t>(meshOf(group).numRanks()));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

/// The slowest link between neighbours among the groups of ranks, which are as many as
/// the cluster has devices.
Expected<double> StageMachine::slowestLink(const Topology &all) const {
  double slowest = std::numeric_limits<double>::infinity();
  int64_t ranks = 0;
  for (int64_t g = 0; g < order.numGroups(); ++g) {
    if (ranks > 0 && ranks < all.numDevices())
      slowest =
          std::min(slowest, all.levels[levelBetween(all, ranks - 1, ranks)].effective());
    ranks += meshOf(g).numRanks();
  }
  if (ranks != all.numDevices())
    return makeError("the stages are on " + std::to_string(ranks) +
                     " ranks, the cluster '" + machine.file + "' has " +
                     std::to_string(all.numDevices()) + " devices");
  return slowest;
}

Expected<search::StageCost> StageMachine::costOf(const FlowGraph &graph) const {
  auto target = planTarget(Mesh(), machine);
  auto host = hostDevice();
  if (!target || !host)
    return tl::unexpected(target ? host.error() : target.error());
  auto link = !machine.cluster ? host->level.effective() : slowestLink(target->topology);
  if (!link)
    return tl::unexpected(link.error());
  Topology one{target->topology.device, {}, target->topology.host};
  auto placement = Placement::create(graph.mesh, one);
  if (!placement)
    return tl::unexpected(placement.error());
  search::Timing timing(graph, *placement);
  search::StageCost cost;
  for (size_t i = 0; i < graph.ops.size(); ++i)
    cost.seconds.push_back(
        1e-12 * static_cast<double>(timing.op(static_cast<int32_t>(i),
                                              Strategy::replicated(graph.ops[i].rule))));
  cost.bytesPerSecond = *link;
  for (int64_t group : order.groupOf)
    cost.ranks.push_back(static_cast<double>(meshOf(group).numRanks()));
  return cost;
}

/// The bytes of a step's work: what is kept of forward ops, and states. `numberOf`: the
/// number of the forward op that an op of the step belongs to; below 0: none.
static void addBytes(const dist::ProgramFlow &flow,
                     llvm::function_ref<int32_t(size_t)> numberOf,
                     search::StepWork &work) {
  const FlowGraph &graph = flow.graph;
  auto isMarked = [&](int32_t op) {
    Operation *operation = flow.operations[static_cast<size_t>(op)];
    return operation && operation->hasAttr(recomputeAttr);
  };
  std::vector<bool> isKept(graph.values.size(), false);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const FlowOp &op = graph.ops[i];
    if (op.kind != FlowKind::Compute ||
        (op.phase == Phase::Forward && !isMarked(static_cast<int32_t>(i))))
      continue;
    for (int32_t read : op.operands) {
      // A view has no bytes of its own.
      auto maker = [&] { return graph.values[static_cast<size_t>(read)].producer; };
      while (graph.ops[static_cast<size_t>(maker())].facts.kind == kernels::OpKind::View)
        read = graph.ops[static_cast<size_t>(maker())].operands[0];
      const FlowOp &made = graph.ops[static_cast<size_t>(maker())];
      isKept[static_cast<size_t>(read)] = made.kind == FlowKind::Compute &&
                                          made.phase == Phase::Forward &&
                                          !isMarked(maker());
    }
  }
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const FlowOp &op = graph.ops[i];
    if (op.kind == FlowKind::State) {
      const FlowValue &state = graph.values[static_cast<size_t>(op.results[0])];
      int32_t number = -1;
      for (const FlowUse &use : state.uses)
        number = number < 0 ? numberOf(static_cast<size_t>(use.op)) : number;
      if (number >= 0)
        work.states[static_cast<size_t>(number)] +=
            static_cast<double>(state.bytes() * (op.isParameter ? 2 : 1));
    }
    for (int32_t result : op.results)
      if (isKept[static_cast<size_t>(result)] && numberOf(i) >= 0)
        work.kept[static_cast<size_t>(numberOf(i))] +=
            static_cast<double>(graph.values[static_cast<size_t>(result)].bytes());
  }
}

Expected<search::StepWork> StageMachine::workOf(ModuleOp step,
                                                const FlowGraph &forward) const {
  auto flow = dist::buildFlow(step.lookupSymbol<func::FuncOp>("main"), *Mesh::parse(""),
                              dist::Callees::Inlined);
  if (failed(flow))
    return makeError("the step has an op without a rule");
  FlowGraph &graph = (*flow)->graph;
  graph.finalize();
  auto numberOf = stagesOfStep(step);
  if (!numberOf)
    return tl::unexpected(numberOf.error());
  const std::vector<double> none(forward.ops.size(), 0);
  search::StepWork work{none, none, none, none, none, none};
  auto numbered = [&](size_t i) {
    auto number = numberOf->find((*flow)->operations[i]);
    return number == numberOf->end() ? -1 : number->second;
  };
  addBytes(**flow, numbered, work);
  return costOf(graph).map([&](const search::StageCost &cost) {
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      const FlowOp &op = graph.ops[i];
      const int32_t number = numbered(i);
      if (number < 0)
        continue;
      auto &part = op.phase == Phase::Forward    ? work.forward
                   : op.phase == Phase::Backward ? work.backward
                   : op.phase == Phase::Weight   ? work.weight
                                                 : work.update;
      part[static_cast<size_t>(number)] +=
          cost.seconds[i] / static_cast<double>(op.trips);
    }
    return work;
  });
}

Expected<StageMachine::CutStep> StageMachine::cut(ModuleOp step, const FlowGraph &forward,
                                                  const PipelineStep &order,
                                                  bool sharesStates) const {
  auto work = workOf(step, forward);
  auto cost = costOf(forward);
  auto target = planTarget(Mesh(), machine);
  if (!work || !cost || !target)
    return tl::unexpected(!work ? work.error() : !cost ? cost.error() : target.error());
  search::StepMemory memory{.sharesStates = sharesStates};
  if (target->memoryLimit)
    memory.bytes = static_cast<double>(*target->memoryLimit);
  return search::cutStep(forward, *work, *cost, order, memory)
      .map([&](search::StepCut made) {
        cost->seconds = work->perMicroBatch(order.microBatches);
        CutStep cut{std::move(made.stages), std::move(*cost), {}};
        if (made.bytes > memory.bytes)
          cut.note = "no cut into stages is known that fits: of the fastest one, states "
                     "and what is kept of micro-batches take " +
                     bytesText(static_cast<int64_t>(made.bytes)) +
                     " of a device, the limit is " + bytesText(*target->memoryLimit);
        return cut;
      });
}

std::vector<std::string> StageMachine::notesOf(const FlowGraph &graph,
                                               const search::StageCost &cost,
                                               const std::vector<int32_t> &stages) const {
  const auto count = static_cast<size_t>(1 + *std::ranges::max_element(stages));
  std::vector<std::string> notes;
  double all = 0;
  const std::vector<bool> isMadeAgain = search::madeOfParameters(graph);
  std::vector<double> seconds(count, 0);
  std::vector<int64_t> ops(count, 0), sent(count, 0);
  std::vector<std::string> first(count), last(count);
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i] < 0)
      continue;
    auto s = static_cast<size_t>(stages[i]);
    all += cost.seconds[i];
    seconds[s] += cost.seconds[i];
    if (ops[s]++ == 0)
      first[s] = graph.ops[i].name;
    last[s] = graph.ops[i].name;
    if (isMadeAgain[i])
      continue;
    for (int32_t value : graph.ops[i].results) {
      const FlowValue &it = graph.values[static_cast<size_t>(value)];
      std::set<int32_t> to;
      for (const FlowUse &use : it.uses)
        if (stages[static_cast<size_t>(use.op)] > stages[i])
          to.insert(stages[static_cast<size_t>(use.op)]);
      sent[s] +=
          static_cast<int64_t>(to.size()) * elementCount(it.shape) * it.elementBytes;
    }
  }
  for (size_t s = 0; s < count; ++s)
    notes.push_back(
        "stage " + std::to_string(s) + ": " + std::to_string(ops[s]) + " ops from '" +
        first[s] + "' to '" + last[s] + "', " +
        std::to_string(static_cast<int>(100 * seconds[s] / std::max(all, 1e-30) + 0.5)) +
        "% of the work" +
        (sent[s] ? ", sends " + bytesText(sent[s]) + " per micro-batch" : "") +
        (meshOf(order.groupOf[s]).axes().empty()
             ? ""
             : ", on " + meshOf(order.groupOf[s]).str()) +
        (order.numGroups() < static_cast<int64_t>(count)
             ? ", in group " + std::to_string(order.groupOf[s])
             : ""));
  return notes;
}
