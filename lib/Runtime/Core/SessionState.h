//===- SessionState.h - What a session is made of ---------------*- C++ -*-===//
//
// The caller's thread gives calls, each rank's thread serves all of them in their order.
// Calls lie in a ring. There is one at a time, but for requests that follow each other:
// of these a rank begins the next one when it has ended its own part of the one before,
// whatever other ranks are at. Such a request is over in a process when its ranks have
// ended it, its outputs have come or gone, and with MPI all processes have said so.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_CORE_SESSIONSTATE_H
#define PARTITA_LIB_RUNTIME_CORE_SESSIONSTATE_H

#include "Failure.h"
#include "Outputs.h"
#include "Watchdog.h"
#include "partita/Runtime/Roofline.h"
#include "partita/Runtime/Session.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <pthread.h>

namespace partita::runtime {

/// An entry point: its programs, and what prepared them.
struct LoadedEntry {
  BundleEntry info;
  Stages stages;
  Interface interface = {};
  std::vector<TensorInfo> given = {}; ///< outputs and sizes
  /// Facts of the last request: sizes, the outputs' shapes by them, and where all was
  /// put.
  std::vector<int64_t> sizes = {};
  std::vector<std::vector<int64_t>> shapes = {};
  std::vector<std::byte *> targets = {};
  std::unique_ptr<Outputs> outputs = {}, stateParts = {};
  std::unique_ptr<Watchdog> watchdog = {};
  std::vector<std::unique_ptr<Executor>> executors = {}; ///< of the ranks in this process
  /// Files that inputs are read from, by input; and, by rank of this process, what each
  /// taker of an input has read.
  std::vector<std::optional<StoredTensor>> sources = {};
  std::vector<std::map<Interface::Bound, std::vector<std::byte>>> parts = {};
};

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

  /// Kinds of what ranks do for a call of the caller's.
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

  /// A call of the caller's.
  struct Given {
    Job job = Job::Request;
    size_t done = 0;     ///< ranks of this process for which it is over
    bool failed = false; ///< at one of them
    std::span<const std::byte *const> inputs = {};
    std::span<std::byte *const> outputs = {}; ///< and sizes
    // Fields of a request that others may follow.
    bool isFollowed = false;
    std::vector<std::optional<StoredTensor>> sources = {};
    std::vector<std::byte *> targets = {}; ///< as LoadedEntry::targets
    std::vector<int64_t> sizes = {};
    int64_t wish = 0; ///< of this process, then of all
    double begun = 0; ///< the first rank of this process; 0: none has
  };

  std::mutex lock;
  std::condition_variable wakeRanks, wakeCaller;
  std::vector<Given> ring = std::vector<Given>(1);
  uint64_t newest = 0; ///< number of the last call; 0 is to load
  uint64_t oldest = 1; ///< the first request that follows and was not ended
  bool stopping = false;
  Failure failure;
  std::function<bool()> wish; ///< see Session::follow
  Session::Overlap overlap;
  /// Requests, by rank of this process, that it has run and that are not over: from the
  /// first to before the second.
  std::vector<std::pair<uint64_t, uint64_t>> onTheWay;
  size_t stateIndex = 0; ///< of the jobs with one state
  std::byte *stateTo = nullptr;
  const std::byte *stateFrom = nullptr;
  const StateVisit *visit = nullptr;   ///< of the job FillStates
  const StateReader *reader = nullptr; ///< of the job ReadStates
  std::span<int64_t> values;           ///< of the job Agree
  // Results of the job Profile, by rank.
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

  Given &given(uint64_t number) { return ring[number % ring.size()]; }
  /// Calls `number` over for one more rank. With the lock.
  void end(uint64_t number);

  /// Not by std::thread, which throws where the system has no more threads.
  static Expected<void> startRank(std::shared_ptr<State> state, size_t index);
  Expected<void> connect();
  Expected<void> beginThreads();
  /// Bytes of weights repacked for engines, of all ranks here, as if none shared any.
  uint64_t packedBytes() const;
  Expected<void> prepare(LoadedEntry &entry);
  Expected<void> checkStates() const;
  void rankMain(size_t index);
  bool loadRank(size_t index);
  void serve(size_t index);
  void serveOne(size_t index, uint64_t number, std::unique_lock<std::mutex> &guard);
  bool awaitCall(size_t index, uint64_t served, std::unique_lock<std::mutex> &guard);
  bool isOnTheWay(size_t index) const {
    return onTheWay[index].first != onTheWay[index].second;
  }
  bool lookAtOutputs(size_t index);
  Expected<void> runRequest(size_t index, const Given &call);
  Expected<void> requestJob(size_t index, const Given &call);
  Expected<void> followedJob(size_t index, uint64_t number);
  using Sources = std::vector<std::optional<StoredTensor>>;
  Expected<void> readParts(size_t index, const Sources &sources);
  Expected<void> stateJob(size_t index, Job job);
  Expected<void> visitJob(size_t index, Job job);
  Expected<void> agreeJob(size_t index);
  Expected<void> jobOf(size_t index, uint64_t number);
  Expected<void> profileJob(size_t index);
  bool exchangeRooflines(Transport &transport);
  Expected<void> checkLives() const;
  Expected<void> give(Given call);
  Expected<void> give(Job what) { return give(Given{.job = what}); }
  /// Tells whether the caller's thread may run the only rank's requests.
  bool runsHere() const;
  Expected<void> runHere(const Given &call);
  /// Every state that a rank of this process holds: rank, state, and its tensor there.
  void forEachHeld(const std::function<void(Executor &, int, size_t, size_t)> &visit);
  Expected<void> await(uint64_t number);
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_CORE_SESSIONSTATE_H
