//===- SearchPlan.cpp - Deciding by search --------------------------------===//
#include "passes/Shard/SearchPlan.h"

#include "partita/Base/Units.h"
#include "partita/Search/Compare.h"
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
          propagated.origins[static_cast<size_t>(atoms[i])] = {"the search", -1};
        }
    }
}

static std::string noteOf(const search::Found &found, const PlanTarget &target) {
  char gap[32];
  std::snprintf(gap, sizeof gap, "%.2g%%", 100 * found.gap());
  return "auto: predicted " + seconds(found.cost.total()) + " per run (" +
         seconds(found.cost.compute) + " of work, " + seconds(found.cost.conversions) +
         " of conversions) on " + target.topology.device.name + "; " +
         (found.proved ? "no plan is faster"
                       : "no plan is faster than " + seconds(found.lowerBound) +
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

PlanCertificate::Rates partita::ratesOf(const dist::ProgramFlow &flow,
                                        const search::Found &found,
                                        const PlanTarget &target) {
  search::Throughput got = search::throughputOf(
      search::modelWork(flow.graph), target.topology.device, flow.graph.mesh.numRanks(),
      static_cast<double>(found.cost.total()) * 1e-12);
  return {got.flopsPerDevice, got.utilization, got.samplesPerSecond, got.tokensPerSecond};
}

void partita::writeFound(FunctionOpInterface function, const dist::ProgramFlow &flow,
                         const search::Found &found, const PlanTarget &target) {
  const search::Decided &plan = found.plan;
  dist::writeStrategies(function, flow, plan.strategies);
  for (const auto &[value, served] : plan.servings)
    dist::writeServed(function, flow, value,
                      servedEntries(flow.graph, plan.strategies, value, served));
  Builder builder(function.getContext());
  auto number = [&](int64_t n) { return builder.getI64IntegerAttr(n); };
  SmallVector<NamedAttribute> known{
      builder.getNamedAttr("picoseconds", number(found.cost.total())),
      builder.getNamedAttr("lower_bound", number(found.lowerBound)),
      builder.getNamedAttr("memory", number(found.memory.peak())),
      builder.getNamedAttr("received", number(found.cost.receivedBytes))};
  if (target.memoryLimit)
    known.push_back(builder.getNamedAttr("memory_limit", number(*target.memoryLimit)));
  if (const MemoryReserve &reserve = target.reserve; reserve.total() > 0)
    known.append(
        {builder.getNamedAttr("reserve_context", number(reserve.context)),
         builder.getNamedAttr("reserve_communicators", number(reserve.communicators)),
         builder.getNamedAttr("reserve_fragmentation", number(reserve.fragmentation))});
  auto rate = [&](const char *name, double value) {
    if (value > 0)
      known.push_back(builder.getNamedAttr(name, builder.getF64FloatAttr(value)));
  };
  PlanCertificate::Rates rates = ratesOf(flow, found, target);
  rate("flops_per_device", rates.flopsPerDevice);
  rate("utilization", rates.utilization);
  rate("samples", rates.samples);
  rate("tokens", rates.tokens);
  function->getParentOfType<ModuleOp>()->setAttr(dist::certificateAttr,
                                                 builder.getDictionaryAttr(known));
}

std::optional<PlanCertificate> partita::certificateOf(ModuleOp module) {
  auto known = module->getAttrOfType<DictionaryAttr>(dist::certificateAttr);
  if (!known)
    return std::nullopt;
  auto number = [&](StringRef name) -> int64_t {
    auto value = known.getAs<IntegerAttr>(name);
    return value ? value.getInt() : 0;
  };
  PlanCertificate result;
  result.stepSeconds = static_cast<double>(number("picoseconds")) * 1e-12;
  result.lowerBoundSeconds = static_cast<double>(number("lower_bound")) * 1e-12;
  result.gap =
      result.stepSeconds == 0 ? 0 : 1 - result.lowerBoundSeconds / result.stepSeconds;
  result.proved = number("picoseconds") == number("lower_bound");
  result.memoryPerDevice = number("memory");
  if (known.contains("memory_limit"))
    result.memoryLimit = number("memory_limit");
  result.communicationBytes = number("received");
  if (known.contains("reserve_context"))
    result.memoryReserve = {number("reserve_context"), number("reserve_communicators"),
                            number("reserve_fragmentation")};
  auto rate = [&](StringRef name) {
    auto value = known.getAs<FloatAttr>(name);
    return value ? value.getValueAsDouble() : 0;
  };
  result.rates = {rate("flops_per_device"), rate("utilization"), rate("samples"),
                  rate("tokens")};
  return result;
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
  auto found = search::orKnown(search::search(graph, *placement, options), graph,
                               *placement, parametersOf(function, flow), options);
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
  decision.notes.push_back(noteOf(*found, *target));
  explain(graph, decision);
  writeFound(function, flow, *found, *target);
  return decision;
}
