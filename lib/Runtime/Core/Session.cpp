//===- Session.cpp - A loaded bundle, ready for requests ------------------===//
#include "partita/Runtime/Session.h"

#include "partita/Base/Layout/Layout.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <pthread.h>

using namespace partita;
using namespace partita::runtime;
using Clock = std::chrono::steady_clock;

std::string runtime::describePlace(const TaskTable *table, int rank,
                                   const RankProgress &progress) {
  std::string text = "rank " + std::to_string(rank);
  uint32_t index = progress.task.load();
  if (progress.state.load() == RankProgress::Joining)
    return text + ", while joining the MPI job";
  if (progress.state.load() == RankProgress::Loading)
    return text + ", while loading";
  if (!table || index >= table->numTasks())
    return text;
  const TaskView &task = table->task(index);
  return text + ", node '" + std::string(task.source) + "' (" +
         std::string(name(task.kind())) + ")";
}

namespace {

/// Where the parts of an output come from: the ranks that own one.
struct OutputPart {
  int rank;
  SliceCopy slice;
};

/// When a rank was last seen moving.
struct Sighting {
  uint64_t beat = 0;
  Clock::time_point when;
};

} // namespace

struct Session::State {
  std::shared_ptr<const Stage> stage;
  std::shared_ptr<WeightStore> weights;
  SessionOptions options;
  std::vector<TensorInfo> inputs, outputs;
  std::vector<size_t> inputTensors, outputTensors; ///< indices in the table

  std::unique_ptr<LocalTeam> team;
  std::vector<std::unique_ptr<Transport>> transports; ///< of the ranks in this process
  std::vector<std::unique_ptr<Executor>> executors;
  std::vector<pthread_t> threads;
  std::unique_ptr<RankProgress[]> ownProgress;
  RankProgress *progress = nullptr; ///< by rank of the bundle

  /// MPI only: parts of each output by owner, and room for one part on rank 0.
  std::vector<std::vector<OutputPart>> parts;
  std::vector<std::byte> staging;
  std::atomic<int> awaited{-1}; ///< the rank whose part is being received
  uint64_t sent = 0;            ///< requests whose outputs went their way

  std::mutex lock;
  std::condition_variable wakeRanks, wakeCaller;
  uint64_t request = 0; ///< number of the current one
  size_t done = 0;      ///< ranks that finished it
  bool stopping = false, broken = false, hung = false;
  std::string failure; ///< the first one
  std::span<const std::byte *const> inputData;
  std::span<std::byte *const> outputData;
  uint64_t completed = 0;

  bool local() const { return options.transport == TransportKind::Local; }
  const TaskTable &table() const { return stage->table(); }

  void fail(const std::string &message, bool consequence) {
    std::lock_guard guard(lock);
    // What merely follows from another rank's failure is not the answer.
    if (failure.empty() && !consequence)
      failure = message;
    broken = true;
  }

  Expected<void> collectTensors();
  /// Not by std::thread, which throws where the system has no more threads.
  static Expected<void> startRank(std::shared_ptr<State> state, size_t index);
  void rankMain(size_t index);
  bool loadRank(size_t index);
  void serve(size_t index);
  Expected<void> request1(size_t index);
  Expected<void> sendOutputs(size_t index);
  Expected<void> await();
  std::vector<Sighting> seen; ///< by rank of this process
  std::optional<std::string> watch();
};

Expected<void> Session::State::collectTensors() {
  for (size_t i = 0; i < table().numTensors(); ++i) {
    const TensorView &t = table().tensor(i);
    if (t.role == Role::Weight)
      continue;
    TensorInfo info{std::string(t.name), t.type, {t.shape.begin(), t.shape.end()}};
    bool input = t.role == Role::Input;
    if (input && !table().layoutOf(t).partial.empty())
      return makeError("input '" + info.name + "' is partial, which cannot be bound");
    (input ? inputs : outputs).push_back(std::move(info));
    (input ? inputTensors : outputTensors).push_back(i);
  }
  if (local())
    return {};
  for (size_t tensor : outputTensors) {
    const TensorView &t = table().tensor(tensor);
    const Layout &layout = table().layoutOf(t);
    std::vector<bool> given(static_cast<size_t>(product(layout.shardingAxes())), false);
    auto &list = parts.emplace_back();
    for (int rank = 0; rank < table().mesh().numRanks(); ++rank) {
      auto block =
          static_cast<size_t>(table().mesh().coordinate(rank, layout.shardingAxes()));
      if (given[block])
        continue;
      given[block] = true;
      list.push_back({rank, SliceCopy(table().mesh(), layout, rank, byteWidth(t.type))});
      staging.resize(std::max<size_t>(staging.size(), list.back().slice.localBytes()));
    }
  }
  return {};
}

//===----------------------------------------------------------------------===//
// The ranks' side
//===----------------------------------------------------------------------===//

bool Session::State::loadRank(size_t index) {
  Transport &transport = *transports[index];
  Executor::Options o;
  o.threads = options.threads;
  o.profile = options.profile;
  o.progress = &progress[transport.rank()];
  auto executor = Executor::create(stage, weights, transport, o);
  if (executor) {
    executors[index] = std::move(*executor);
    return true;
  }
  fail(executor.error().message, false);
  if (local())
    team->abort();
  return false;
}

Expected<void> Session::State::sendOutputs(size_t index) {
  Executor &executor = *executors[index];
  Transport &transport = *transports[index];
  auto numTasks = static_cast<uint32_t>(table().numTasks());
  // Every part is a step: whoever waits for one that does not come must be seen to.
  auto step = [&](RankProgress::State state, int from) {
    awaited.store(from);
    progress[transport.rank()].step(state, numTasks);
  };
  for (size_t k = 0; k < outputTensors.size(); ++k) {
    size_t tensor = outputTensors[k];
    if (local()) {
      if (executor.owns(tensor))
        executor.getOutput(tensor, outputData[k]);
      continue;
    }
    bool ok = true;
    step(RankProgress::Waiting, -1);
    if (transport.rank() != 0 && executor.owns(tensor))
      ok = transport.sendToRoot(executor.local(tensor),
                                static_cast<int64_t>(executor.localBytes(tensor)));
    for (const OutputPart &part : parts[k]) {
      if (transport.rank() != 0)
        break;
      const std::byte *data = executor.local(tensor);
      if (part.rank != 0) {
        step(RankProgress::Waiting, part.rank);
        ok &= transport.receiveFrom(part.rank, staging.data(),
                                    static_cast<int64_t>(part.slice.localBytes()));
        data = staging.data();
      }
      part.slice.toGlobal(data, outputData[k]);
    }
    if (!ok)
      return makeError("rank " + std::to_string(transport.rank()) + ": sending output '" +
                       outputs[k].name + "' failed");
  }
  if (local())
    return {};
  // Messages of a rank that is far ahead would pile up with one that is slow.
  constexpr uint64_t mostAhead = 4;
  step(RankProgress::Waiting, -1);
  bool ok = ++sent % mostAhead != 0 || transport.barrier();
  step(RankProgress::Idle, -1);
  if (!ok)
    return makeError("rank " + std::to_string(transport.rank()) +
                     ": meeting the other ranks failed");
  return {};
}

Expected<void> Session::State::request1(size_t index) {
  Executor &executor = *executors[index];
  for (size_t k = 0; k < inputTensors.size(); ++k)
    executor.setInput(inputTensors[k], inputData[k]);
  if (auto ok = executor.run(); !ok)
    return ok;
  return sendOutputs(index);
}

void Session::State::serve(size_t index) {
  uint64_t served = 0;
  std::unique_lock guard(lock);
  for (;;) {
    wakeRanks.wait(guard, [&] { return stopping || request != served; });
    if (stopping)
      return;
    served = request;
    guard.unlock();
    Expected<void> ok = request1(index);
    if (!ok) {
      fail(ok.error().message, executors[index]->aborted());
      if (local())
        team->abort();
    }
    guard.lock();
    ++done;
    wakeCaller.notify_one();
  }
}

void Session::State::rankMain(size_t index) {
  bool loaded = loadRank(index);
  {
    std::lock_guard guard(lock);
    ++done;
    wakeCaller.notify_one();
  }
  if (loaded)
    serve(index);
}

Expected<void> Session::State::startRank(std::shared_ptr<State> state, size_t index) {
  using Start = std::pair<std::shared_ptr<State>, size_t>;
  auto start = std::make_unique<Start>(state, index);
  auto main = [](void *given) -> void * {
    std::unique_ptr<Start> mine(static_cast<Start *>(given));
    mine->first->rankMain(mine->second);
    return nullptr;
  };
  pthread_t thread;
  if (int code = ::pthread_create(&thread, nullptr, main, start.get()); code != 0)
    return makeError("cannot start the thread of rank " + std::to_string(index) + ": " +
                     std::strerror(code));
  (void)start.release();
  state->threads.push_back(thread);
  return {};
}

//===----------------------------------------------------------------------===//
// The caller's side
//===----------------------------------------------------------------------===//

/// The sentence for a rank that stands still, if one does. A rank that waits for others
/// is not to blame, so it is named only when nobody else can be.
std::optional<std::string> Session::State::watch() {
  auto time = Clock::now();
  int stuck = -1, waiting = -1;
  for (size_t i = 0; i < transports.size(); ++i) {
    int rank = transports[i]->rank();
    RankProgress &p = progress[rank];
    uint64_t beat = p.beat.load();
    uint32_t doing = p.state.load();
    if (beat != seen[i].beat || doing == RankProgress::Idle ||
        doing == RankProgress::Failed)
      seen[i] = {beat, time};
    double idle = std::chrono::duration<double>(time - seen[i].when).count();
    if (doing != RankProgress::Waiting && idle >= options.timeout && stuck < 0)
      stuck = rank;
    if (doing == RankProgress::Waiting && idle >= options.timeout + 3 &&
        (waiting < 0 || p.task.load() < progress[waiting].task.load()))
      waiting = rank;
  }
  auto seconds = std::to_string(static_cast<int64_t>(options.timeout));
  if (stuck >= 0)
    return describePlace(&table(), stuck, progress[stuck]) + ": no progress for " +
           seconds + " s";
  if (int from = awaited.load(); waiting >= 0 && from >= 0)
    return "rank " + std::to_string(from) +
           ": its part of the outputs did not come within " + seconds + " s";
  if (waiting >= 0)
    return describePlace(&table(), waiting, progress[waiting]) + ": waited more than " +
           seconds + " s for other ranks";
  return std::nullopt;
}

/// Waits until every rank of this process is done.
Expected<void> Session::State::await() {
  seen.assign(transports.size(), {0, Clock::now()});
  std::unique_lock guard(lock);
  while (done < transports.size()) {
    wakeCaller.wait_for(guard, std::chrono::milliseconds(100));
    // One process of several that failed: the others may never come to an end.
    if (broken && !local())
      break;
    if (done == transports.size())
      break;
    if (auto message = watch()) {
      broken = hung = true;
      if (failure.empty())
        failure = *message;
      if (team)
        team->abort();
      break;
    }
  }
  if (!broken)
    return {};
  return makeError(failure.empty() ? "stopped because another rank failed" : failure);
}

Expected<std::unique_ptr<Session>> Session::start(std::shared_ptr<const Stage> stage,
                                                  std::shared_ptr<WeightStore> weights,
                                                  const SessionOptions &options) {
  auto state = std::make_shared<State>();
  state->stage = std::move(stage);
  state->weights = std::move(weights);
  state->options = options;
  state->options.threads = std::max(options.threads, 1);
  if (auto ok = state->collectTensors(); !ok)
    return tl::unexpected(ok.error());
  auto ranks = static_cast<int>(state->table().mesh().numRanks());
  if (state->local()) {
    state->team = std::make_unique<LocalTeam>(ranks);
    for (int r = 0; r < ranks; ++r)
      state->transports.push_back(state->team->connect(r));
  } else {
    auto transport = connectMpi();
    if (!transport)
      return tl::unexpected(transport.error());
    state->transports.push_back(std::move(*transport));
    if (int world = state->transports[0]->size(); world != ranks) {
      return makeError("the bundle is for " + std::to_string(ranks) +
                       " ranks, MPI started " + std::to_string(world));
    }
  }
  state->progress = options.progress;
  if (!state->progress) {
    state->ownProgress = std::make_unique<RankProgress[]>(static_cast<size_t>(ranks));
    state->progress = state->ownProgress.get();
  }
  state->executors.resize(state->transports.size());
  std::unique_ptr<Session> session(new Session());
  session->state = state;
  for (size_t i = 0; i < state->transports.size(); ++i)
    if (auto ok = State::startRank(state, i); !ok) {
      state->fail({}, true); // ends those that started and wait for this one
      return tl::unexpected(ok.error());
    }
  if (auto ok = state->await(); !ok)
    return tl::unexpected(ok.error());
  return session;
}

Expected<std::unique_ptr<Session>> Session::load(const std::string &folder,
                                                 const SessionOptions &options) {
  auto bundle = readBundle(folder);
  if (!bundle)
    return tl::unexpected(bundle.error());
  if (bundle->target != "cpu")
    return makeError("'" + folder + "' is compiled for " + bundle->target +
                     ", this runtime runs cpu bundles");
  if (auto lacking = missingCpuFeature(bundle->cpuFeatures); !lacking.empty())
    return makeError("'" + folder + "' is compiled for " + bundle->targetCpu +
                     "; this CPU lacks " + lacking);
  auto entry =
      std::find_if(bundle->entries.begin(), bundle->entries.end(),
                   [&](const BundleEntry &e) { return e.name == options.entry; });
  if (entry == bundle->entries.end())
    return makeError("'" + folder + "' has no entry point '" + options.entry + "'");
  if (entry->stages.size() != 1)
    return makeError("'" + folder + "' has " + std::to_string(entry->stages.size()) +
                     " pipeline stages, this runtime runs one");
  auto stage =
      Stage::load(folder + "/" + entry->stages[0].file, entry->stages[0].fingerprint);
  if (!stage)
    return tl::unexpected(stage.error());
  if (!((*stage)->table().mesh() == bundle->mesh))
    return makeError("'" + folder + "': the stage is for mesh " +
                     (*stage)->table().mesh().str() + ", the bundle for " +
                     bundle->mesh.str());
  auto weights = WeightStore::open(folder, *bundle, (*stage)->table());
  if (!weights)
    return tl::unexpected(weights.error());
  SessionOptions resolved = options;
  if (resolved.threads == 0)
    resolved.threads = static_cast<int>(bundle->threads);
  return start(*stage, *weights, resolved);
}

Session::~Session() {
  {
    std::lock_guard guard(state->lock);
    state->stopping = true;
    if (state->team && state->broken)
      state->team->abort();
  }
  state->wakeRanks.notify_all();
  for (pthread_t thread : state->threads) {
    // A rank that hangs cannot be joined; it keeps the state alive for itself. In an MPI
    // job that failed, the rank may be inside a call that never returns.
    if (state->hung || (state->broken && !state->local()))
      ::pthread_detach(thread);
    else
      ::pthread_join(thread, nullptr);
  }
  // Leaving an MPI job in order takes all processes; after a failure the exit status
  // ends it instead.
  if (state->broken && !state->local())
    for (auto &transport : state->transports)
      (void)transport.release();
}

const std::vector<TensorInfo> &Session::inputs() const { return state->inputs; }
const std::vector<TensorInfo> &Session::outputs() const { return state->outputs; }
int64_t Session::numRanks() const { return state->table().mesh().numRanks(); }
int Session::rank() const { return state->transports[0]->rank(); }
bool Session::isRoot() const { return rank() == 0; }

void Session::abort() {
  for (auto &transport : state->transports)
    transport->abort();
}

Expected<void> Session::run(std::span<const std::byte *const> inputs,
                            std::span<std::byte *const> outputs) {
  if (inputs.size() != state->inputs.size() || outputs.size() != state->outputs.size())
    return makeError("expected " + std::to_string(state->inputs.size()) + " inputs and " +
                     std::to_string(state->outputs.size()) + " outputs");
  {
    std::lock_guard guard(state->lock);
    if (state->broken)
      return makeError("the session ended with an earlier error: " + state->failure);
    state->inputData = inputs;
    state->outputData = outputs;
    state->done = 0;
    ++state->request;
  }
  state->wakeRanks.notify_all();
  Expected<void> ok = state->await();
  if (ok)
    ++state->completed;
  return ok;
}

std::vector<NodeTime> Session::profile() const {
  std::vector<NodeTime> out;
  std::map<std::string_view, size_t> places;
  std::vector<std::vector<double>> perRank; // by node, then by rank of this process
  for (size_t i = 0; i < state->table().numTasks(); ++i) {
    const TaskView &task = state->table().task(i);
    auto [it, fresh] = places.emplace(task.source, out.size());
    if (fresh) {
      out.push_back({std::string(task.source), "", 0});
      perRank.emplace_back(state->executors.size(), 0.0);
    }
    NodeTime &node = out[it->second];
    std::string kind(name(task.kind()));
    if ((", " + node.kinds + ",").find(", " + kind + ",") == std::string::npos)
      node.kinds += (node.kinds.empty() ? "" : ", ") + kind;
    for (size_t r = 0; r < state->executors.size(); ++r)
      perRank[it->second][r] += state->executors[r]->times()[i].seconds;
  }
  auto requests = static_cast<double>(std::max<uint64_t>(state->completed, 1));
  for (size_t n = 0; n < out.size(); ++n)
    out[n].seconds = *std::max_element(perRank[n].begin(), perRank[n].end()) / requests;
  return out;
}
