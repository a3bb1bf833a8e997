//===- Session.cpp - A loaded bundle, ready for requests ------------------===//
#include "partita/Runtime/Session.h"

#include "ExecutorOp.h"
#include "Failure.h"
#include "Outputs.h"
#include "Recording.h"
#include "Watchdog.h"
#include "partita/Runtime/Clocks.h"
#include "partita/Runtime/Fit.h"
#include "partita/Runtime/Roofline.h"
#include "partita/Runtime/Team.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <pthread.h>

using namespace partita;
using namespace partita::runtime;

namespace {
/// One entry point: its programs, and what prepared them.
struct LoadedEntry {
  BundleEntry info;
  Stages stages;
  Interface interface = {};
  std::vector<TensorInfo> given = {}; ///< outputs and sizes
  /// Of the last request: sizes, the outputs' shapes by them, and where all was put.
  std::vector<int64_t> sizes = {};
  std::vector<std::vector<int64_t>> shapes = {};
  std::vector<std::byte *> targets = {};
  std::unique_ptr<Outputs> outputs = {}, stateParts = {};
  std::unique_ptr<Watchdog> watchdog = {};
  std::vector<std::unique_ptr<Executor>> executors = {}; ///< of the ranks in this process
  /// By input, where it is read from, if it is; and by rank of this process what each of
  /// its takers has read.
  std::vector<std::optional<StoredTensor>> sources = {};
  std::vector<std::map<Interface::Bound, std::vector<std::byte>>> parts = {};
};
} // namespace

struct Session::State {
  std::vector<LoadedEntry> entries;
  size_t current = 0; ///< which of them requests are for
  std::shared_ptr<WeightStore> weights;
  SessionOptions options;

  std::unique_ptr<LocalTeam> team;
  std::vector<std::unique_ptr<Transport>> transports; ///< of the ranks in this process
  std::vector<pthread_t> threads;
  std::unique_ptr<RankProgress[]> ownProgress;
  RankProgress *progress = nullptr; ///< by rank of the bundle

  /// What ranks do for one call of the caller's.
  enum class Job : uint8_t {
    Request,
    ReadInputs,
    ReadState,
    WriteState,
    ResetStates,
    ReadStates,
    FillStates,
    Agree,
    Profile
  };

  std::mutex lock;
  std::condition_variable wakeRanks, wakeCaller;
  uint64_t request = 0; ///< number of the current job
  Job job = Job::Request;
  size_t done = 0; ///< ranks that finished it
  bool stopping = false;
  Failure failure;
  std::span<const std::byte *const> inputData;
  std::span<std::byte *const> outputData;
  size_t stateIndex = 0; ///< of the jobs with one state
  std::byte *stateTo = nullptr;
  const std::byte *stateFrom = nullptr;
  const StateVisit *visit = nullptr;   ///< of the job FillStates
  const StateReader *reader = nullptr; ///< of the job ReadStates
  std::span<int64_t> values;           ///< of the job Agree
  // By rank, of the job Profile.
  std::vector<std::vector<RunSpan>> spans;
  std::vector<Roofline> rooflines;
  std::atomic<uint64_t> inputBytes = 0; ///< that ReadInputs has read

  bool local() const { return options.transport == TransportKind::Local; }
  LoadedEntry &entry() { return entries[current]; }
  /// All entries run on the same ranks.
  int numRanks() const {
    int64_t ranks = 0;
    for (const auto &stage : entries[0].stages)
      ranks += stage->table().mesh().numRanks();
    return static_cast<int>(ranks);
  }
  size_t stageOfRank(const LoadedEntry &entry, size_t index) const {
    return stageOf(entry.stages, transports[index]->rank());
  }

  void fail(const std::string &message, bool isConsequence) {
    std::lock_guard guard(lock);
    failure.add(message, isConsequence);
  }

  /// Not by std::thread, which throws where the system has no more threads.
  static Expected<void> startRank(std::shared_ptr<State> state, size_t index);
  Expected<void> connect();
  /// Of weights repacked for engines, of all ranks here, as if none shared any.
  uint64_t packedBytes() const;
  Expected<void> prepare(LoadedEntry &entry);
  Expected<void> checkStates() const;
  void rankMain(size_t index);
  bool loadRank(size_t index);
  void serve(size_t index);
  Expected<void> request1(size_t index);
  Expected<void> inputJob(size_t index);
  Expected<void> stateJob(size_t index);
  Expected<void> visitJob(size_t index);
  Expected<void> agreeJob(size_t index);
  Expected<void> jobOf(size_t index);
  Expected<void> profileJob(size_t index);
  bool exchangeRooflines(Transport &transport);
  Expected<void> checkLives() const;
  Expected<void> give(Job what);
  /// Every state that a rank of this process holds: rank, state, and its tensor there.
  void forEachHeld(const std::function<void(Executor &, int, size_t, size_t)> &visit);
  Expected<void> await();
};

//===----------------------------------------------------------------------===//
// The ranks' side
//===----------------------------------------------------------------------===//

bool Session::State::loadRank(size_t index) {
  Transport &transport = *transports[index];
  Executor::Options o;
  o.threads = *options.threads;
  o.profile = options.profile;
  o.findNan = options.findNan;
  o.progress = &progress[transport.rank()];
  o.stop = options.stop;
  o.device = options.device;
  o.memory = std::make_shared<RankMemory>();
  for (const LoadedEntry &it : entries)
    o.memory->reserve(it.stages[stageOfRank(it, index)]->table());
  Expected<void> ok;
  for (LoadedEntry &it : entries) {
    auto executor =
        Executor::create(it.stages[stageOfRank(it, index)], weights, transport, o);
    if (!executor)
      ok = tl::unexpected(executor.error());
    if (!ok)
      break;
    it.executors[index] = std::move(*executor);
  }
  // Preparing an entry writes anywhere.
  for (LoadedEntry &it : entries)
    if (ok)
      ok = it.executors[index]->resetStates();
  if (ok)
    return true;
  fail(ok.error().message, false);
  if (local())
    team->abort();
  return false;
}

Expected<void> Session::State::request1(size_t index) {
  LoadedEntry &at = entry();
  Executor &executor = *at.executors[index];
  size_t stage = stageOfRank(at, index);
  for (size_t k = 0; k < at.interface.takers.size(); ++k)
    for (const Interface::Bound &taker : at.interface.takers[k])
      if (taker.stage == stage) {
        auto ok = at.sources[k] ? executor.setPart(taker.tensor, at.parts[index][taker])
                                : executor.setInput(taker.tensor, inputData[k]);
        if (!ok)
          return ok;
      }
  if (auto ok = executor.run(); !ok)
    return ok;
  Transport &transport = *transports[index];
  return at.outputs->deliverAll(executor, stage, transport, progress[transport.rank()],
                                outputData);
}

Expected<void> Session::State::inputJob(size_t index) {
  LoadedEntry &at = entry();
  size_t stage = stageOfRank(at, index);
  for (size_t k = 0; k < at.interface.takers.size(); ++k)
    for (const Interface::Bound &taker : at.interface.takers[k]) {
      if (!at.sources[k] || taker.stage != stage)
        continue;
      progress[transports[index]->rank()].step(RankProgress::Loading, 0);
      auto count = at.executors[index]->readInput(taker.tensor, *at.sources[k],
                                                  at.parts[index][taker]);
      if (!count)
        return tl::unexpected(count.error());
      inputBytes += *count;
    }
  progress[transports[index]->rank()].state.store(RankProgress::Idle);
  return {};
}

Expected<void> Session::State::stateJob(size_t index) {
  LoadedEntry &at = entry();
  Executor &executor = *at.executors[index];
  Transport &transport = *transports[index];
  if (job == Job::ResetStates) {
    for (LoadedEntry &it : entries) // each has its own
      if (auto ok = it.executors[index]->resetStates(); !ok)
        return ok;
    return {};
  }
  const Interface::Bound &keeper = at.interface.keepers[stateIndex];
  size_t stage = stageOfRank(at, index);
  if (job == Job::WriteState && keeper.stage == stage)
    return executor.setInput(keeper.tensor, stateFrom);
  if (job == Job::WriteState)
    return {};
  auto ok = at.stateParts->deliver(stateIndex, executor, stage, transport,
                                   progress[transport.rank()], stateTo);
  // The next messages to rank 0 are for another call of its.
  if (ok && !local() && !transport.barrier())
    return makeError("rank " + std::to_string(transport.rank()) +
                     ": the barrier with the other ranks failed");
  progress[transport.rank()].state.store(RankProgress::Idle);
  return ok;
}

Expected<void> Session::State::visitJob(size_t index) {
  LoadedEntry &at = entry();
  Executor &executor = *at.executors[index];
  const int rank = transports[index]->rank();
  const size_t stage = stageOfRank(at, index);
  const TaskTable &table = at.stages[stage]->table();
  Expected<void> ok;
  for (size_t i = 0; i < at.interface.keepers.size() && ok; ++i) {
    const Interface::Bound &keeper = at.interface.keepers[i];
    uint32_t buffer = keeper.stage == stage ? table.tensor(keeper.tensor).buffer : 0;
    uint32_t slots = keeper.stage == stage ? table.buffers()[buffer].slots : 0;
    for (uint32_t s = 0; s < slots && ok; ++s) {
      progress[rank].step(RankProgress::Running, UINT32_MAX);
      if (job == Job::FillStates)
        ok = executor.fillLocal(keeper.tensor, s, [&](std::byte *local) {
          return (*visit)(rank, i, s, local);
        });
      else if (const std::byte *local = executor.local(keeper.tensor, s))
        (*reader)(rank, i, s, local);
      else
        ok =
            makeError("rank " + std::to_string(rank) + ": the device reported a failure");
    }
  }
  progress[rank].state.store(RankProgress::Idle);
  return ok;
}

Expected<void> Session::State::agreeJob(size_t index) {
  Transport &transport = *transports[index];
  int rank = transport.rank();
  progress[rank].step(RankProgress::Waiting, UINT32_MAX);
  bool ok = transport.maximum(values);
  progress[rank].step(RankProgress::Idle, UINT32_MAX);
  if (!ok)
    return makeError("rank " + std::to_string(rank) +
                     ": agreeing with the other ranks failed");
  return {};
}

/// What this rank reaches while all do their utmost. Rank 0 gets everyone's.
bool Session::State::exchangeRooflines(Transport &transport) {
  auto rank = static_cast<size_t>(transport.rank());
  if (!transport.barrier())
    return false;
  Roofline mine = measureRoofline(now);
  if (local() || rank == 0)
    rooflines[rank] = mine;
  if (!local() && rank != 0)
    return transport.sendToRoot(&mine, sizeof mine);
  for (int r = 1; !local() && r < transport.size(); ++r)
    if (!transport.receiveFrom(r, &rooflines[static_cast<size_t>(r)], sizeof mine))
      return false;
  return true;
}

/// Threads put their spans down, processes send them to rank 0.
Expected<void> Session::State::profileJob(size_t index) {
  const std::vector<RunSpan> &mine = entry().executors[index]->spans();
  Transport &transport = *transports[index];
  int rank = transport.rank();
  if (local() || rank == 0)
    spans[static_cast<size_t>(rank)] = mine;
  progress[rank].step(RankProgress::Waiting, UINT32_MAX);
  bool ok = exchangeRooflines(transport);
  if (!local())
    ok = ok && exchangeSpans(transport, mine, spans, now) && transport.barrier();
  progress[rank].step(RankProgress::Idle, UINT32_MAX);
  if (!ok)
    return makeError("rank " + std::to_string(rank) + ": sending the profile failed");
  return {};
}

Expected<void> Session::State::jobOf(size_t index) {
  switch (job) {
  case Job::Request:
    return request1(index);
  case Job::Profile:
    return profileJob(index);
  case Job::ReadInputs:
    return inputJob(index);
  case Job::ReadStates:
  case Job::FillStates:
    return visitJob(index);
  case Job::Agree:
    return agreeJob(index);
  case Job::ReadState:
  case Job::WriteState:
  case Job::ResetStates:
    break;
  }
  return stateJob(index);
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
    if (Expected<void> ok = jobOf(index); !ok) {
      fail(ok.error().message, entry().executors[index]->aborted());
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

uint64_t Session::State::packedBytes() const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < transports.size(); ++i)
    for (const LoadedEntry &it : entries)
      bytes += it.stages[stageOfRank(it, i)]->table().packedBytes();
  return bytes;
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

/// Waits until every rank of this process is done.
Expected<void> Session::State::await() {
  entry().watchdog->begin();
  std::unique_lock guard(lock);
  while (done < transports.size()) {
    wakeCaller.wait_for(guard, std::chrono::milliseconds(100));
    // One process of several that failed: the others may never come to an end.
    if (failure.isBroken() && !local())
      break;
    if (done == transports.size())
      break;
    // Ranks that wait for others see no flag.
    if (options.stop.isRaised() && team) {
      failure.add("cancelled", false);
      team->abort();
    }
    if (auto message = entry().watchdog->look(entry().outputs->awaited())) {
      failure.hang(*message);
      if (team)
        team->abort();
      break;
    }
  }
  if (options.stop.isRaised())
    failure.add("cancelled", false);
  return failure.result();
}

/// An error of a session that has ended. Called with the lock.
Expected<void> Session::State::checkLives() const {
  if (failure.isBroken())
    return makeError("the session ended with an earlier error: " + failure.text());
  return {};
}

/// One job of all ranks, whose data has been set.
Expected<void> Session::State::give(Job what) {
  {
    std::lock_guard guard(lock);
    if (auto ok = checkLives(); !ok)
      return ok;
    job = what;
    done = 0;
    ++request;
  }
  wakeRanks.notify_all();
  return await();
}

/// The transports of the ranks in this process, and what ranks are seen by.
Expected<void> Session::State::connect() {
  int ranks = numRanks();
  if (local()) {
    team = std::make_unique<LocalTeam>(ranks);
    for (int r = 0; r < ranks; ++r)
      transports.push_back(team->connect(r));
  } else {
    auto transport = connectMpi();
    if (!transport)
      return tl::unexpected(transport.error());
    transports.push_back(std::move(*transport));
    if (int world = transports[0]->size(); world != ranks)
      return makeError("the bundle is for " + std::to_string(ranks) +
                       " ranks, MPI started " + std::to_string(world));
  }
  progress = options.progress;
  if (!progress) {
    ownProgress = std::make_unique<RankProgress[]>(static_cast<size_t>(ranks));
    progress = ownProgress.get();
  }
  std::vector<int> mine;
  for (const auto &transport : transports)
    mine.push_back(transport->rank());
  for (LoadedEntry &it : entries) {
    it.executors.resize(transports.size());
    it.sources.resize(it.interface.inputs.size());
    it.parts.resize(transports.size());
    it.watchdog = std::make_unique<Watchdog>(it.stages, mine, progress, options.timeout);
  }
  return {};
}

/// The programs belong together, and their schedules come to an end.
static Expected<void> checkPipeline(const Stages &stages) {
  std::vector<const TaskTable *> tables;
  for (const auto &stage : stages)
    tables.push_back(&stage->table());
  auto pipeline = pipelineOf(tables);
  if (!pipeline)
    return makeError("the programs do not fit together: " + pipeline.error().message);
  if (auto ok = schedule::check(*pipeline); !ok)
    return makeError("the schedules cannot be run: " + ok.error().message);
  return {};
}

Expected<void> Session::State::prepare(LoadedEntry &it) {
  if (auto ok = checkPipeline(it.stages); !ok)
    return ok;
  auto found = Interface::of(it.stages);
  if (!found)
    return tl::unexpected(found.error());
  it.interface = std::move(*found);
  if (auto ok = it.interface.arrange(it.info); !ok)
    return ok;
  it.given = it.interface.given();
  it.sizes.assign(it.interface.sizes.size(), 0);
  it.targets.assign(it.given.size(), nullptr);
  for (const TensorInfo &output : it.interface.outputs)
    it.shapes.push_back(output.shape);
  it.outputs = std::make_unique<Outputs>(it.stages, "output", it.given,
                                         it.interface.givers, local());
  it.stateParts = std::make_unique<Outputs>(it.stages, "state", it.interface.states,
                                            it.interface.keepers, local());
  return {};
}

/// Entries that have a state of one name have it on the same ranks: each rank keeps its
/// own part. That these are alike is seen where they are placed.
Expected<void> Session::State::checkStates() const {
  using Ranks = std::vector<int64_t>; ///< by rank of the run its place, or -1
  std::map<std::string, std::pair<Ranks, const LoadedEntry *>> known;
  for (const LoadedEntry &it : entries)
    for (size_t i = 0; i < it.interface.states.size(); ++i) {
      const std::string &name = it.interface.states[i].name;
      const TaskTable &table = it.stages[it.interface.keepers[i].stage]->table();
      Ranks own;
      for (int r = 0; r < numRanks(); ++r)
        own.push_back(table.placeOf(r));
      auto [first, fresh] = known.try_emplace(name, own, &it);
      if (!fresh && first->second.first != own)
        return makeError("state '" + name + "' is on other ranks in entry '" +
                         first->second.second->info.name + "' than in '" + it.info.name +
                         "'");
    }
  return {};
}

Expected<std::unique_ptr<Session>> Session::start(std::vector<SessionEntry> entries,
                                                  std::shared_ptr<WeightStore> weights,
                                                  const SessionOptions &options) {
  auto state = std::make_shared<State>();
  for (SessionEntry &entry : entries)
    state->entries.push_back({std::move(entry.info), std::move(entry.stages)});
  state->weights = std::move(weights);
  state->options = options;
  state->options.threads = std::max(options.threads.value_or(1), 1);
  for (LoadedEntry &entry : state->entries)
    if (auto ok = state->prepare(entry); !ok)
      return tl::unexpected(ok.error());
  if (auto ok = state->checkStates(); !ok)
    return tl::unexpected(ok.error());
  if (auto ok = state->connect(); !ok)
    return tl::unexpected(ok.error());
  state->weights->reserve(state->packedBytes());
  std::unique_ptr<Session> session(new Session());
  session->state = state;
  for (size_t i = 0; i < state->transports.size(); ++i)
    if (auto ok = State::startRank(state, i); !ok) {
      state->fail({}, true); // ends those that started and wait for this one
      return tl::unexpected(ok.error());
    }
  if (auto ok = state->await(); !ok)
    return tl::unexpected(ok.error());
  state->weights->trim();
  return session;
}

Expected<std::unique_ptr<Session>>
Session::start(std::vector<std::shared_ptr<const Stage>> stages,
               std::shared_ptr<WeightStore> weights, const SessionOptions &options,
               const BundleEntry &entry) {
  return start({{entry, std::move(stages)}}, std::move(weights), options);
}

Session::~Session() {
  {
    std::lock_guard guard(state->lock);
    state->stopping = true;
    if (state->team && state->failure.isBroken())
      state->team->abort();
  }
  state->wakeRanks.notify_all();
  for (pthread_t thread : state->threads) {
    // A rank that hangs cannot be joined; it keeps the state alive for itself. In an MPI
    // job that failed, the rank may be inside a call that never returns.
    if (state->failure.isHung() || (state->failure.isBroken() && !state->local()))
      ::pthread_detach(thread);
    else
      ::pthread_join(thread, nullptr);
  }
  // Leaving an MPI job in order takes all processes; after a failure the exit status
  // ends it instead.
  if (state->failure.isBroken() && !state->local())
    for (auto &transport : state->transports)
      (void)transport.release();
}

std::vector<std::string> Session::entries() const {
  std::vector<std::string> names;
  for (const LoadedEntry &entry : state->entries)
    names.push_back(entry.info.name);
  return names;
}
size_t Session::entry() const { return state->current; }
void Session::select(size_t entry) { state->current = entry; }
const BundleEntry &Session::info() const { return state->entry().info; }

const std::vector<TensorInfo> &Session::inputs() const {
  return state->entry().interface.inputs;
}
const std::vector<TensorInfo> &Session::outputs() const {
  return state->entry().interface.outputs;
}
const std::vector<std::vector<int64_t>> &Session::outputShapes() const {
  return state->entry().shapes;
}
const std::vector<TensorInfo> &Session::states() const {
  return state->entry().interface.states;
}
Session::Checked Session::checkedWeights() const {
  Checked sum;
  for (uint32_t i = 0; i < state->weights->numFiles(); ++i)
    if (const BlockCheck *check = state->weights->file(i).blocks()) {
      sum.bytes += check->checkedBytes();
      sum.seconds += check->seconds();
    }
  return sum;
}
int64_t Session::numRanks() const { return state->numRanks(); }
int Session::rank() const { return state->transports[0]->rank(); }
std::vector<int> Session::ranks() const {
  std::vector<int> all;
  for (const auto &transport : state->transports)
    all.push_back(transport->rank());
  return all;
}
bool Session::isRoot() const { return rank() == 0; }

bool Session::isHung() const {
  std::lock_guard guard(state->lock);
  return state->failure.isHung();
}

void Session::abort() {
  for (auto &transport : state->transports)
    transport->abort();
}

/// Brings what there is of each output to the front of its room.
static Expected<void> trimOutputs(LoadedEntry &entry) {
  if (entry.sizes.empty())
    return {};
  for (size_t k = 0; k < entry.shapes.size(); ++k) {
    const TensorInfo &info = entry.interface.outputs[k];
    for (size_t d = 0; d < info.shape.size(); ++d) {
      int which = entry.interface.sizeOf[k][d];
      if (which < 0)
        continue;
      int64_t size = entry.sizes[static_cast<size_t>(which)];
      if (size < 0 || size > info.shape[d])
        return makeError("dim " + std::to_string(d) + " of output '" + info.name +
                         "' has " + std::to_string(size) + " elements, at most " +
                         std::to_string(info.shape[d]) + " are possible");
      entry.shapes[k][d] = size;
    }
    if (entry.shapes[k] != info.shape)
      copyCommon(entry.targets[k], info.shape, entry.targets[k], entry.shapes[k],
                 byteWidth(info.type));
  }
  return {};
}

Expected<void> Session::run(std::span<const std::byte *const> inputs,
                            std::span<std::byte *const> outputs) {
  const Interface &interface = state->entry().interface;
  if (inputs.size() != interface.inputs.size() ||
      outputs.size() != interface.outputs.size())
    return makeError("expected " + std::to_string(interface.inputs.size()) +
                     " inputs and " + std::to_string(interface.outputs.size()) +
                     " outputs");
  state->inputData = inputs;
  LoadedEntry &entry = state->entry();
  std::ranges::copy(outputs, entry.targets.begin());
  for (size_t i = 0; i < entry.sizes.size(); ++i)
    entry.targets[outputs.size() + i] = reinterpret_cast<std::byte *>(&entry.sizes[i]);
  state->outputData = entry.targets;
  if (auto ok = state->give(State::Job::Request); !ok)
    return ok;
  return isRoot() ? trimOutputs(entry) : Expected<void>();
}

Expected<uint64_t> Session::readInputs(std::vector<std::optional<StoredTensor>> sources) {
  LoadedEntry &entry = state->entry();
  for (size_t k = 0; k < sources.size(); ++k)
    if (const TensorInfo &info = inputs()[k];
        sources[k] && (sources[k]->type != info.type || sources[k]->shape != info.shape))
      return makeError("input '" + info.name +
                       "' has another type or shape than the bundle's");
  entry.sources = std::move(sources);
  entry.sources.resize(inputs().size());
  state->inputBytes = 0;
  if (auto ok = state->give(State::Job::ReadInputs); !ok)
    return tl::unexpected(ok.error());
  return state->inputBytes.load();
}

Expected<void> Session::readState(size_t index, std::byte *to) {
  state->stateIndex = index, state->stateTo = to;
  return state->give(State::Job::ReadState);
}

Expected<void> Session::writeState(size_t index, const std::byte *from) {
  state->stateIndex = index, state->stateFrom = from;
  return state->give(State::Job::WriteState);
}

Expected<void> Session::resetStates() { return state->give(State::Job::ResetStates); }

std::vector<HeldState> Session::heldStates() const {
  return runtime::heldStates(state->entry().stages, state->entry().interface);
}

Expected<Hash128> Session::hashOfOrigins() const {
  return hashOrigins(state->entry().stages, state->entry().interface, *state->weights);
}

void Session::State::forEachHeld(
    const std::function<void(Executor &, int, size_t, size_t)> &visit) {
  LoadedEntry &at = entry();
  for (size_t index = 0; index < transports.size(); ++index)
    for (size_t i = 0; i < at.interface.keepers.size(); ++i)
      if (const Interface::Bound &keeper = at.interface.keepers[i];
          keeper.stage == stageOfRank(at, index))
        visit(*at.executors[index], transports[index]->rank(), i, keeper.tensor);
}

Expected<std::shared_ptr<const StateCopies>> Session::copyStates(StateReader read) {
  {
    // States of a session that has ended may be halfway between two steps.
    std::lock_guard guard(state->lock);
    if (auto ok = state->checkLives(); !ok)
      return tl::unexpected(ok.error());
  }
  auto copies = std::make_shared<StateCopies>();
  bool isMeanwhile = true;
  state->forEachHeld([&](const Executor &executor, int, size_t, size_t tensor) {
    isMeanwhile = isMeanwhile && executor.isReadableMeanwhile(tensor);
  });
  if (!isMeanwhile) {
    state->reader = &read;
    auto ok = state->give(State::Job::ReadStates);
    return ok ? Expected<std::shared_ptr<const StateCopies>>(copies)
              : tl::unexpected(ok.error());
  }
  auto shared = std::make_shared<const StateReader>(std::move(read));
  state->forEachHeld([&](Executor &executor, int rank, size_t i, size_t tensor) {
    executor.copyMeanwhile(tensor, *copies,
                           [shared, rank, i](uint32_t slot, const std::byte *local) {
                             (*shared)(rank, i, slot, local);
                           });
  });
  return copies;
}

Expected<void> Session::fillStates(const StateVisit &visit) {
  state->visit = &visit;
  return state->give(State::Job::FillStates);
}

Expected<void> Session::agree(std::span<int64_t> values) {
  if (state->local())
    return {};
  state->values = values;
  return state->give(State::Job::Agree);
}

std::optional<FoundNan> Session::notFinite() const {
  FoundNan first;
  bool isOfResult = false;
  for (const auto &executor : state->entry().executors)
    if (const auto &found = executor->notFinite()) {
      isOfResult |= found->isOfResult;
      first = *found < first ? *found : first;
    }
  first.isOfResult = isOfResult;
  bool isThere = isOfResult || first.origin != FoundNan::None;
  return isThere ? std::optional(first) : std::nullopt;
}

Expected<RunProfile> Session::profile() {
  RunProfile profile;
  for (const auto &stage : state->entry().stages)
    profile.programs.push_back(programOf(stage->table()));
  if (profile.programs.size() == 1)
    profile.programs[0].name.clear();
  state->spans.assign(static_cast<size_t>(numRanks()), {});
  state->rooflines.assign(static_cast<size_t>(numRanks()), {});
  if (auto ok = state->give(State::Job::Profile); !ok)
    return tl::unexpected(ok.error());
  for (int r = 0; isRoot() && r < numRanks(); ++r)
    profile.ranks.push_back({stageOf(state->entry().stages, r),
                             state->rooflines[static_cast<size_t>(r)],
                             std::move(state->spans[static_cast<size_t>(r)])});
  return profile;
}
