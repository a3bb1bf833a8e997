//===- Transport.h - How ranks talk to each other ---------------*- C++ -*-===//
//
// A transport moves data between the ranks of one run. Collectives are prepared at load
// in the order of the task table, which is the same on every rank, and run later any
// number of times without allocating. Several may be in flight at once, each on its own
// handle: starts are in one order per group of ranks, waits in any, as whoever waits does
// its share of everything that it has started.
//
// All collectives that do not reduce are one thing: a list of strided pieces that this
// rank takes from the source buffers of others (Pull). What it must send follows from
// the others' lists, which it can compute as well, because everything is a closed form
// of coordinates.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_TRANSPORT_H
#define PARTITA_RUNTIME_TRANSPORT_H

#include "partita/Base/Bundle/TaskTable.h"
#include "partita/Base/Error.h"
#include "partita/Base/Layout/Layout.h"
#include "partita/Runtime/Device.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace partita::runtime {

struct PullDim {
  int64_t count;
  int64_t source, target; ///< strides in bytes
};

/// for i in dims: target[targetOffset + i·target] = peer's source[sourceOffset +
/// i·source], `run` contiguous bytes each.
struct Pull {
  int32_t peer; ///< rank
  int64_t sourceOffset = 0, targetOffset = 0;
  std::vector<PullDim> dims; ///< outer to inner
  int64_t run = 0;
};

/// for i in dims: `run` bytes of the target at targetOffset + i·target become copies of
/// one element.
struct Fill {
  int64_t targetOffset = 0;
  std::vector<PullDim> dims; ///< outer to inner; `source` is unused
  int64_t run = 0;
};

/// A tensor of a collective.
struct CollectiveItem {
  DType type = DType::F32;
  /// Reductions: the source is [outer, parts, block]; AllReduce has outer = parts = 1.
  int64_t outer = 1, block = 0;
  std::vector<Pull> pulls; ///< everything else
  std::vector<Fill> fills; ///< what of the target no pull writes, for halos and pieces
  int64_t fillBits = 0;    ///< bit pattern of one element

  int64_t width() const { return static_cast<int64_t>(byteWidth(type)); }
};

/// A collective as one rank sees it.
struct Collective {
  TaskKind kind = TaskKind::AllReduce;
  ReduceKind reduce = ReduceKind::Sum;
  std::vector<int32_t> members;           ///< ranks of the group, by coordinate
  int32_t me = 0;                         ///< this rank's place in members
  std::vector<CollectiveItem> items = {}; ///< one, or those of a bucket
  /// AllToAllV: what is pulled follows from the counts that a start brings, [i][j] the
  /// rows that member i sends to member j.
  int64_t rowBytes = 0, rows = 0, toRows = 0;

  bool reduces() const {
    return kind == TaskKind::AllReduce || kind == TaskKind::ReduceScatter;
  }
};

/// The collective of `task` (a checked one of `table`) as `rank` sees it, a rank of the
/// run that has a place in the table's mesh.
Collective describeCollective(const TaskTable &table, const TaskView &task, int64_t rank);
/// A transfer of `table` as a rank of the run sees it, at either end.
Collective describeTransfer(const TaskTable &table, size_t transfer, int64_t rank);

/// Bytes that `rank` receives from others. Reductions count as the planner counts them:
/// an all-reduce is a reduce-scatter and a gather (`Step::receivedElements`).
uint64_t receivedBytes(const Collective &collective, int64_t rank);

/// Equal for tasks, of whichever tables, that are the same collective on every rank.
std::string collectiveKey(const TaskTable &table, const TaskView &task);
/// Of the transfers of a table: another entry point's of the same number are others.
std::string transferKey(const TaskTable &table);
/// Handle of a transfer of one micro-batch, which no task of a table has: theirs have 32
/// bits.
uint64_t transferHandle(const TaskTable &table, size_t transfer, int64_t microBatch);

/// The rows that one member sends another, in bytes.
struct RaggedPart {
  int64_t source, target; ///< where they begin at the one and at the other
  int64_t rows;
};
RaggedPart raggedPart(const Collective &collective, const int64_t *counts, size_t from,
                      size_t to);

/// A member whose source or target has no room for its counts.
struct RaggedMisfit {
  size_t member;
  bool sends;
  int64_t rows; ///< that it sends or receives
};
/// The same answer for all members: the counts are equal, and so is what they have.
std::optional<RaggedMisfit> raggedMisfit(const Collective &collective,
                                         const int64_t *counts);

/// Copies one piece.
void copyPull(const Pull &pull, const std::byte *source, std::byte *target);
/// Fills everything that no pull writes.
void fillRest(const CollectiveItem &item, std::byte *target);

/// Combines n sources elementwise, in order, into n targets: for i in [0, count):
/// targets[*][i] = reduce(sources[0][i], sources[1][i], …). A target may be one of the
/// sources. f16 and bf16 accumulate in f32.
void reduceElements(DType type, ReduceKind kind, const void *const *sources,
                    size_t numSources, void *const *targets, size_t numTargets,
                    int64_t count);

class Transport {
public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Prepares the collective of a task, to run on the task's handle; called on all ranks
  /// in the same order. Returns the number of the call; calls that are the same
  /// collective on the same handle have one.
  virtual Expected<int> prepare(const TaskTable &table, const TaskView &task) = 0;
  /// Likewise a transfer of the table for one micro-batch; called on all ranks of both
  /// programs. Calls that are different micro-batches may be in flight together.
  virtual Expected<int> prepareTransfer(const TaskTable &table, size_t transfer,
                                        int64_t microBatch) = 0;
  /// Whether transfers make, when they first happen, what later ones use again
  /// (connections, room for messages): then every collective runs once at load.
  virtual bool needsWarmUp() const { return false; }
  /// Memory for what calls read and write, zero-filled and aligned to 64 bytes, which
  /// ranks beside this one use where it lies; null where the transport has none of its
  /// own, or for no bytes. Places of calls may lie anywhere else too, which costs copies.
  /// An error says why there is not so much.
  virtual Expected<Memory> memory(uint64_t /*bytes*/) { return Memory(); }
  /// Why the last call failed, where this rank is the reason; else empty.
  virtual std::string problem() const { return {}; }
  // These return false if the run was aborted meanwhile, or a transfer failed.

  /// Begins a call whose handle is not in flight. `places`: source and target of each
  /// item in turn, of a transfer null where this rank has none. Until the call is waited
  /// for, sources are not written and targets not touched. `counts`: of an AllToAllV,
  /// with no misfit; the two lists too stay until then.
  virtual bool start(int call, void *const *places,
                     const int64_t *counts = nullptr) noexcept = 0;
  /// Until a started call is over.
  virtual bool wait(int call) noexcept = 0;
  /// Does what can be done of started calls at once, without waiting for anybody.
  virtual bool progress() noexcept = 0;
  /// A call of one item.
  bool run(int call, void *source, void *target) noexcept {
    void *places[] = {source, target};
    return start(call, places) && wait(call);
  }
  /// Waits for all ranks. False if aborted.
  virtual bool barrier() noexcept = 0;
  /// Each value becomes the largest that any process of the run gives. Called by all
  /// ranks.
  virtual bool maximum(std::span<int64_t> values) noexcept = 0;
  /// Sends `bytes` to rank 0; on rank 0 receives from `from`. Used for outputs only.
  virtual bool sendToRoot(const void *data, int64_t bytes) noexcept = 0;
  virtual bool receiveFrom(int from, void *data, int64_t bytes) noexcept = 0;
  // The same three, only begun: what is handed over stays as it is until `isOver` says
  // so. `later` is a small number of the caller's for what belongs together, which is in
  // use from its first beginning on. All ranks begin them in one order among themselves
  // and `maximum` and `barrier`.
  virtual bool beginSendToRoot(const void *data, int64_t bytes,
                               size_t later) noexcept = 0;
  virtual bool beginReceiveFrom(int from, void *data, int64_t bytes,
                                size_t later) noexcept = 0;
  virtual bool beginMaximum(std::span<int64_t> values, size_t later) noexcept = 0;
  /// Tells, without waiting, if all that was begun as `later` is over. If not, `awaited`
  /// becomes a rank that has not sent its message, or -1.
  virtual bool isOver(size_t later, bool &over, int &awaited) noexcept = 0;
  /// Makes every rank's waiting call return false (or ends the job); any thread.
  virtual void abort() noexcept = 0;
  /// Begins a thread that moves started calls along while this rank computes. An error
  /// says why there can be none.
  virtual Expected<void> beginThread() {
    return makeError("this transport has no thread beside its rank");
  }
  /// Bytes that threads beside the ranks have received for ranks of this process.
  virtual uint64_t movedMeanwhile() const { return 0; }
};

/// Memory for what calls read and write, zero-filled: the transport's own where that has
/// such and the device the host's memory, else the device's.
Expected<Memory> callMemory(Transport &transport, Device &device, Space space,
                            uint64_t bytes);

/// The ranks as threads of this process. Collectives read and write the members'
/// buffers directly.
class LocalTeam {
public:
  /// `helpers`: threads beside the ranks that move data of started calls.
  explicit LocalTeam(int size, int helpers = 0);
  ~LocalTeam();
  /// The transport of one rank; the team must outlive it.
  std::unique_ptr<Transport> connect(int rank);
  void abort() noexcept;

  struct Shared;

private:
  std::unique_ptr<Shared> shared;
};

/// How ranks of MPI that are on one host talk to each other.
enum class MpiWindow : uint8_t {
  Auto, ///< by memory that they share, or where that cannot be, by messages
  On,   ///< by memory that they share
  Off   ///< by messages
};
/// "auto", "on" or "off".
std::optional<MpiWindow> parseMpiWindow(std::string_view text);
std::string_view name(MpiWindow window);

/// This process as one rank of an MPI job. Loads libpartita_mpi.so, the only part that
/// needs MPI, from beside this library. An error where `window` is On on some rank, and
/// ranks of a host cannot share memory, says why, on all ranks the same.
Expected<std::unique_ptr<Transport>> connectMpi(MpiWindow window = MpiWindow::Auto);

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_TRANSPORT_H
