//===- SearchPlan.cpp - Deciding by search --------------------------------===//
#include "passes/Shard/SearchPlan.h"

#include "partita/Topology/Presets.h"
#include "partita/Topology/Quantity.h"

#include <cstdio>

using namespace partita;

/// Work after which the solver stops, so that every machine has the same plan: some
/// seconds.
static constexpr int64_t mostWork = 4'000'000;

/// This host: a device per rank, its levels the mesh axes.
static Topology hostTopology(const Mesh &mesh) {
  Host host = serverPreset("cpu-host")->host;
  return topologyOfMesh(mesh, *devicePreset("cpu-core"), *levelPreset("shared-memory"),
                        host);
}

static std::string seconds(search::Picos time) {
  char text[32];
  double value = static_cast<double>(time) * 1e-12;
  std::snprintf(text, sizeof text, value < 1e-3 ? "%.1f µs" : "%.3f ms",
                value * (value < 1e-3 ? 1e6 : 1e3));
  return text;
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

static std::string noteOf(const search::Found &found, const Topology &topology,
                          bool isHost) {
  char gap[32];
  std::snprintf(gap, sizeof gap, "%.2g%%", 100 * found.gap());
  return "auto: predicted " + seconds(found.cost.total()) + " per run (" +
         seconds(found.cost.compute) + " of work, " + seconds(found.cost.conversions) +
         " of conversions) on " + topology.device.name + "; " +
         (found.proved ? "no plan is faster"
                       : "no plan is faster than " + seconds(found.lowerBound) +
                             ", a gap of " + gap) +
         (isHost ? "; no cluster file was given, so each mesh axis is taken for a level "
                   "of shared memory"
                 : "");
}

Expected<SearchedPlan> partita::searchPlan(const FlowGraph &graph,
                                           const std::string &clusterFile,
                                           const std::string &memory) {
  Topology topology = hostTopology(graph.mesh);
  search::SearchOptions options;
  options.workLimit = mostWork;
  if (!clusterFile.empty()) {
    auto read = readTopologyFile(clusterFile);
    if (!read)
      return tl::unexpected(read.error());
    topology = std::move(*read);
    options.memoryLimit = topology.device.memory;
  }
  if (!memory.empty()) {
    auto bytes = cluster::parseBytes(memory);
    if (!bytes)
      return makeError("memory: " + bytes.error().message);
    options.memoryLimit = *bytes;
  }
  auto placement = Placement::create(graph.mesh, topology);
  if (!placement)
    return tl::unexpected(placement.error());
  auto found = search::search(graph, *placement, options);
  if (!found)
    return makeError("no plan: " + found.error().message);
  SearchedPlan plan;
  plan.memoryLimit = options.memoryLimit;
  plan.decision.strategies = found->plan.strategies;
  plan.decision.price = price(graph, found->plan.strategies, found->plan.servings);
  plan.decision.notes.push_back(noteOf(*found, topology, clusterFile.empty()));
  explain(graph, plan.decision);
  plan.servings = found->plan.servings;
  plan.found = std::move(*found);
  return plan;
}
