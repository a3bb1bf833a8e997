//===- Saver.cpp - Generations written while requests run -----------------===//
#include "partita/Runtime/CheckpointSession.h"

#include "Worker.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

using Clock = std::chrono::steady_clock;

namespace {

/// A piece on its way from a rank's memory to the rank's buffer.
struct Copy {
  SliceCopy slice;
  uint64_t begin; ///< in the buffer
};

/// Pieces that the ranks of this process write, and buffers for them. A thread that is
/// stuck keeps it.
struct Snapshot {
  std::vector<HeldState> states;
  std::vector<std::vector<runtime::Piece>> pieces; ///< by rank of the run
  struct Rank {
    Memory buffer;
    uint64_t bytes = 0;
  };
  std::map<int, Rank> ranks; ///< of this process
  /// By rank, state and slot.
  std::map<std::tuple<int, size_t, uint32_t>, std::vector<Copy>> copies;
  std::atomic<uint64_t> written{0};

  void take(int rank, size_t state, uint32_t slot, const std::byte *local) const {
    auto list = copies.find({rank, state, slot});
    if (list == copies.end())
      return;
    std::byte *buffer = ranks.at(rank).buffer.get();
    for (const Copy &it : list->second)
      it.slice.toGlobal(local, buffer + it.begin);
  }
};

} // namespace

struct CheckpointSaver::State {
  /// Phase of the save under way. Publish: the root gives the generation its name.
  enum class Phase : uint8_t { None, Parts, Publish };

  State(Session &session, const CheckpointFolder &folder, const Options &options,
        Worker worker)
      : session(session), place(folder), folder(folder.path()), number(folder.number()),
        options(options),
        isAlone(session.ranks().size() == static_cast<size_t>(session.numRanks())),
        worker(std::move(worker)) {}

  Expected<void> prepare();
  Expected<void> begin(Manifest head, int log, std::string alsoAs);
  Expected<void> exchange(std::span<int64_t> votes);
  Expected<void> advance(int64_t failedFrom);
  Expected<void> finish();
  void count();
  void fail(std::string sentence) {
    failure = std::move(sentence);
    lostName = lostName || !alsoAs.empty();
  }
  using Job = std::function<Expected<void>()>;
  Job partsJob();
  Job publishJob();
  void watch();
  std::string incarnation() const { return incarnationText(number); }
  std::string path() const { return generationPath(folder, head.step); }

  Session &session;
  const CheckpointFolder &place;
  std::string folder;
  uint64_t number;
  Options options;
  bool isAlone; ///< one process has all ranks
  std::shared_ptr<Snapshot> snapshot = std::make_shared<Snapshot>();
  std::shared_ptr<const StateCopies> copies; ///< of the save under way
  Worker worker;

  Phase phase = Phase::None;
  bool hasJob = false; ///< the worker's result is not taken
  bool isStuck = false;
  std::string problem; ///< of this process, in this phase
  Aside aside;         ///< of the root
  Manifest head;
  int log = -1;
  std::string alsoAs;
  std::optional<std::string> failure;
  bool lostName = false;
  int64_t saved = -1;
  Cost cost;
  double waited = 0; ///< seconds of the caller in the last call of `save`
  uint64_t seenBytes = 0;
  Clock::time_point seen = Clock::now();
};

//===----------------------------------------------------------------------===//
// Snapshots
//===----------------------------------------------------------------------===//

/// Buffers, and the copies into them.
Expected<void> CheckpointSaver::State::prepare() {
  snapshot->states = session.heldStates();
  snapshot->pieces = piecesOf(snapshot->states, static_cast<int>(session.numRanks()));
  for (int rank : session.ranks()) {
    uint64_t end = 0;
    for (const Piece &piece : snapshot->pieces[static_cast<size_t>(rank)]) {
      uint64_t begin = pieceBegin(end);
      end = begin + bytesOf(piece, snapshot->states);
      SliceCopy slice(piece.fromLocal, extentsOf(piece.runs), piece.localShape,
                      byteWidth(snapshot->states[piece.state].type));
      snapshot->copies[{rank, piece.state, piece.slot}].push_back(
          {std::move(slice), begin});
    }
    // Space::State is filled at once, so that the first save does not wait for pages.
    auto buffer = cpuDevice().allocate(Space::State, end);
    if (!buffer)
      return makeError("no memory for checkpoints of rank " + std::to_string(rank) +
                       ": " + buffer.error().message);
    snapshot->ranks[rank] = {std::move(*buffer), end};
  }
  return {};
}

Expected<void> CheckpointSaver::State::begin(Manifest given, int logFile,
                                             std::string secondName) {
  head = std::move(given), log = logFile, alsoAs = std::move(secondName);
  std::string told;
  if (isStuck)
    told = "the disk of '" + folder + "' is stuck";
  else if (session.isRoot()) {
    auto made = place.check().and_then([&] { return Aside::folder(path(), number); });
    if (made)
      aside = std::move(*made);
    else
      told = made.error().message;
  }
  auto agreed = agreeOnText(session, std::move(told));
  if (!agreed)
    return tl::unexpected(agreed.error());
  if (!agreed->empty()) {
    aside = Aside();
    fail(*agreed);
    return {};
  }
  auto begun =
      session.copyStates([snapshot = snapshot](int rank, size_t state, uint32_t slot,
                                               const std::byte *local) {
        snapshot->take(rank, state, slot, local);
      });
  if (!begun)
    return tl::unexpected(begun.error());
  copies = std::move(*begun);
  hasJob = true;
  seen = Clock::now();
  if (!isAlone) {
    phase = Phase::Parts;
    worker.give(partsJob());
    return {};
  }
  // Nobody is to be waited for between the two.
  phase = Phase::Publish;
  worker.give([parts = partsJob(), name = publishJob()]() mutable -> Expected<void> {
    auto ok = parts();
    return ok ? name() : ok;
  });
  return {};
}

CheckpointSaver::State::Job CheckpointSaver::State::partsJob() {
  return [snapshot = snapshot, copies = copies, at = Aside::nameOf(path(), number),
          step = head.step, incarnation = incarnation()]() -> Expected<void> {
    copies->make();
    for (const auto &[rank, own] : snapshot->ranks) {
      auto part = static_cast<size_t>(rank);
      auto ok = writePart(at, part, incarnation, step, snapshot->states,
                          snapshot->pieces[part], own.buffer.get(), snapshot->written);
      if (!ok)
        return ok;
    }
    return {};
  };
}

/// Holds the folder aside, which goes with the job if it does not get its name.
CheckpointSaver::State::Job CheckpointSaver::State::publishJob() {
  Manifest manifest = head;
  manifest.incarnation = incarnation();
  return [manifest = std::move(manifest), snapshot = snapshot, place = &place,
          folder = folder, log = log, keep = options.keep, alsoAs = alsoAs,
          aside = std::make_shared<Aside>(std::move(aside))]() mutable -> Expected<void> {
    describe(manifest, snapshot->states, snapshot->pieces);
    if (log >= 0 && ::fdatasync(log) != 0)
      return makeError(std::string("cannot write the log: ") + std::strerror(errno));
    // The mount may have gone before the folder aside was made, which then lies below it.
    if (auto ok = place->check(); !ok)
      return ok;
    return publish(std::move(*aside), folder, std::move(manifest), keep, alsoAs);
  };
}

//===----------------------------------------------------------------------===//
// Phases
//===----------------------------------------------------------------------===//

/// Sees a disk that makes no progress.
void CheckpointSaver::State::watch() {
  uint64_t bytes = snapshot->written.load();
  if (bytes != seenBytes)
    seenBytes = bytes, seen = Clock::now();
  std::chrono::duration<double> still = Clock::now() - seen;
  if (still.count() < options.timeout)
    return;
  isStuck = true, hasJob = false;
  problem = "writing '" + path() + "' made no progress for " +
            std::to_string(static_cast<int64_t>(options.timeout)) + " s";
}

Expected<void> CheckpointSaver::State::exchange(std::span<int64_t> votes) {
  if (hasJob && !worker.isBusy()) {
    hasJob = false;
    if (auto ok = worker.takeResult(); !ok)
      problem = ok.error().message;
  } else if (hasJob) {
    watch();
  }
  std::vector<int64_t> values = {
      hasJob, problem.empty() ? 0 : session.numRanks() - session.rank()};
  values.insert(values.end(), votes.begin(), votes.end());
  if (auto ok = session.agree(values); !ok)
    return ok;
  std::copy(values.begin() + 2, values.end(), votes.begin());
  if (phase == Phase::None || values[0] != 0)
    return {};
  return advance(values[1]);
}

/// Every process has done its work of this phase.
Expected<void> CheckpointSaver::State::advance(int64_t failedFrom) {
  if (failedFrom != 0) {
    auto text = agreeOnText(session, std::exchange(problem, {}));
    if (!text)
      return tl::unexpected(text.error());
    fail(*text);
    phase = Phase::None;
    aside = Aside(); // what is there of it goes
    count();
    return {};
  }
  if (phase == Phase::Publish) {
    phase = Phase::None;
    saved = head.step;
    ++cost.saves;
    count();
    return {};
  }
  phase = Phase::Publish;
  if (!session.isRoot())
    return {};
  hasJob = true;
  seen = Clock::now();
  worker.give(publishJob());
  return {};
}

/// Adds what requests have waited for a save that is over.
void CheckpointSaver::State::count() {
  double seconds = waited + (copies ? copies->waited() : 0);
  copies = nullptr, waited = 0;
  cost.seconds += seconds;
  cost.mostSeconds = std::max(cost.mostSeconds, seconds);
}

Expected<void> CheckpointSaver::State::finish() {
  while (phase != Phase::None) {
    if (hasJob)
      worker.waitFor(0.02);
    if (auto ok = exchange({}); !ok)
      return ok;
  }
  return {};
}

//===----------------------------------------------------------------------===//
// The interface
//===----------------------------------------------------------------------===//

CheckpointSaver::CheckpointSaver(std::unique_ptr<State> state)
    : state(std::move(state)) {}
CheckpointSaver::~CheckpointSaver() = default;

Expected<std::unique_ptr<CheckpointSaver>>
CheckpointSaver::create(Session &session, const CheckpointFolder &folder,
                        const Options &options) {
  auto worker = Worker::start();
  std::unique_ptr<State> state;
  std::string problem;
  if (!worker) {
    problem = worker.error().message;
  } else {
    state = std::make_unique<State>(session, folder, options, std::move(*worker));
    if (auto ok = state->prepare(); !ok)
      problem = ok.error().message;
  }
  auto agreed = agreeOnText(session, std::move(problem));
  if (!agreed)
    return tl::unexpected(agreed.error());
  if (!agreed->empty())
    return makeError(*agreed);
  return std::unique_ptr<CheckpointSaver>(new CheckpointSaver(std::move(state)));
}

uint64_t CheckpointSaver::bufferBytes() const {
  uint64_t bytes = 0;
  for (const auto &[rank, own] : state->snapshot->ranks)
    bytes += own.bytes;
  return bytes;
}

Expected<void> CheckpointSaver::save(Manifest head, int log, std::string alsoAs) {
  auto start = Clock::now();
  auto ok = state->finish();
  if (ok)
    ok = state->begin(std::move(head), log, std::move(alsoAs));
  state->waited = std::chrono::duration<double>(Clock::now() - start).count();
  if (ok && !isSaving()) // it could not begin
    state->count();
  return ok;
}

bool CheckpointSaver::isSaving() const { return state->phase != State::Phase::None; }
Expected<void> CheckpointSaver::exchange(std::span<int64_t> votes) {
  return state->exchange(votes);
}
Expected<void> CheckpointSaver::finish() { return state->finish(); }
std::optional<std::string> CheckpointSaver::takeFailure() {
  return std::exchange(state->failure, std::nullopt);
}
bool CheckpointSaver::takeLostName() { return std::exchange(state->lostName, false); }
int64_t CheckpointSaver::savedStep() const { return state->saved; }
CheckpointSaver::Cost CheckpointSaver::cost() const { return state->cost; }
