//===- Session.h - A loaded bundle, ready for requests ----------*- C++ -*-===//
//
// A session holds the ranks that live in this process: all of them as threads (local),
// or one (MPI). It watches them: a rank that fails stops the others, a rank that makes
// no progress for the timeout ends the request; either way the caller gets one sentence
// that names the rank and the node.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_SESSION_H
#define PARTITA_RUNTIME_SESSION_H

#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/DType.h"
#include "partita/Base/Stop.h"
#include "partita/Runtime/Executor.h"
#include "partita/Runtime/StateParts.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace partita::runtime {

struct TensorInfo {
  std::string name;
  DType type = DType::F32;
  std::vector<int64_t> shape;
  std::string layout = {}; ///< "[{4: tp}, {8}] on tp=2", for people
  uint64_t bytes() const {
    return static_cast<uint64_t>(elementCount(shape)) * byteWidth(type);
  }
};

enum class TransportKind { Local, Mpi };

struct SessionOptions {
  TransportKind transport = TransportKind::Local;
  std::string entry; ///< name of the one to load; empty: all
  /// Seconds without progress of a rank. Where the session has one rank of one thread on
  /// the CPU, it is not seen in `run`, which works in the caller's thread.
  double timeout = 60;
  /// Per rank, no more than the bundle was compiled for. Absent: just as many; 0: this
  /// machine's cores divided by its ranks.
  std::optional<int> threads = {};
  /// Threads of this process beside its ranks that move data of started collectives; with
  /// MPI one at most.
  int commThreads = 0;
  /// Way in which ranks of one host talk to each other under MPI.
  MpiWindow mpiWindow = MpiWindow::Auto;
  /// Record as many requests, the first ones.
  int64_t profile = 0;
  /// Makes, if set, every request look for the op that made a number which is not finite;
  /// slow.
  ReadPayload findNan = nullptr;
  WeightOptions weights = {};
  /// Once it is raised, loading and every call end with the error "cancelled": ranks stop
  /// behind the task at hand, those that wait and the caller within 0.2 s after it.
  StopFlag stop = {};
  /// Whether the CPU has a feature, by LLVM's name; null: what this one says. For tests.
  std::function<bool(std::string_view)> hasCpuFeature = nullptr;
  /// Device that the tasks of this process's ranks run on; outlives the session.
  Device *device = &cpuDevice();
  /// One per rank of the bundle, in memory that a watching process shares; null: own.
  RankProgress *progress = nullptr;
};

/// An entry point's programs, and how requests see their tensors.
struct SessionEntry {
  BundleEntry info;
  std::vector<std::shared_ptr<const Stage>> stages;
};

class Session {
public:
  /// Reads the bundle, starts the ranks and loads the weights.
  static Expected<std::unique_ptr<Session>> load(const std::string &folder,
                                                 const SessionOptions &options);
  /// The same from parts, for tests: the programs of the run; of `entry` only how
  /// requests see their tensors.
  static Expected<std::unique_ptr<Session>>
  start(std::vector<std::shared_ptr<const Stage>> stages,
        std::shared_ptr<WeightStore> weights, const SessionOptions &options,
        const BundleEntry &entry = {});
  /// Of several entries, which run on the same ranks and share states of one name.
  static Expected<std::unique_ptr<Session>> start(std::vector<SessionEntry> entries,
                                                  std::shared_ptr<WeightStore> weights,
                                                  const SessionOptions &options);
  ~Session();

  /// The names of those that were loaded.
  std::vector<std::string> entries() const;
  /// Which of them what follows is about: tensors, requests, profile. The first at first.
  size_t entry() const;
  void select(size_t entry);
  const BundleEntry &info() const;

  const std::vector<TensorInfo> &inputs() const;
  /// With the extents that outputs are compiled for: what a caller has room for.
  const std::vector<TensorInfo> &outputs() const;
  /// Of outputs() the shapes that they had in the last request, on the root: shorter
  /// where as many elements are there as the data say.
  const std::vector<std::vector<int64_t>> &outputShapes() const;
  /// What lasts from one request to the next.
  const std::vector<TensorInfo> &states() const;
  int64_t numRanks() const;
  /// Whether this process gets the outputs: always with local, rank 0 with MPI.
  bool isRoot() const;
  int rank() const;
  /// Ranks of this process: all with local, one with MPI.
  std::vector<int> ranks() const;

  /// One request. `inputs` and `outputs` point to dense row-major global tensors in the
  /// order of inputs() and outputs(); outputs are written only on the root. An output
  /// that is shorter than its room is dense in the front of it. Does not allocate. After
  /// an error the session cannot be used again.
  Expected<void> run(std::span<const std::byte *const> inputs,
                     std::span<std::byte *const> outputs);

  // Requests that follow each other. A rank begins the next one as soon as it has ended
  // its own part of the one before, whatever other ranks are at: the first stages of a
  // pipeline fill while the last ones empty. Each rank does the same work in the same
  // order as with `run`, so that states and outputs have the same bits. All processes of
  // an MPI job make the same calls, and any other call but those that only ask needs all
  // requests to be ended.

  /// From now on, for the entry in use, up to `most` requests are begun before the first
  /// of them is ended. `wish` is asked by each process when a request is over, by a
  /// thread of a rank, and answered by `end`. Between requests only.
  void follow(size_t most, std::function<bool()> wish = {});
  /// Begins a request whose inputs are what files have. `outputs` are as those of `run`,
  /// and nobody else's until the request is ended.
  Expected<void> begin(std::vector<std::optional<StoredTensor>> sources,
                       std::span<std::byte *const> outputs);
  /// Waits for the oldest request that was begun, which is ended then, by an error, too.
  /// True if any process had the wish: the same answer for all.
  Expected<bool> end();
  /// Requests that are begun and not ended, and how many there may be.
  size_t begun() const;
  size_t mostBegun() const;
  /// Requests of which a rank of this process began the next one before all was over, and
  /// the seconds between these two, together.
  struct Overlap {
    int64_t requests = 0;
    double seconds = 0;
  };
  Overlap overlap() const;
  /// Bytes that threads beside the ranks have received for ranks of this process.
  uint64_t movedMeanwhile() const;

  /// Finding of the last request, the earliest that a rank of this process says; with
  /// SessionOptions::findNan.
  std::optional<FoundNan> notFinite() const;

  /// From now on these inputs (by their place; nothing: as before) are what a file has:
  /// every rank reads its part of them, once for all requests, and `run` does not look at
  /// what it is given for them. Returns the bytes that the ranks of this process read.
  /// All processes of an MPI job make this call.
  Expected<uint64_t> readInputs(std::vector<std::optional<StoredTensor>> sources);

  // States as dense row-major global tensors, by their place in states(). All processes
  // of an MPI job make the same calls.

  /// Copies a state as the last request left it; `to` is written only on the root.
  Expected<void> readState(size_t state, std::byte *to);
  /// Sets a state for the next request.
  Expected<void> writeState(size_t state, const std::byte *from);
  /// Every state becomes what it was before the first request.
  Expected<void> resetStates();

  /// The states, in the order of states(), and which rank holds what of them.
  std::vector<HeldState> heldStates() const;
  /// Slot `slot` of a state in the memory of `rank`: a dense tensor of its part's
  /// localShape.
  using StateVisit = std::function<Expected<void>(int rank, size_t state, uint32_t slot,
                                                  std::byte *local)>;
  /// All states of the ranks of this process, each on the thread of its rank; `visit` may
  /// set elements. An error ends the session.
  Expected<void> fillStates(const StateVisit &visit);
  using StateReader =
      std::function<void(int rank, size_t state, uint32_t slot, const std::byte *local)>;
  /// Begins copies of all states of the ranks of this process as the last request left
  /// them: `read` gets each slot of each state once, in the thread that makes the copies,
  /// or in that of a rank that is about to write the state. States of which one moves, or
  /// lies in the memory of a device, are read before this returns.
  Expected<std::shared_ptr<const StateCopies>> copyStates(StateReader read);
  /// Hash of what states begin as: equal for bundles of one model, whatever the plan.
  Expected<Hash128> hashOfOrigins() const;

  /// Each value becomes the largest that any process of the run gives. All processes of
  /// an MPI job make the same calls.
  Expected<void> agree(std::span<int64_t> values);

  /// Cost of checking weights so far in this process: bytes, and seconds of its ranks
  /// together.
  struct Checked {
    uint64_t bytes = 0;
    double seconds = 0;
  };
  Checked checkedWeights() const;

  /// What every rank did when in the requests that were recorded. All processes of an MPI
  /// job make this call, and the root gets the ranks.
  Expected<RunProfile> profile();

  /// Whether the session ended as a rank made no progress.
  bool isHung() const;
  /// Ends the whole job after an error elsewhere in this process (MPI), where the other
  /// processes would otherwise wait.
  void abort();

private:
  struct State;
  Session() = default;
  std::shared_ptr<State> state;
};

/// "rank 2, node 'fc1' (matmul)" for what a watcher saw; the table may be null.
std::string describePlace(const TaskTable *table, int rank, const RankProgress &progress);

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_SESSION_H
