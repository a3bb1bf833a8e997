//===- SearchPlan.cpp - Deciding by search --------------------------------===//
#include "passes/Shard/SearchPlan.h"

#include "dialects/Dist/PlanAttributes.h"
#include "partita/Base/Units.h"
#include "partita/Search/Narrowed.h"
#include "partita/Search/Throughput.h"
#include "partita/Topology/HostFile.h"
#include "passes/Shard/OptimizerStates.h"

#include "mlir/IR/BuiltinOps.h"

#include <cstdio>

using namespace mlir;
using namespace partita;

/// Work after which the solver stops, so that every machine has the same plan: some
/// seconds.
static constexpr int64_t mostWork = 4'000'000;

static std::string seconds(search::Picos time) {
  return durationText(static_cast<double>(time) * 1e-12);
}

/// Says for every loop that is split that it was the search.
static void explain(const FlowGraph &graph, Decision &decision) {
  Propagated &propagated = decision.propagated;
  propagated.axes.resize(graph.atoms.size());
  propagated.origins.resize(graph.atoms.size());
  for (size_t op = 0; op < graph.ops.size(); ++op)
    for (size_t f = 0; f < graph.ops[op].rule.factors.size(); ++f) {
      const auto &atoms =
          graph.atomsOf(static_cast<int32_t>(op), static_cast<int32_t>(f));
      const DimLayout &dim = decision.strategies[op].factors[f];
      for (size_t i = 0; i < atoms.size() && i < dim.factors.size(); ++i)
        if (!dim.factors[i].axes.empty()) {
          propagated.axes[static_cast<size_t>(atoms[i])] = dim.factors[i].axes;
          propagated.origins[static_cast<size_t>(atoms[i])] = {"search", -1};
        }
    }
}

std::string partita::searchNote(const search::Found &found,
                                const std::optional<search::PlanRequest> &request,
                                const PlanTarget &target) {
  char gap[32];
  std::snprintf(gap, sizeof gap, "%.2g%%", 100 * found.gap());
  return "auto: predicted " + seconds(found.cost.total()) + " per run (" +
         seconds(found.cost.compute) + " of work, " + seconds(found.cost.conversions) +
         " of conversions" +
         (request ? "; a request " + durationText(request->seconds()) : std::string()) +
         ") on " + target.topology.device.name + "; " +
         (found.proved ? "no plan is faster"
                       : "no plan is faster than " + seconds(found.bound.time) +
                             ", a gap of " + gap) +
         (target.isHost
              ? "; no cluster file was given, so each mesh axis is taken for a level "
                "of shared memory" +
                    std::string(target.isCalibrated
                                    ? " as it was measured on this host"
                                    : "; partita calibrate measures this host")
              : "");
}

std::string partita::reserveText(int64_t context, int64_t communicators,
                                 int64_t fragmentation) {
  return bytesText(context + communicators + fragmentation) +
         " are kept: " + bytesText(context) + " for driver and context, " +
         bytesText(communicators) + " for communicators, " + bytesText(fragmentation) +
         " for fragmentation";
}

Expected<PlanTarget> partita::planTarget(const Mesh &mesh, const Machine &machine) {
  PlanTarget target;
  target.memoryLimit = machine.memory;
  if (!machine.cluster) {
    auto host = hostDevice();
    if (!host)
      return tl::unexpected(host.error());
    target.topology = topologyOfMesh(mesh, host->device, host->level, host->host);
    target.isHost = true;
    target.isCalibrated = host->calibrated;
  } else {
    target.topology = *machine.cluster;
    if (!machine.isExact)
      target.reserve = target.topology.device.reserve;
  }
  return target;
}

std::string partita::narrowedNote(const FlowGraph &graph, const Decision &decision,
                                  const Machine &machine, DType type) {
  auto target = planTarget(graph.mesh, machine);
  if (!target)
    return {};
  const Device &device = target->topology.device;
  const bool isListed = llvm::is_contained(llvm::make_first_range(device.peak), type);
  if (!isListed || device.peakOf(type) <= device.peakOf(DType::F32))
    return {};
  auto placement = Placement::create(graph.mesh, target->topology);
  if (!placement)
    return {};
  const search::NarrowedTimes times = search::narrowedTimes(
      graph, *placement, {decision.strategies, decision.servings}, type);
  constexpr double leastGain = 0.02;
  if (times.share() > 1 - leastGain)
    return {};
  return "--compute " + std::string(name(type)) +
         formatted(" would take %.2f of this plan's time (", times.share()) +
         durationText(times.after) + " of " + durationText(times.before) +
         ", both predicted), with the roundings of that type";
}

PlanCertificate::Bound partita::planBound(const search::Bound &bound) {
  return {static_cast<double>(bound.time) * 1e-12, search::withinTexts(bound),
          search::ignoresTexts(bound)};
}

PlanCertificate::Rates partita::ratesOf(const dist::ProgramFlow &flow,
                                        const search::Found &found,
                                        const PlanTarget &target) {
  search::Throughput got = search::throughputOf(
      search::modelWork(flow.graph), target.topology.device, flow.graph.mesh.numRanks(),
      static_cast<double>(found.cost.total()) * 1e-12);
  return {got.flopsPerDevice, got.utilization, got.samplesPerSecond, got.tokensPerSecond};
}

void partita::writeFound(FunctionOpInterface function, const dist::ProgramFlow &flow,
                         const search::Found &found,
                         const std::optional<search::PlanRequest> &request,
                         const PlanTarget &target) {
  const search::Decided &plan = found.plan;
  dist::writeStrategies(function, flow, plan.strategies);
  for (const auto &[value, served] : plan.servings)
    dist::writeServed(function, flow, value,
                      servedEntries(flow.graph, plan.strategies, value, served));
  PlanCertificate known;
  auto seconds = [](search::Picos time) { return static_cast<double>(time) * 1e-12; };
  known.stepSeconds = seconds(found.cost.total());
  if (request)
    known.requestSeconds = request->seconds();
  known.setBound(planBound(found.bound));
  known.memoryPerDevice = found.memory.peak();
  known.memoryLimit = target.memoryLimit;
  known.communicationBytes = found.cost.receivedBytes;
  if (const MemoryReserve &reserve = target.reserve; reserve.total() > 0)
    known.memoryReserve = {reserve.context, reserve.communicators, reserve.fragmentation};
  known.rates = ratesOf(flow, found, target);
  known.device = target.topology.device.name;
  for (const LinkLevel &level : target.topology.levels)
    known.levels.push_back({level.name, level.size});
  dist::setCertificate(function->getParentOfType<ModuleOp>(), known);
}

Expected<Decision> partita::decideBySearch(FunctionOpInterface function,
                                           const dist::ProgramFlow &flow,
                                           const Machine &machine,
                                           const search::Pins &pins) {
  const FlowGraph &graph = flow.graph;
  auto target = planTarget(graph.mesh, machine);
  if (!target)
    return tl::unexpected(target.error());
  auto placement = Placement::create(graph.mesh, target->topology);
  if (!placement)
    return tl::unexpected(placement.error());
  search::SearchOptions options;
  options.workLimit = mostWork;
  options.memoryLimit = target->memoryLimit;
  options.pins = pins;
  auto found = search::search(graph, *placement, options, parametersOf(function, flow));
  if (!found) {
    std::string text = "no plan: " + found.error().message;
    if (const auto &least = found.error().least)
      text += "; the plan of least memory that was found is expected to need " +
              std::to_string(least->peak()) + " bytes: " + search::kindsText(*least);
    return makeError(text);
  }
  Decision decision;
  decision.strategies = found->plan.strategies;
  decision.servings = found->plan.servings;
  decision.price = price(graph, found->plan.strategies, found->plan.servings);
  const auto request = search::requestOf(graph, target->topology, found->plan);
  decision.notes.push_back(searchNote(*found, request, *target));
  explain(graph, decision);
  writeFound(function, flow, *found, request, *target);
  return decision;
}
