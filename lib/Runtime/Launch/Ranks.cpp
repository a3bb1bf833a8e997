//===- Ranks.cpp - What one process of a run does -------------------------===//
#include "Internal.h"

#include "partita/Runtime/StateFile.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

std::optional<int> runtime::mpiRank() {
  const char *text = std::getenv("OMPI_COMM_WORLD_RANK");
  return text ? std::optional<int>(std::atoi(text)) : std::nullopt;
}

static std::string format(const char *pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), pattern, value);
  return text;
}

static void printProfile(const Session &session, const Print &print) {
  double total = 0;
  std::vector<NodeTime> nodes = session.profile();
  for (const NodeTime &node : nodes)
    total += node.seconds;
  print("seconds per request by source node (" + format("%.6f", total) + " in all):");
  for (const NodeTime &node : nodes)
    print("  " + format("%.6f", node.seconds) + "  " + node.node + " (" + node.kinds +
          ")");
}

static std::string describe(const TensorInfo &info) {
  std::string text = info.name + ": " + std::string(name(info.type)) + "[";
  for (size_t i = 0; i < info.shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(info.shape[i]);
  return text + "]";
}

static Expected<void> runRequests(Session &session, const RunOptions &options,
                                  const std::vector<HostTensor> &inputs,
                                  std::vector<HostTensor> &outputs, const Print &print) {
  std::vector<const std::byte *> from;
  std::vector<std::byte *> to;
  for (const HostTensor &tensor : inputs)
    from.push_back(tensor.bytes.data());
  for (HostTensor &tensor : outputs)
    to.push_back(tensor.bytes.data());
  for (int k = 0; k < options.repeat; ++k) {
    auto start = std::chrono::steady_clock::now();
    if (auto ok = session.run(from, to); !ok)
      return ok;
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!session.isRoot())
      continue;
    // Nothing is allocated between requests either.
    char line[64];
    int length = std::snprintf(line, sizeof(line), "request %d: %.6f s", k, seconds);
    print({line, static_cast<size_t>(length)});
  }
  return {};
}

Expected<void> runtime::runRanks(const RunOptions &options, TransportKind transport,
                                 RankProgress *progress, const Print &print) {
  SessionOptions s;
  s.transport = transport;
  s.entry = options.entry;
  s.timeout = options.timeout;
  s.threads = options.threads;
  s.profile = options.profile;
  s.progress = progress;
  auto session = Session::load(options.bundle, s);
  if (!session)
    return tl::unexpected(session.error());
  auto inputs = readInputs(options, (*session)->inputs());
  if (!inputs)
    return tl::unexpected(inputs.error());
  if ((*session)->isRoot())
    if (auto ok = checkOutputs(options); !ok)
      return ok;
  auto states = openStateDir(options, **session);
  if (!states)
    return tl::unexpected(states.error());
  if (::access(states->c_str(), F_OK) == 0)
    if (auto ok = loadStates(**session, *states); !ok)
      return ok;
  std::vector<HostTensor> outputs;
  for (const TensorInfo &info : (*session)->outputs())
    outputs.push_back((*session)->isRoot() ? HostTensor::zeros(info.type, info.shape)
                                           : HostTensor{});
  if (auto ok = runRequests(**session, options, *inputs, outputs, print); !ok)
    return ok;
  if (!states->empty())
    if (auto ok = saveStates(**session, *states); !ok)
      return ok;
  if (!(*session)->isRoot())
    return {};
  if (auto ok = writeOutputs(options, (*session)->outputs(), outputs); !ok)
    return ok;
  for (const TensorInfo &info : (*session)->outputs())
    print("output " + describe(info));
  if (options.profile)
    printProfile(**session, print);
  return {};
}

Expected<void> runtime::runBundle(const RunOptions &options, const Print &print) {
  if (options.repeat < 1)
    return makeError("--repeat must be at least 1");
  if (!(options.timeout > 0))
    return makeError("--timeout must be positive");
  std::string transport = options.transport;
  if (transport == "auto")
    transport = mpiRank() ? "mpi" : "local";
  if (transport == "local")
    return runWatched(options, print);
  if (transport == "mpi")
    return runMpi(options, print);
  return makeError("transport '" + transport + "' is unknown; there are local and mpi");
}
