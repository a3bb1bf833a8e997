//===- LoadSession.cpp - A session of a bundle ----------------------------===//
#include "partita/Runtime/Session.h"

#include "Interface.h"
#include "ThreadLimit.h"
#include "partita/Base/CpuFeatures.h"
#include "partita/Runtime/Team.h"

#include <algorithm>
#include <cstdlib>

using namespace partita;
using namespace partita::runtime;

/// Ranks of the run on this machine.
static int64_t localRanks(const Bundle &bundle, TransportKind transport) {
  const char *text = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  int ranks = text && transport == TransportKind::Mpi ? std::atoi(text) : 0;
  return ranks > 0 ? ranks : bundle.numRanks();
}

static Expected<int> threadsFor(const std::string &folder, const Bundle &bundle,
                                const SessionOptions &options) {
  auto compiled = static_cast<int>(bundle.threads);
  int threads = options.threads.value_or(compiled);
  if (threads == 0)
    return std::min(compiled, threadsPerRank(localRanks(bundle, options.transport)));
  if (threads > compiled)
    return makeError("'" + folder + "' is compiled for " + std::to_string(compiled) +
                     (compiled == 1 ? " thread" : " threads") + " per rank, not for " +
                     std::to_string(threads) + "; compile the model with --threads " +
                     std::to_string(threads));
  return threads;
}

/// Before anything is made for each rank.
static Expected<void> checkThreads(const std::string &folder, const Bundle &bundle,
                                   int threads) {
  ThreadLimit limit = threadLimit();
  const int64_t ranks = bundle.numRanks();
  if (ranks <= limit.threads / std::max(threads, 1))
    return {};
  return makeError(
      "'" + folder + "' is for " + std::to_string(ranks) +
      " ranks, which the transport 'local' runs as threads of one process, " +
      std::to_string(std::max(threads, 1)) + " each; this system allows " +
      std::to_string(limit.threads) + " (" + limit.source + ")");
}

static Expected<Stages> loadStages(const std::string &folder, const Bundle &bundle,
                                   const BundleEntry &entry) {
  Stages stages;
  int64_t ranks = 0;
  for (const BundleStage &from : entry.stages) {
    auto stage = Stage::load(folder + "/" + from.file, from.hash);
    if (!stage)
      return tl::unexpected(stage.error());
    ranks += (*stage)->table().mesh().numRanks();
    stages.push_back(std::move(*stage));
  }
  if (const Mesh &mesh = stages[0]->table().mesh();
      stages.size() == 1 && !(mesh == bundle.mesh))
    return makeError("'" + folder + "': the stage is for mesh " + mesh.str() +
                     ", the bundle for " + bundle.mesh.str());
  // Whoever watches has room for as many.
  if (ranks != bundle.numRanks())
    return makeError("'" + folder + "' is for " + std::to_string(bundle.numRanks()) +
                     " ranks, its programs have " + std::to_string(ranks));
  return stages;
}

static std::string entryNames(const Bundle &bundle) {
  std::string names;
  for (const BundleEntry &entry : bundle.entries)
    names += (names.empty() ? "'" : ", '") + entry.name + "'";
  return names;
}

Expected<std::unique_ptr<Session>> Session::load(const std::string &folder,
                                                 const SessionOptions &options) {
  auto bundle = readBundle(folder);
  if (!bundle)
    return tl::unexpected(bundle.error());
  if (!engineOf(bundle->target))
    return makeError("'" + folder + "' is compiled for " + bundle->target +
                     ", this runtime has cpu and plain");
  if (auto ok = checkCpuFeatures(bundle->cpuFeatures, options.hasCpuFeature); !ok)
    return makeError("'" + folder + "' is compiled for " + bundle->targetCpu + "; " +
                     ok.error().message);
  auto threads = threadsFor(folder, *bundle, options);
  if (!threads)
    return tl::unexpected(threads.error());
  if (options.transport == TransportKind::Local)
    if (auto ok = checkThreads(folder, *bundle, *threads); !ok)
      return tl::unexpected(ok.error());
  std::vector<SessionEntry> entries;
  std::vector<const TaskTable *> tables;
  for (const BundleEntry &entry : bundle->entries) {
    if (!options.entry.empty() && entry.name != options.entry)
      continue;
    auto stages = loadStages(folder, *bundle, entry);
    if (!stages)
      return tl::unexpected(stages.error());
    for (const auto &stage : *stages)
      tables.push_back(&stage->table());
    entries.push_back({entry, std::move(*stages)});
  }
  if (entries.empty())
    return makeError("'" + folder + "' has no entry point '" + options.entry +
                     "'; it has " + entryNames(*bundle));
  auto weights = WeightStore::open(folder, *bundle, tables, options.weights);
  if (!weights)
    return tl::unexpected(weights.error());
  SessionOptions resolved = options;
  resolved.threads = *threads;
  return start(std::move(entries), *weights, resolved);
}
