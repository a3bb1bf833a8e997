//===- Ranks.cpp - What one process of a run does -------------------------===//
#include "Evaluation.h"
#include "RunLogs.h"

#include "partita/Base/Units.h"
#include "partita/Runtime/StateFile.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <poll.h>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

std::optional<int> runtime::mpiRank() {
  const char *text = std::getenv("OMPI_COMM_WORLD_RANK");
  return text ? std::optional<int>(std::atoi(text)) : std::nullopt;
}

static std::string describe(const TensorInfo &info) {
  std::string text = info.name + ": " + std::string(name(info.type)) + "[";
  for (size_t i = 0; i < info.shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(info.shape[i]);
  return text + "]";
}

/// The seconds of each.
static Expected<std::vector<double>> runRequests(RunParts &parts, const Print &print) {
  Session &session = parts.session;
  const RunOptions &options = parts.options;
  std::vector<double> took;
  took.reserve(static_cast<size_t>(options.repeat));
  std::vector<const std::byte *> from;
  std::vector<std::byte *> to;
  // Inputs that are read from files need no address.
  from.resize(session.inputs().size());
  for (HostTensor &tensor : parts.outputs)
    to.push_back(tensor.bytes.data());
  for (int k = 0; k < options.repeat; ++k) {
    auto start = std::chrono::steady_clock::now();
    if (auto ok = session.run(from, to); !ok)
      return tl::unexpected(ok.error());
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    took.push_back(seconds);
    if (auto ok = checkFinite(session, options, "request " + std::to_string(k)); !ok)
      return tl::unexpected(ok.error());
    if (!session.isRoot())
      continue;
    // Nothing is allocated between requests either.
    char line[64];
    int length = std::snprintf(line, sizeof(line), "request %d: %.9f s", k, seconds);
    print({line, static_cast<size_t>(length)});
  }
  return took;
}

/// Tells what checking weights took, where that is worth a line.
static void tellChecked(const Session &session, const Print &print) {
  constexpr double worth = 0.1; // seconds of all ranks
  Session::Checked checked = session.checkedWeights();
  if (!session.isRoot() || checked.seconds < worth)
    return;
  char line[128];
  int length = std::snprintf(line, sizeof(line),
                             "checked %.2f GB of weights in %.2f s of the ranks' time "
                             "(--no-check leaves this out)",
                             static_cast<double>(checked.bytes) * 1e-9, checked.seconds);
  print({line, static_cast<size_t>(length)});
}

/// What a run leaves besides its outputs; a call of all processes.
static Expected<RunRecord> recordOf(Session &session, const RunOptions &options,
                                    std::vector<double> seconds) {
  RunRecord record{options.bundle, std::move(seconds), {}};
  Session::Checked checked = session.checkedWeights();
  record.checkedBytes = checked.bytes, record.checkSeconds = checked.seconds;
  for (size_t k = 0; k < session.outputs().size(); ++k) {
    const TensorInfo &info = session.outputs()[k];
    record.outputs.push_back(
        {info.name, std::string(name(info.type)), session.outputShapes()[k]});
  }
  if (!options.profile)
    return record;
  auto profile = session.profile();
  if (!profile)
    return tl::unexpected(profile.error());
  record.profile = std::move(*profile);
  return record;
}

static void trimOutputs(const EntryInterface &entry, const Extents &extents,
                        std::vector<HostTensor> &outputs) {
  for (size_t k = 0; k < outputs.size(); ++k)
    if (auto dims = entry.info.dims.find(entry.outputs[k].name);
        dims != entry.info.dims.end())
      outputs[k] = trimmed(outputs[k], dims->second, extents);
}

/// The inputs that all requests have.
static Expected<void> readFixed(Session &session, const RunOptions &options,
                                const EntryInterface &entry, Extents &extents) {
  auto inputs = openInputs(options, entry, extents);
  if (!inputs)
    return tl::unexpected(inputs.error());
  auto read = session.readInputs({inputs->begin(), inputs->end()});
  return read ? Expected<void>() : tl::unexpected(read.error());
}

static Expected<void> loadIfThere(Session &session, const std::string &file,
                                  int64_t &steps) {
  if (file.empty() || ::access(file.c_str(), F_OK) != 0)
    return {};
  if (auto ok = loadStates(session, file); !ok)
    return ok;
  auto saved = savedSteps(file);
  steps = saved.value_or(0);
  return saved ? Expected<void>() : tl::unexpected(saved.error());
}

/// The requests or steps of a run, and the states behind them.
static Expected<DataSteps> runAll(RunParts &parts, const Print &print) {
  int64_t steps = 0;
  if (auto ok = loadIfThere(parts.session, parts.states, steps); !ok)
    return tl::unexpected(ok.error());
  Expected<DataSteps> done;
  if (!parts.options.data.files.empty())
    done = runOnData(parts, steps, print);
  else if (auto seconds = runRequests(parts, print))
    done = DataSteps{std::move(*seconds)};
  else
    done = tl::unexpected(seconds.error());
  if (done && !parts.states.empty())
    if (auto ok = saveStates(parts.session, parts.states, steps); !ok)
      return tl::unexpected(ok.error());
  return done;
}

/// Writes and tells, on the root, when all is done.
static Expected<void> finish(RunParts &parts, const EntryInterface &entry,
                             const Extents &extents, const RunRecord &record,
                             const Print &print) {
  std::vector<HostTensor> &outputs = parts.outputs;
  for (size_t k = 0; k < outputs.size(); ++k)
    shortenTo(outputs[k], parts.session.outputShapes()[k]);
  trimOutputs(entry, extents, outputs);
  // A run whose steps were done already has no outputs.
  if (!record.requests.empty())
    if (auto ok = writeOutputs(parts.options, parts.session.outputs(), outputs); !ok)
      return ok;
  for (size_t k = 0; k < outputs.size() && !record.requests.empty(); ++k) {
    TensorInfo info = entry.outputs[k];
    info.shape = outputs[k].shape;
    print("output " + describe(info));
  }
  return parts.options.finished ? parts.options.finished(record) : Expected<void>();
}

/// Work of a process once its ranks are loaded.
static Expected<RunEnd> runLoaded(Session &session, const RunOptions &options,
                                  RankProgress *progress, RunLogs &logs,
                                  const Print &print) {
  tellChecked(session, print);
  EntryInterface entry{session.info(), session.inputs(), session.outputs()};
  Extents extents;
  if (options.data.files.empty())
    if (auto ok = readFixed(session, options, entry, extents); !ok)
      return tl::unexpected(ok.error());
  if (session.isRoot())
    if (auto ok = checkOutputs(options); !ok)
      return tl::unexpected(ok.error());
  auto states = openStateDir(options, session);
  if (!states)
    return tl::unexpected(states.error());
  std::vector<HostTensor> outputs;
  for (const TensorInfo &info : session.outputs())
    outputs.push_back(session.isRoot() ? HostTensor::zeros(info.type, info.shape)
                                       : HostTensor{});
  RankProgress *used = progress ? &progress[session.numRanks()] : nullptr;
  RunParts parts{session, options, *states, outputs, logs, used};
  auto done = runAll(parts, print);
  if (!done)
    return tl::unexpected(done.error());
  RunEnd end{done->signal};
  if (end.signal != 0)
    return end; // little time is left
  if (session.isRoot() && options.commThreads > 0)
    print("threads beside the ranks received " +
          std::to_string(session.movedMeanwhile()) + " B meanwhile");
  auto record = recordOf(session, options, std::move(done->seconds));
  if (!record)
    return tl::unexpected(record.error());
  if (session.isRoot())
    if (auto ok = finish(parts, entry, extents, *record, print); !ok)
      return tl::unexpected(ok.error());
  return end;
}

/// Loads and runs the ranks of this process.
static Expected<RunEnd> loadAndRun(const RunOptions &options, TransportKind transport,
                                   RankProgress *progress, RunLogs &logs,
                                   const Print &print) {
  SessionOptions s;
  s.transport = transport;
  const bool evaluates = !options.data.evaluation.files.empty();
  s.entry = evaluates ? "" : options.entry;
  s.timeout = options.timeout;
  s.threads = options.threads;
  s.commThreads = options.commThreads;
  s.mpiWindow = parseMpiWindow(options.mpiWindow).value_or(MpiWindow::Auto);
  s.weights = options.weights;
  s.profile = options.profile ? options.data.steps.value_or(options.repeat) : 0;
  if (options.findNan)
    s.findNan = options.readPayload;
  s.progress = progress;
  auto session = Session::load(options.bundle, s);
  if (!session)
    return tl::unexpected(session.error());
  const auto names = (*session)->entries();
  if (auto own = std::ranges::find(names, options.entry); own != names.end())
    (*session)->select(static_cast<size_t>(own - names.begin()));
  logs.line("is loaded");
  auto end = runLoaded(**session, options, progress, logs, print);
  if (!end && (*session)->isHung())
    end = RunEnd::lost(end.error().message);
  // Leaving MPI in order waits for ranks that may know of no error. The exit status of
  // the process ends them.
  if (transport == TransportKind::Mpi && (!end || end->isLost))
    (void)session->release();
  return end;
}

Expected<RunEnd> runtime::runRanks(const RunOptions &options, TransportKind transport,
                                   RankProgress *progress, const Print &print) {
  auto logs = RunLogs::ofRanks(options, transport);
  if (!logs)
    return tl::unexpected(logs.error());
  auto end = loadAndRun(options, transport, progress, *logs, logs->alsoPrinting(print));
  logs->end(end);
  return end;
}

/// Sets what the files say: the entry, and how many steps there are on data.
static Expected<void> chooseEntryOf(RunOptions &options) {
  if (!options.data.files.empty()) {
    for (auto [option, isGiven] : {std::pair("--inputs-dir", !options.inputsDir.empty()),
                                   {"--pad", options.pad},
                                   {"--repeat", options.repeat != 1}})
      if (isGiven)
        return makeError("--data takes no " + std::string(option));
    return chooseForData(options).and_then([&] { return checkEvaluation(options); });
  }
  auto entry = entryFor(options);
  if (!entry)
    return tl::unexpected(entry.error());
  options.entry = *entry;
  return {};
}

/// Whether the other end of a pipe is closed, as by `head` after its lines.
static bool isReaderGone(int descriptor) {
  pollfd stream{descriptor, POLLOUT, 0};
  return ::poll(&stream, 1, 0) > 0 && (stream.revents & POLLERR);
}

/// "local" or "mpi", or why the options go with neither.
static Expected<std::string> transportOf(const RunOptions &options) {
  const std::string &asked = options.transport;
  if (asked != "auto" && asked != "local" && asked != "mpi")
    return makeError("transport '" + asked + "' is unknown; expected local or mpi");
  const bool isElastic = options.elastic.has_value(),
             hasHosts = !options.hostfile.empty();
  if (asked == "local" && hasHosts)
    return makeError(
        "--hostfile: the ranks of transport local are threads of one process");
  if (asked == "local" && isElastic)
    return makeError("--elastic: the ranks of transport local are threads of one "
                     "process, which are lost together");
  if (hasHosts && mpiRank())
    return makeError("--hostfile: an mpirun has chosen the hosts of these ranks already");
  if (mpiRank() && (isElastic || options.data.checkpoints.restarts.value_or(0) != 0))
    return makeError(std::string(isElastic ? "--elastic" : "--restarts") +
                     ": ranks that an mpirun has started cannot start it again");
  const std::string used = asked != "auto"                      ? asked
                           : hasHosts || isElastic || mpiRank() ? "mpi"
                                                                : "local";
  auto window = parseMpiWindow(options.mpiWindow);
  if (!window)
    return makeError("--mpi-window is '" + options.mpiWindow +
                     "'; expected auto, on or off");
  if (*window == MpiWindow::On && used == "local")
    return makeError("--mpi-window on: the ranks of transport local are threads of one "
                     "process, which share memory anyway");
  return used;
}

Expected<RunEnd> runtime::runBundle(const RunOptions &given, const Print &print) {
  RunOptions options = given;
  if (options.repeat < 1)
    return makeError("--repeat must be at least 1");
  if (!(options.timeout > 0))
    return makeError(
        formatted("--timeout %g: expected a number of seconds above 0", options.timeout));
  if (auto ok = chooseEntryOf(options); !ok)
    return tl::unexpected(ok.error());
  auto transport = transportOf(options);
  if (!transport)
    return tl::unexpected(transport.error());
  auto logs = RunLogs::ofSupervisor(options);
  if (!logs)
    return tl::unexpected(logs.error());
  logs->line("starts: transport " + *transport + ", bundle '" + options.bundle + "'");
  const Print told = logs->alsoPrinting(print);
  auto ok = options.elastic ? runElastic(options, told) : runAgain(options, told, [&] {
    return *transport == "local" ? runWatched(options, print) : runMpi(options, print);
  });
  logs->end(ok);
  // Ranks and mpirun die of a pipe that nobody reads; this process ends as if it had
  // written the line itself, without a message that nobody asked for. Any other error is
  // told.
  auto says = [&](const char *word) {
    return ok.error().message.find(word) != std::string::npos;
  };
  // mpirun itself may crash of such a pipe.
  bool isOfPipe = !ok && (says("signal 13") || says("SIGPIPE") || says("mpirun was"));
  if (isOfPipe && isReaderGone(STDOUT_FILENO))
    ::raise(SIGPIPE);
  return ok;
}
