//===- Session.cpp - A loaded bundle, ready for requests ------------------===//
#include "SessionState.h"

#include "Recording.h"
#include "partita/Runtime/Fit.h"
#include "partita/Runtime/Team.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

using namespace partita;
using namespace partita::runtime;

/// Waits until a call is over for every rank of this process.
Expected<void> Session::State::await(uint64_t number) {
  entry().watchdog->begin();
  std::unique_lock guard(lock);
  Given &call = given(number);
  while (call.done < transports.size() && !failure.isHung()) {
    wakeCaller.wait_for(guard, std::chrono::milliseconds(100));
    if (call.done == transports.size())
      break;
    // One process of several that failed: the others may never come to an end.
    if (failure.isBroken() && !local())
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
  // A request may have failed that follows this one.
  bool isOver = call.done == transports.size() && !call.failed;
  return call.isFollowed && isOver ? Expected<void>() : failure.result();
}

/// An error of a session that has ended. Called with the lock.
Expected<void> Session::State::checkLives() const {
  if (failure.isBroken())
    return makeError("the session ended with an earlier error: " + failure.text());
  return {};
}

/// A call that all ranks serve, whose data has been set.
Expected<void> Session::State::give(Given call) {
  bool follows = call.isFollowed;
  uint64_t number = 0;
  {
    std::lock_guard guard(lock);
    if (auto ok = checkLives(); !ok)
      return ok;
    if (!follows && oldest <= newest)
      return makeError("requests that follow each other are not ended");
    number = ++newest;
    if (!follows)
      oldest = number + 1;
    given(number) = std::move(call);
  }
  wakeRanks.notify_all();
  return follows ? Expected<void>() : await(number);
}

/// The thread beside a rank of MPI, where one is asked for.
Expected<void> Session::State::beginThreads() {
  if (options.commThreads > 1)
    return makeError("--comm-threads is " + std::to_string(options.commThreads) +
                     ": a rank of MPI has one thread beside it at most");
  if (options.commThreads == 0)
    return {};
  if (auto ok = transports[0]->beginThread(); !ok)
    return makeError("--comm-threads: " + ok.error().message);
  return {};
}

/// The transports of the ranks in this process, and what ranks are seen by.
Expected<void> Session::State::connect() {
  int ranks = numRanks();
  if (local()) {
    team = std::make_unique<LocalTeam>(ranks, options.commThreads);
    for (int r = 0; r < ranks; ++r)
      transports.push_back(team->connect(r));
  } else {
    auto transport = connectMpi(options.mpiWindow);
    if (!transport)
      return tl::unexpected(transport.error());
    transports.push_back(std::move(*transport));
    if (int world = transports[0]->size(); world != ranks)
      return makeError("the bundle is for " + std::to_string(ranks) +
                       " ranks, MPI started " + std::to_string(world));
    if (auto ok = beginThreads(); !ok)
      return ok;
  }
  progress = options.progress;
  if (!progress) {
    ownProgress = std::make_unique<RankProgress[]>(static_cast<size_t>(ranks));
    progress = ownProgress.get();
  }
  std::vector<int> mine;
  for (const auto &transport : transports)
    mine.push_back(transport->rank());
  onTheWay.resize(transports.size());
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
  if (auto ok = state->await(0); !ok)
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
  bool isBroken = false;
  {
    std::lock_guard guard(state->lock);
    state->stopping = true;
    // Some ranks wait for what others have not begun, of requests that nobody ends.
    isBroken = state->failure.isBroken() || state->oldest <= state->newest;
    if (state->team && isBroken)
      state->team->abort();
  }
  state->wakeRanks.notify_all();
  for (pthread_t thread : state->threads) {
    // A rank that hangs cannot be joined; it keeps the state alive for itself. In an MPI
    // job that failed, the rank may be inside a call that never returns.
    if (state->failure.isHung() || (isBroken && !state->local()))
      ::pthread_detach(thread);
    else
      ::pthread_join(thread, nullptr);
  }
  // Leaving an MPI job in order takes all processes; after a failure the exit status
  // ends it instead.
  if (isBroken && !state->local())
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
static Expected<void> trimOutputs(LoadedEntry &entry, std::span<std::byte *const> targets,
                                  std::span<const int64_t> sizes) {
  if (sizes.empty())
    return {};
  for (size_t k = 0; k < entry.shapes.size(); ++k) {
    const TensorInfo &info = entry.interface.outputs[k];
    for (size_t d = 0; d < info.shape.size(); ++d) {
      int which = entry.interface.sizeOf[k][d];
      if (which < 0)
        continue;
      int64_t size = sizes[static_cast<size_t>(which)];
      if (size < 0 || size > info.shape[d])
        return makeError("dim " + std::to_string(d) + " of output '" + info.name +
                         "' has " + std::to_string(size) + " elements, at most " +
                         std::to_string(info.shape[d]) + " are possible");
      entry.shapes[k][d] = size;
    }
    if (entry.shapes[k] != info.shape)
      copyCommon(targets[k], info.shape, targets[k], entry.shapes[k],
                 byteWidth(info.type));
  }
  return {};
}

/// Sets where the outputs go, and their sizes behind them.
static void setTargets(std::span<std::byte *const> outputs, std::span<int64_t> sizes,
                       std::span<std::byte *> targets) {
  std::ranges::copy(outputs, targets.begin());
  for (size_t i = 0; i < sizes.size(); ++i)
    targets[outputs.size() + i] = reinterpret_cast<std::byte *>(&sizes[i]);
}

/// An error if a file has not what an input is.
static Expected<void> checkSource(const TensorInfo &info,
                                  const std::optional<StoredTensor> &source,
                                  bool mustBe) {
  if (!source && mustBe)
    return makeError("input '" + info.name + "' is not read from a file");
  if (source && (source->type != info.type || source->shape != info.shape))
    return makeError("input '" + info.name +
                     "' has another type or shape than the bundle's");
  return {};
}

static Expected<void> checkCounts(const Interface &interface, size_t inputs,
                                  size_t outputs) {
  if (inputs == interface.inputs.size() && outputs == interface.outputs.size())
    return {};
  return makeError("expected " + std::to_string(interface.inputs.size()) +
                   " inputs and " + std::to_string(interface.outputs.size()) +
                   " outputs");
}

Expected<void> Session::run(std::span<const std::byte *const> inputs,
                            std::span<std::byte *const> outputs) {
  LoadedEntry &entry = state->entry();
  if (auto ok = checkCounts(entry.interface, inputs.size(), outputs.size()); !ok)
    return ok;
  setTargets(outputs, entry.sizes, entry.targets);
  State::Given call{.inputs = inputs, .outputs = entry.targets};
  auto ok = state->runsHere() ? state->runHere(call) : state->give(std::move(call));
  if (!ok)
    return ok;
  return isRoot() ? trimOutputs(entry, entry.targets, entry.sizes) : Expected<void>();
}

void Session::follow(size_t most, std::function<bool()> wish) {
  std::lock_guard guard(state->lock);
  state->ring = std::vector<State::Given>(std::max<size_t>(most, 1));
  state->wish = std::move(wish);
  if (!state->local())
    state->entry().outputs->reserve(state->ring.size(), rank());
}

size_t Session::begun() const { return state->newest + 1 - state->oldest; }
size_t Session::mostBegun() const { return state->ring.size(); }

Expected<void> Session::begin(std::vector<std::optional<StoredTensor>> sources,
                              std::span<std::byte *const> outputs) {
  LoadedEntry &entry = state->entry();
  if (auto ok = checkCounts(entry.interface, sources.size(), outputs.size()); !ok)
    return ok;
  for (size_t k = 0; k < sources.size(); ++k)
    if (auto ok = checkSource(inputs()[k], sources[k], /*mustBe=*/true); !ok)
      return ok;
  if (begun() == state->ring.size())
    return makeError(std::to_string(begun()) +
                     " requests were begun, and none of them is ended");
  State::Given call;
  call.isFollowed = true;
  call.sources = std::move(sources);
  call.sizes.resize(entry.sizes.size());
  call.targets.resize(entry.targets.size());
  setTargets(outputs, call.sizes, call.targets);
  call.outputs = call.targets;
  return state->give(std::move(call));
}

Expected<bool> Session::end() {
  if (begun() == 0)
    return makeError("no request was begun");
  const uint64_t number = state->oldest;
  auto ok = state->await(number);
  ++state->oldest;
  if (!ok)
    return tl::unexpected(ok.error());
  State::Given &call = state->given(number);
  if (state->local())
    call.wish = state->wish && state->wish();
  if (isRoot())
    if (auto ok = trimOutputs(state->entry(), call.targets, call.sizes); !ok)
      return tl::unexpected(ok.error());
  return call.wish != 0;
}

uint64_t Session::movedMeanwhile() const {
  return state->transports[0]->movedMeanwhile();
}

Session::Overlap Session::overlap() const {
  std::lock_guard guard(state->lock);
  return state->overlap;
}

Expected<uint64_t> Session::readInputs(std::vector<std::optional<StoredTensor>> sources) {
  LoadedEntry &entry = state->entry();
  for (size_t k = 0; k < sources.size(); ++k)
    if (auto ok = checkSource(inputs()[k], sources[k], /*mustBe=*/false); !ok)
      return tl::unexpected(ok.error());
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
