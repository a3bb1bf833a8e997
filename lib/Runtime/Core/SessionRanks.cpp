//===- SessionRanks.cpp - What the ranks of a session do ------------------===//
#include "SessionState.h"

#include "ExecutorOp.h"
#include "Recording.h"
#include "partita/Runtime/Clocks.h"
#include "partita/Runtime/Team.h"

#include <chrono>
#include <cstring>

using namespace partita;
using namespace partita::runtime;

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
  if (!local())
    o.meanwhile = [this, index] { return lookAtOutputs(index); };
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

/// Fills the inputs of this rank and follows its schedule.
Expected<void> Session::State::runRequest(size_t index, const Given &call) {
  LoadedEntry &at = entry();
  Executor &executor = *at.executors[index];
  size_t stage = stageOfRank(at, index);
  for (size_t k = 0; k < at.interface.takers.size(); ++k)
    for (const Interface::Bound &taker : at.interface.takers[k])
      if (taker.stage == stage) {
        bool isRead = call.isFollowed || at.sources[k];
        auto ok = isRead ? executor.setPart(taker.tensor, at.parts[index][taker])
                         : executor.setInput(taker.tensor, call.inputs[k]);
        if (!ok)
          return ok;
      }
  return executor.run();
}

Expected<void> Session::State::requestJob(size_t index, const Given &call) {
  LoadedEntry &at = entry();
  if (auto ok = runRequest(index, call); !ok)
    return ok;
  Transport &transport = *transports[index];
  return at.outputs->deliverAll(*at.executors[index], stageOfRank(at, index), transport,
                                progress[transport.rank()], call.outputs);
}

/// A rank that is alone waits for nobody. A rank of one thread has no team, of which the
/// caller's thread would have another one.
bool Session::State::runsHere() const {
  return local() && transports.size() == 1 && *options.threads == 1 &&
         options.device->isHost();
}

/// A request of the only rank, by the thread that would wait for it: to wake another one,
/// and to be woken, takes longer than many a small request.
Expected<void> Session::State::runHere(const Given &call) {
  {
    std::lock_guard guard(lock);
    if (auto ok = checkLives(); !ok)
      return ok;
    if (oldest <= newest)
      return makeError("requests that follow each other are not ended");
  }
  const int team = teamSize();
  setTeamSize(1);
  auto ok = requestJob(0, call);
  setTeamSize(team);
  std::lock_guard guard(lock);
  if (!ok)
    failure.add(ok.error().message, entry().executors[0]->aborted());
  if (options.stop.isRaised())
    failure.add("cancelled", false);
  return failure.result();
}

Expected<void> Session::State::readParts(size_t index, const Sources &sources) {
  LoadedEntry &at = entry();
  size_t stage = stageOfRank(at, index);
  for (size_t k = 0; k < at.interface.takers.size(); ++k)
    for (const Interface::Bound &taker : at.interface.takers[k]) {
      if (!sources[k] || taker.stage != stage)
        continue;
      progress[transports[index]->rank()].step(RankProgress::Loading, 0);
      auto count = at.executors[index]->readInput(taker.tensor, *sources[k],
                                                  at.parts[index][taker]);
      if (!count)
        return tl::unexpected(count.error());
      inputBytes += *count;
    }
  progress[transports[index]->rank()].state.store(RankProgress::Idle);
  return {};
}

//===----------------------------------------------------------------------===//
// Requests that follow each other
//===----------------------------------------------------------------------===//

/// A request behind which the rank goes on at once. What of its outputs is on the way
/// then is looked at between the entries of later ones.
Expected<void> Session::State::followedJob(size_t index, uint64_t number) {
  LoadedEntry &at = entry();
  Given &call = given(number);
  {
    std::lock_guard guard(lock);
    if (call.begun == 0)
      call.begun = now();
  }
  if (auto ok = readParts(index, call.sources); !ok)
    return ok;
  if (auto ok = runRequest(index, call); !ok)
    return ok;
  Transport &transport = *transports[index];
  auto later = static_cast<size_t>(number % ring.size());
  if (auto ok = at.outputs->begin(later, *at.executors[index], stageOfRank(at, index),
                                  transport, progress[transport.rank()], call.outputs);
      !ok || local())
    return ok;
  call.wish = wish && wish();
  if (!transport.beginMaximum({&call.wish, 1}, later))
    return makeError("rank " + std::to_string(transport.rank()) +
                     ": agreeing with the other ranks failed");
  auto &[first, end] = onTheWay[index];
  first = first == end ? number : first;
  end = number + 1;
  return {};
}

/// Ends the requests whose outputs have come or gone. False if that failed.
bool Session::State::lookAtOutputs(size_t index) {
  auto &[first, end] = onTheWay[index];
  for (; first != end; ++first) {
    auto later = static_cast<size_t>(first % ring.size());
    Outputs &outputs = *entry().outputs;
    Transport &transport = *transports[index];
    bool over = false;
    int awaited = -1;
    if (!transport.isOver(later, over, awaited)) {
      fail("rank " + std::to_string(transport.rank()) +
               ": sending outputs of requests that follow each other failed",
           false);
      return false;
    }
    outputs.setAwaited(awaited);
    if (!over)
      return true;
    outputs.take(later, transport, given(first).outputs);
    std::lock_guard guard(lock);
    this->end(first);
  }
  return true;
}

/// Calls end in their order: a rank serves them so.
void Session::State::end(uint64_t number) {
  Given &call = given(number);
  if (++call.done < transports.size())
    return;
  wakeCaller.notify_one();
  if (Given &next = given(number + 1);
      call.isFollowed && number < newest && next.begun != 0) {
    ++overlap.requests;
    overlap.seconds += now() - next.begun;
  }
}

//===----------------------------------------------------------------------===//
// Other calls
//===----------------------------------------------------------------------===//

Expected<void> Session::State::stateJob(size_t index, Job job) {
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

Expected<void> Session::State::visitJob(size_t index, Job job) {
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

/// Measures what this rank reaches while all do their utmost. Rank 0 gets everyone's.
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

Expected<void> Session::State::jobOf(size_t index, uint64_t number) {
  const Given &call = given(number);
  switch (call.job) {
  case Job::Request:
    return call.isFollowed ? followedJob(index, number) : requestJob(index, call);
  case Job::Profile:
    return profileJob(index);
  case Job::ReadInputs:
    return readParts(index, entry().sources);
  case Job::ReadStates:
  case Job::FillStates:
    return visitJob(index, call.job);
  case Job::Agree:
    return agreeJob(index);
  case Job::ReadState:
  case Job::WriteState:
  case Job::ResetStates:
    break;
  }
  return stateJob(index, call.job);
}

/// Waits for the call behind `served`; false if there will be none. Until then the rank
/// looks at outputs that are on the way.
bool Session::State::awaitCall(size_t index, uint64_t served,
                               std::unique_lock<std::mutex> &guard) {
  // Few calls of MPI, and soon enough beside a request.
  constexpr std::chrono::microseconds pause(200);
  auto isCalled = [&] { return stopping || newest != served; };
  bool looks = isOnTheWay(index);
  while (isOnTheWay(index) && !failure.isBroken() && !isCalled()) {
    guard.unlock();
    lookAtOutputs(index);
    guard.lock();
    if (isOnTheWay(index))
      wakeRanks.wait_for(guard, pause, isCalled);
  }
  if (looks && !isOnTheWay(index))
    progress[transports[index]->rank()].state.store(RankProgress::Idle);
  wakeRanks.wait(guard, isCalled);
  return !stopping;
}

void Session::State::serveOne(size_t index, uint64_t number,
                              std::unique_lock<std::mutex> &guard) {
  // Requests behind one that failed lack what they need.
  bool isLost = failure.isBroken();
  Expected<void> ok;
  if (!isLost) {
    guard.unlock();
    if (ok = jobOf(index, number); !ok) {
      fail(ok.error().message, entry().executors[index]->aborted());
      if (local())
        team->abort();
    }
    guard.lock();
  }
  Given &call = given(number);
  call.failed |= isLost || !ok;
  bool isLater = call.isFollowed && !local() && !call.failed;
  if (!isLater)
    end(number);
  wakeCaller.notify_one();
}

void Session::State::serve(size_t index) {
  uint64_t served = 0;
  std::unique_lock guard(lock);
  while (awaitCall(index, served, guard))
    serveOne(index, ++served, guard);
}

void Session::State::rankMain(size_t index) {
  bool loaded = loadRank(index);
  {
    std::lock_guard guard(lock);
    end(0);
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
