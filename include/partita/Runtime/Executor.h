//===- Executor.h - One rank of a stage -------------------------*- C++ -*-===//
#ifndef PARTITA_RUNTIME_EXECUTOR_H
#define PARTITA_RUNTIME_EXECUTOR_H

#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Bundle/RunRecord.h"
#include "partita/Base/Bundle/TaskTable.h"
#include "partita/Base/Bundle/WeightOptions.h"
#include "partita/Base/Files/File.h"
#include "partita/Base/Files/StoredTensor.h"
#include "partita/Base/Layout/SliceCopy.h"
#include "partita/Base/Stop.h"
#include "partita/Runtime/Device.h"
#include "partita/Runtime/Engine.h"
#include "partita/Runtime/NotFinite.h"
#include "partita/Runtime/StateCopies.h"
#include "partita/Runtime/Transport.h"

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace partita::runtime {

/// A loaded stage library with its checked task table; shared by the ranks of a process.
class Stage {
public:
  /// Maps the library and resolves every kernel. Where a hash is given, the file must
  /// have it: what a damaged library does when it is mapped cannot be foreseen.
  static Expected<std::shared_ptr<const Stage>>
  load(const std::string &path, std::optional<Hash128> hash = std::nullopt);
  /// From parts, for tests: `kernels` by index of the table.
  static std::shared_ptr<const Stage> fromParts(TaskTable table,
                                                std::vector<partita_kernel_fn> kernels);
  ~Stage();
  const TaskTable &table() const { return tasks; }
  partita_kernel_fn kernel(uint32_t index) const { return kernels[index]; }

private:
  explicit Stage(TaskTable table) : tasks(std::move(table)) {}
  TaskTable tasks;
  std::vector<partita_kernel_fn> kernels;
  void *library = nullptr;
};

/// The engine of a target by its name, for code that needs these features of a CPU; null:
/// there is none.
const engine::Engine *engineOf(std::string_view target,
                               const std::vector<std::string> &cpuFeatures = {});

/// The weight files of a bundle, open once per process, and what several ranks of it
/// share because they hold the same slice: packed weights, and mapped runs of the files.
class WeightStore {
public:
  /// Every weight of the tables must be where the header of the bundle's own file says.
  /// A file of the model that is not the very one of the compile is compared with a
  /// sample of its blocks at once, if a sample is what the bundle has; all other blocks
  /// are checked as they are read.
  static Expected<std::shared_ptr<WeightStore>>
  open(const std::string &folder, const Bundle &bundle,
       const std::vector<const TaskTable *> &tables, const WeightOptions &options = {});
  WeightStore(std::vector<std::shared_ptr<const InputFile>> files,
              const engine::Engine &engine)
      : files(std::move(files)), engineCalls(engine) {}
  size_t numFiles() const { return files.size(); }
  const InputFile &file(uint32_t index) const { return *files[index]; }
  /// These bytes of a file where they are mapped, for all who ask while somebody holds
  /// them.
  Expected<std::shared_ptr<const std::byte>> mapped(uint32_t file, uint64_t offset,
                                                    uint64_t bytes);

  engine::Calls &calls() { return engineCalls; }

  /// Room for packed blocks of so many bytes together, side by side: huge pages, which
  /// most weights alone are too small to fill, then hold several. A request of one token
  /// reads every weight once, from memory, and 1.3 times as fast from huge pages.
  void reserve(uint64_t bytes);
  /// Gives back what of the room nobody has taken: ranks that share weights.
  void trim();

  /// The packed block with this identity; `make` fills it the first time, while others
  /// that want the same one wait.
  template <typename Make>
  Expected<Memory> packed(const std::string &identity, uint64_t bytes, Make make) {
    std::shared_ptr<Entry> entry = find(identity);
    std::lock_guard guard(entry->lock);
    if (!entry->block) {
      auto block = blockOf(bytes);
      if (!block)
        return block;
      if (Expected<void> ok = make(block->get()); !ok)
        return tl::unexpected(ok.error());
      entry->block = *block;
    }
    return entry->block;
  }

private:
  struct Entry {
    std::mutex lock;
    Memory block;
  };
  std::shared_ptr<Entry> find(const std::string &identity);
  Expected<Memory> blockOf(uint64_t bytes);

  std::vector<std::shared_ptr<const InputFile>> files;
  std::mutex lock;
  std::map<std::string, std::shared_ptr<Entry>> entries;
  std::map<std::array<uint64_t, 3>, std::weak_ptr<const std::byte>> mappings;
  Memory room;
  uint64_t roomBytes = 0, roomTaken = 0;
  engine::Calls engineCalls;
};

/// What a watcher sees of a rank. Lies in memory shared with the watching process, so
/// only lock-free atomics.
struct RankProgress {
  /// Joining: an MPI rank that has not met the others yet.
  enum State : uint32_t { Idle, Joining, Loading, Running, Waiting, Failed };
  std::atomic<uint32_t> state{Idle};
  std::atomic<uint32_t> task{0};
  std::atomic<uint64_t> heartbeat{0}; ///< grows with every step of work

  void step(State next, uint32_t index) {
    task.store(index, std::memory_order_relaxed);
    state.store(next, std::memory_order_relaxed);
    heartbeat.fetch_add(1, std::memory_order_relaxed);
  }
};

struct ListWork;
class NanFinder;

/// Which ends of a collective a task is.
enum class CollectivePart : uint8_t { Whole, Start, Wait };

/// What the executors of one rank share, of which there is one per entry point and one
/// at work: the states, each in one place for all tables that have it, so that what a
/// request of one entry writes, the next one of another reads; the weights as they are
/// stored; and the regions that every request fills anew, the largest for all. Used while
/// the rank loads, by its thread.
class RankMemory {
public:
  /// Regions are as large as this table needs them. Before the first executor.
  void reserve(const TaskTable &table);
  /// The region of a space that requests fill anew (Arena, Io, Host). Of a device with
  /// the host's memory it is the transport's, where that has its own.
  Expected<Memory> region(Space space, uint64_t bytes, Device &device,
                          Transport &transport);

  struct State {
    std::string is; ///< type, layout, bytes
    Memory block;
    int64_t base = 0;                  ///< of one that rolls: the row at which it begins
    uint32_t firstWriter = UINT32_MAX; ///< the first task of any table that writes it
    /// Copy of the last save. Tasks write the state when the copy is made.
    std::shared_ptr<StateCopy> copy = nullptr;

    void awaitCopy() const {
      if (copy)
        copy->await();
    }
  };
  /// A state, in memory as of a region, zero-filled when it is first asked for. An error
  /// if another table has a state of this name that is not the same. It stays where it
  /// is.
  Expected<State *> state(const TaskTable &table, const TensorView &tensor,
                          Device &device, Transport &transport);

  /// A weight as it is stored, in the region of the executor that first had it.
  struct Stored {
    Memory region;
    std::byte *place = nullptr;
    bool isFetched = false;
  };
  /// `identity` says what it holds.
  Stored &weight(const std::string &identity, const Memory &region, std::byte *place) {
    return weights.try_emplace(identity, Stored{region, place}).first->second;
  }

private:
  std::map<std::string, State, std::less<>>
      states; ///< nodes of a map stay where they are
  std::map<std::string, Stored> weights;
  uint64_t reserved[numSpaces] = {};
  Memory regions[numSpaces];
};

class Executor {
public:
  struct Options {
    int threads = 1;
    int64_t profile = 0;              ///< record as many requests, the first ones
    RankProgress *progress = nullptr; ///< required
    /// Of this rank; null: its own.
    std::shared_ptr<RankMemory> memory = nullptr;
    /// What the rank's tasks run on; outlives the executor.
    Device *device = &cpuDevice();
    /// Once it is raised, loading and `run` end behind the task or weight at hand, as if
    /// another rank had failed.
    StopFlag stop = {};
    /// Called, if set, before each entry of the schedule: what must go on while tasks
    /// run. False ends the run, as another rank's failure does.
    std::function<bool()> meanwhile = {};
    /// Looks, if set, at all that tasks read and write, see `notFinite`; on the CPU
    /// alone. Weights stay in memory as they are stored.
    ReadPayload findNan = nullptr;
  };

  /// Allocates the arena, loads and repacks the slices of weights this rank owns, and
  /// prepares every task. Errors name the node. A weight that is only read in packed form
  /// is in memory as stored while it is packed and no longer, so that loading needs no
  /// more memory than running.
  static Expected<std::unique_ptr<Executor>> create(std::shared_ptr<const Stage> stage,
                                                    std::shared_ptr<WeightStore> weights,
                                                    Transport &transport,
                                                    Options options);
  ~Executor();

  /// Every state becomes what it is before the first request: what its file says, or
  /// zeros. To be called before the first request, when all tables of the rank are
  /// prepared, as preparing them writes anywhere.
  Expected<void> resetStates();
  /// Copies this rank's slice of an input tensor or state (index in the table) to its
  /// place.
  Expected<void> setInput(size_t tensor, const std::byte *global);
  /// Reads this rank's slice of an input from its file, for any number of requests; the
  /// bytes that were read.
  Expected<uint64_t> readInput(size_t tensor, const StoredTensor &source,
                               std::vector<std::byte> &part);
  /// Copies what was read to its place.
  Expected<void> setPart(size_t tensor, const std::vector<std::byte> &part);
  /// Writes this rank's part of an output or state into the global tensor. Of ranks that
  /// hold the same elements only the first writes (`owns`).
  Expected<void> getOutput(size_t tensor, std::byte *global);
  bool owns(size_t tensor) const;
  /// A tensor's local bytes, with padding, in one slot, until the next call; null if the
  /// device fails.
  const std::byte *local(size_t tensor, uint32_t slot);
  uint64_t localBytes(size_t tensor) const;
  /// `fill` sets local elements of a state in one slot; the others stay, but for padding.
  Expected<void> fillLocal(size_t tensor, uint32_t slot,
                           const std::function<Expected<void>(std::byte *)> &fill);

  /// Whether another thread may read a state while requests run: where it stays in the
  /// memory of this process.
  bool isReadableMeanwhile(size_t tensor) const;
  /// Adds a copy of such a state, as the last request left it. `make` gets each slot and
  /// its local bytes, with padding.
  void copyMeanwhile(size_t tensor, StateCopies &copies,
                     std::function<void(uint32_t, const std::byte *)> make);

  /// Follows the rank's schedule. Allocates nothing but what engines and the transport's
  /// library take for themselves. An error names the rank and the node; `aborted()` tells
  /// whether only another rank's failure ended the run.
  Expected<void> run();
  bool aborted() const { return stopped; }
  /// Finding of the last request, where a result was not finite and Options::findNan says
  /// so.
  const std::optional<FoundNan> &notFinite() const { return foundNan; }
  /// Where the rank is in the table's mesh.
  int64_t place() const { return meshPlace; }

  const Stage &stage() const { return *program; }
  /// Of the requests that were recorded; a span stands behind those that it holds.
  const std::vector<RunSpan> &spans() const { return recorded; }
  uint64_t packedBytes() const { return packedTotal; }

private:
  Executor(std::shared_ptr<const Stage> stage, std::shared_ptr<WeightStore> weights,
           Transport &transport, Options options);
  struct Op;
  struct Entry;
  struct Moving;
  struct Staged;
  class OnlyOperands;
  /// A weight of this rank. Tasks read it in the region, where its elements are once they
  /// are fetched, or in the file, if the slice is one aligned run of it.
  struct Weight {
    size_t tensor = 0;
    uint64_t offset = 0;       ///< in the weight region
    std::byte *copy = nullptr; ///< its place there, or in that of an earlier executor
    RankMemory::Stored *stored = nullptr;               ///< what is known of the place
    std::shared_ptr<const std::byte> mapping = nullptr; ///< of the run; null: none
    std::string identity = {};                          ///< what it holds: see identityOf
    const std::byte *data() const { return mapping ? mapping.get() : copy; }
  };
  Expected<void> allocate();
  Expected<void> placeStates();
  RankMemory::State *stateAt(int64_t buffer) const;
  void findWrites(Op &op, const TaskView &task);
  void awaitCopy(size_t tensor);
  void prepareRolling();
  struct Rolling;
  bool moveToFront(Rolling &it) noexcept;
  bool beginRolling() noexcept;
  void endRolling() noexcept;
  bool copyRows(size_t tensor, uint32_t slot, std::byte *to, const std::byte *from);
  Expected<void> prepareTensors();
  Expected<void> checkFile(const TensorView &tensor) const;
  std::string identityOf(const TensorView &weight) const;
  Expected<void> addWeight(size_t tensor);
  void placeWeights();
  Expected<void> fetch(size_t tensor, std::byte *to);
  Expected<void> readSlice(size_t tensor, std::byte *to) const;
  Expected<void> checkMapped(const Weight &weight, bool aside) const;
  void drop(const Weight &weight);
  Expected<void> fetchRead();
  std::vector<Op *> preparationOrder();
  Expected<void> warmUp();
  Expected<void> warmUpTransfers();
  void makeOps();
  Expected<void> prepareOp(Op &op);
  Expected<void> prepareSchedule();
  Expected<Moving> prepareMoving(schedule::Flight flight);
  void setSlots(size_t segment, int64_t microBatch);
  void prepareLoops();
  Expected<void> runTasks(size_t first, size_t end);
  Expected<void> runLoop(const Op &op, size_t index);
  Expected<void> runSegment(size_t segment);
  Expected<void> runEntry(const Entry &entry);
  bool begin(const Moving &moving) noexcept;
  bool waitFor(const Moving &moving) noexcept;
  std::byte *placeOf(size_t tensor, uint32_t slot) const;
  Error deviceFailure() const;
  // Of devices with memory of their own.
  Staged *stage(std::span<void *const> places, std::span<const uint64_t> bytes);
  Expected<void> prepareFlight(Op &op);
  bool toHost(Staged &staged, void *const *places) noexcept;
  bool fromHost(const Staged &staged, void *const *places) noexcept;
  bool runFlight(Op &op) noexcept;
  bool read(void *to, const void *from, uint64_t bytes) noexcept;
  void prepareRecording();
  size_t spansOf(size_t firstTask, size_t end) const;
  void beginRecording() noexcept;
  void record(RunSpan::What what, size_t index, double begin, uint64_t received = 0,
              int64_t microBatch = 0) noexcept;
  void endRecording(double begin) noexcept;
  void prepareWaits();
  Expected<void> prepareEngine(Op &op, const TaskView &task);
  Expected<void> placeScratch();
  Expected<void> prepareLocal(Op &op, const TaskView &task);
  int partsOf(const RowsWork &rows) const;
  const Weight *weightAt(const TaskView &task, size_t operand) const;
  Expected<std::shared_ptr<engine::Call::Weight>> packWeight(const engine::Call &call,
                                                             const Weight &weight);
  /// A task, or behind the last one a transfer.
  std::string where(size_t index) const;
  Error failureOf(size_t task) const;
  Expected<void> prepareValues(Op &op, const TaskView &task);
  bool readValues(Op &op) noexcept;
  Expected<void> prepareList(Op &op, const task::Rows &params);
  bool runList(const Op &op, const ListWork &list) noexcept;
  bool countsFit(const Op &op) noexcept;
  bool step(Op &op) noexcept;
  Expected<void> prepareFinder();
  bool stepAndLook(Op &op, size_t index) noexcept;
  void lookAtTransfer(const Moving &moving);
  std::string tensorNameAt(const std::byte *place) const;
  void endFinding();
  bool communicate(Op &op, int call, CollectivePart part) noexcept;

  std::shared_ptr<const Stage> program;
  std::shared_ptr<WeightStore> store;
  Transport &transport;
  Options options;
  Device &device;
  std::unique_ptr<Device::Stream> work;   ///< what tasks are done on
  std::unique_ptr<Device::Stream> copies; ///< those that are only started; may be null
  std::vector<std::unique_ptr<Staged>> stagings;
  /// Inputs and outputs on their way to such a device; the window of a state that rolls.
  std::vector<std::byte> edge;
  Memory regions[numSpaces]; ///< but of states
  std::set<Memory> packedBlocks;
  /// Packed weights as calls read them: equal layers that share a weight share these.
  std::map<std::pair<const Weight *, const engine::Call *>,
           std::shared_ptr<engine::Call::Weight>>
      packedWeights;
  Memory scratch; ///< of the calls that take more than was planned
  std::vector<Op *> wantScratch;
  uint64_t moreScratch = 0;                 ///< bytes of the largest
  std::vector<std::byte *> address;         ///< per buffer
  std::vector<RankMemory::State *> stateOf; ///< per buffer; null: it lies in none
  std::vector<Weight> owned;                ///< by offset
  std::vector<int> weightOf;                ///< per buffer: of `owned`, or -1
  std::vector<SliceCopy> slices;            ///< per tensor
  std::vector<bool> ownsTensor;
  std::map<const engine::Call *, std::unique_ptr<engine::Call::Frame>> frames;
  int64_t meshPlace = 0;
  std::vector<Op> ops;        ///< in the order of the first task of each
  std::vector<uint32_t> opOf; ///< per task
  uint32_t current = 0;       ///< the task that runs
  std::vector<Entry> entries; ///< the rank's schedule
  /// By segment: operands whose address depends on the micro-batch.
  struct Slotted {
    size_t op, operand;
    std::byte *first;
    uint64_t stride;
    uint32_t slots;
  };
  std::vector<std::vector<Slotted>> slotted;
  /// A state that rolls.
  struct Rolling {
    size_t tensor;
    RankMemory::State *state;
    RollingRows rows;
    int64_t applied = 0; ///< the base that addresses are of
    std::vector<std::pair<size_t, size_t>> operands = {}; ///< op, address
    std::vector<std::pair<size_t, size_t>> slotted = {};  ///< segment, number there
  };
  std::vector<Rolling> rolling;
  uint64_t packedTotal = 0;
  bool stopped = false;
  int inFlight = 0;                  ///< calls that were started and not waited for
  std::unique_ptr<NanFinder> finder; ///< null: nobody looks
  std::optional<FoundNan> foundNan;
  std::vector<RunSpan> recorded;
  size_t spansPerRequest = 0; ///< at most; 0: nothing is recorded
  uint32_t requestsBegun = 0;
  bool recording = false;           ///< this request
  double lastTime = 0, waiting = 0; ///< the last span's end; seconds of waits since then
};

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_EXECUTOR_H
