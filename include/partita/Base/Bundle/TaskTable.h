//===- TaskTable.h - Building and reading task tables -----------*- C++ -*-===//
//
// The list of calls that every rank of a stage walks. On disk it is a FlatBuffer
// (lib/Base/Bundle/TaskTable.fbs; docs/task-table.md says why it is as it is). What tasks
// do is in TaskKinds.h.
//
// The code generator fills a TaskTableBuilder and embeds the bytes; the runtime reads
// them back through TaskTable, which checks every index, range and size first, so that a
// damaged bundle is an error and never a crash.
//
//   TaskTableBuilder table(mesh);
//   uint32_t x = table.addBuffer(Space::Arena, 0, 4096);
//   …
//   task::AllReduce call;
//   call.dtype = uint8_t(DType::F32); call.count = 1024; call.group = {mesh.whole(0)};
//   table.addTask({.source = "fc1", .operands = {x, x}, .params = call});
//   std::string bytes = table.finish();
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_BUNDLE_TASKTABLE_H
#define PARTITA_BASE_BUNDLE_TASKTABLE_H

#include "partita/Abi/TaskTable.h"
#include "partita/Base/Bundle/Schedule.h"
#include "partita/Base/Bundle/TaskKinds.h"
#include "partita/Base/Layout/Halo.h"
#include "partita/Base/Layout/Layout.h"
#include "partita/Base/Layout/Mesh.h"
#include "partita/Base/Layout/Pieces.h"

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace partita {

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

/// A region of the rank's memory; the schema says what each is for.
enum class Space : uint8_t { Arena, Weight, State, Io, Host };
inline constexpr size_t numSpaces = 5;
/// "arena", "weights" …
std::string_view name(Space space);
enum class Role : uint8_t {
  Input = PARTITA_ROLE_INPUT,
  Output = PARTITA_ROLE_OUTPUT,
  Weight = PARTITA_ROLE_WEIGHT,
  State = PARTITA_ROLE_STATE,
};

/// A state that rolls (the schema says how): of `capacity` rows along dim `dim` of its
/// local tensor it is those from a base on, which each request moves on by `advance`.
struct StateRoll {
  uint32_t dim = 0;
  int64_t capacity = 0, advance = 0;
  bool operator==(const StateRoll &) const = default;
};

struct TensorSpec {
  Role role = Role::Input;
  DType type = DType::F32;
  std::string name;
  Layout layout; ///< of the global tensor
  uint32_t buffer = 0;
  /// Weights and states that do not begin as zeros: file index, place and bytes of the
  /// global tensor.
  uint32_t file = 0;
  uint64_t fileOffset = 0, fileBytes = 0;
  std::optional<StateRoll> roll = {}; ///< states only
};

struct RankValueSpec {
  uint8_t kind = PARTITA_RANK_BLOCK_INDEX; ///< enum partita_rank_value_kind
  int64_t size = 0, block = 0;
  AxisList axes = {};
  std::vector<int64_t> listed = {}; ///< PARTITA_RANK_LISTED only
  /// PARTITA_RANK_READ only: element `block`, at most `size`, of a buffer of this type;
  /// or a list, from there on.
  DType type = DType::F32;
  int64_t count = 1;
  auto operator<=>(const RankValueSpec &) const = default;
};

struct TaskSpec {
  std::string source = {};            ///< source node name
  std::vector<int64_t> operands = {}; ///< from addBuffer; -1 where absent
  task::Params params = {};
  std::vector<uint32_t> rankValues = {}; ///< from addRankValue
  /// A collective or copy that is only started; 0: it is done when the task is.
  uint32_t handle = 0;
  std::vector<task::Move> moves = {};
};

struct SegmentSpec {
  std::string name;
  bool once = false;
  std::vector<uint32_t> reads = {}, writes = {}; ///< from addBuffer
};

/// This program's end of a transfer.
struct TransferSpec {
  std::string name;
  uint32_t number = 0; ///< the same at both ends
  DType type = DType::F32;
  bool sends = false, once = false;
  uint32_t buffer = 0;
  Layout layout;
  Mesh peerMesh;
  std::vector<int32_t> peerRanks; ///< by place in the mesh
  Layout peerLayout;
};

/// Which program of several this is.
struct ProgramSpec {
  std::string name;
  uint32_t microBatches = 1;
  std::vector<int32_t> ranks = {}; ///< of the run, by place in the mesh; empty: the same
};

/// Collects the parts of one stage. Layouts, kernels, rank values, descriptors, calls and
/// names are de-duplicated, so equal input gives equal bytes. Nothing is checked here but
/// by TaskTable::read, which the code generator runs on its own result.
class TaskTableBuilder {
public:
  explicit TaskTableBuilder(const Mesh &mesh) : mesh(mesh) {}

  /// Offset into the space; a multiple of PARTITA_BUFFER_ALIGNMENT.
  uint32_t addBuffer(Space space, uint64_t offset, uint64_t bytes,
                     uint64_t slotStride = 0, uint32_t slots = 1);
  uint32_t addTensor(const TensorSpec &tensor);
  /// Index of the kernel with this symbol.
  uint32_t addKernel(std::string_view symbol);
  uint32_t addRankValue(const RankValueSpec &value);
  /// For parameters that name one (Exchange, Halo).
  uint32_t addLayout(const Layout &layout);
  uint32_t addTask(TaskSpec task);
  /// Begins a segment of tasks. Tasks that come before any are in one named "request".
  void addSegment(SegmentSpec segment);
  void setProgram(ProgramSpec spec) { program = std::move(spec); }
  uint32_t addTransfer(TransferSpec transfer);
  /// Of the segments and transfers by number.
  void addSchedule(schedule::Schedule schedule);

  /// Predicted bytes per rank; the arena and weight sizes must cover every buffer.
  void setMemory(uint64_t arenaBytes, uint64_t weightBytes, uint64_t packedBytes);
  /// Of any space; must cover its buffers.
  void setRegion(Space space, uint64_t bytes) {
    regions[static_cast<size_t>(space)] = bytes;
  }

  /// See Formulas.h; the text that TaskTable::formulas gives.
  void setFormulas(std::string text) { formulas = std::move(text); }

  size_t numTasks() const { return tasks.size(); }
  /// The blob: always the same bytes for the same calls.
  std::string finish() const;

private:
  Mesh mesh;
  std::vector<Layout> layouts;
  std::map<std::string, uint32_t> layoutIndex; ///< by Layout::str
  std::vector<fb::Buffer> buffers;
  std::vector<TensorSpec> tensors;
  std::vector<uint32_t> tensorLayouts;
  std::vector<std::string> kernels;
  std::map<std::string, uint32_t, std::less<>> kernelIndex;
  std::vector<RankValueSpec> rankValues;
  std::map<RankValueSpec, uint32_t> rankValueIndex;
  std::vector<TaskSpec> descriptors;               ///< without operands and source
  std::map<std::string, uint32_t> descriptorIndex; ///< by the bytes of all it has
  std::vector<int32_t> operands;
  std::vector<fb::Call> calls;
  std::map<std::pair<uint32_t, std::vector<int64_t>>, uint32_t> callIndex;
  std::string sources;
  std::map<std::string, uint32_t> sourceIndex; ///< where a name begins
  std::vector<fb::Task> tasks;
  std::vector<std::pair<SegmentSpec, size_t>> segments; ///< with the first task
  std::vector<uint32_t> slotCounts;                     ///< per buffer
  ProgramSpec program;
  std::vector<std::pair<TransferSpec, uint32_t>> transfers; ///< with the layout
  std::vector<schedule::Schedule> schedules;
  uint64_t regions[numSpaces] = {}, packedBytes = 0;
  std::string formulas;
};

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

struct BufferView {
  Space space;
  uint64_t offset, bytes;
  uint64_t slotStride;  ///< 0: one slot
  uint32_t slots;       ///< at least 1
  int32_t rolling = -1; ///< the tensor, a state that rolls, in which it lies; or −1

  /// Behind the last byte of the last slot.
  uint64_t end() const { return offset + (slots - 1) * slotStride + bytes; }
};

struct TensorView {
  Role role;
  DType type;
  std::string_view name;
  uint32_t layout; ///< index
  std::vector<int64_t> shape;
  uint32_t buffer, file;
  uint64_t fileOffset, fileBytes;
  std::optional<StateRoll> roll = {};
};

/// The rows of a state that rolls in one slot: its local tensor is [outer, window] rows
/// of `ownBytes`, its place [outer, capacity] rows of `rowBytes`, which are aligned.
struct RollingRows {
  int64_t outer = 1, window = 0, capacity = 0, advance = 0;
  uint64_t ownBytes = 0, rowBytes = 0;

  RollingRows(const std::vector<int64_t> &localShape, DType type, const StateRoll &roll);
  /// How far a request may find the base.
  int64_t mostBase() const { return capacity - window - advance; }
  uint64_t bytes() const { return stride() * static_cast<uint64_t>(outer); }
  /// From one window to the next.
  uint64_t stride() const { return static_cast<uint64_t>(capacity) * rowBytes; }
};

/// What a task does, with everything but its operands and its place; equal ones are one.
struct Descriptor {
  task::Params params;
  std::span<const uint32_t> rankValues;
  std::vector<task::Move> moves;
  uint32_t numOperands = 0;
  uint32_t handle = 0; ///< of a task that is only started, else 0

  TaskKind kind() const { return kindOf(params); }
  /// Whether what it does depends on the tasks around it, and not on its operands alone.
  bool dependsOnPlace() const {
    return handle != 0 || !moves.empty() || kind() == TaskKind::Wait ||
           kind() == TaskKind::Repeat || kind() == TaskKind::Skip;
  }
};

/// A task of a table, into which it points.
struct TaskView {
  std::string_view source;
  std::span<const int32_t> operands; ///< −1 where absent
  std::span<const uint32_t> rankValues;
  uint32_t handle; ///< of a task that is only started, else 0
  const task::Params &params;
  std::span<const task::Move> moves;

  TaskKind kind() const { return kindOf(params); }
};

struct SegmentView {
  std::string_view name;
  size_t firstTask, numTasks;
  bool once;
  std::vector<int64_t> reads, writes; ///< buffers
};

struct TransferView {
  std::string_view name;
  uint32_t number;
  DType type;
  bool sends, once;
  uint32_t buffer, layout; ///< indices
  Mesh peerMesh;
  std::vector<int32_t> peerRanks; ///< by place in the mesh
  Layout peerLayout;
};

/// A checked table. Owns a copy of the bytes, to which its names and lists point.
class TaskTable {
public:
  /// Checks everything; after that no accessor can fail. The error says what is wrong
  /// in which record: "task 12 (fc1, matmul): operand 2 …".
  static Expected<TaskTable> read(std::span<const std::byte> bytes);
  TaskTable(TaskTable &&) = default;
  TaskTable &operator=(TaskTable &&) = default;

  const Mesh &mesh() const { return meshOfRanks; }
  uint64_t bytesOf(Space space) const { return regions[static_cast<size_t>(space)]; }
  uint64_t arenaBytes() const { return bytesOf(Space::Arena); }
  uint64_t weightBytes() const { return bytesOf(Space::Weight); }
  uint64_t packedBytes() const { return packed; }

  std::span<const BufferView> buffers() const { return bufferList; }
  const Layout &layout(size_t index) const { return layouts[index]; }
  size_t numTensors() const { return tensors.size(); }
  const TensorView &tensor(size_t index) const { return tensors[index]; }
  const Layout &layoutOf(const TensorView &tensor) const {
    return layouts[tensor.layout];
  }
  /// Of a state that rolls.
  RollingRows rowsOf(const TensorView &tensor) const {
    return {layoutOf(tensor).localShape(), tensor.type, *tensor.roll};
  }
  size_t numKernels() const { return kernels.size(); }
  const std::string &kernel(size_t index) const { return kernels[index]; }
  /// In order, with all tasks.
  std::span<const SegmentView> segments() const { return segmentList; }
  size_t numTasks() const { return tasks.size(); }
  TaskView task(size_t index) const {
    const fb::Task &t = tasks[index];
    const fb::Call &call = calls[t.call()];
    const Descriptor &what = descriptors[call.descriptor()];
    return {sources.substr(t.source(), t.source_bytes()),
            operands.subspan(call.operands(), what.numOperands),
            what.rankValues,
            what.handle,
            what.params,
            what.moves};
  }
  /// Tasks of one call have the same operands and descriptor.
  size_t numCalls() const { return calls.size(); }
  uint32_t callOf(size_t task) const { return tasks[task].call(); }
  const Descriptor &descriptorOf(size_t call) const {
    return descriptors[calls[call].descriptor()];
  }
  /// Handles are smaller than this.
  uint32_t numHandles() const { return handles; }
  /// Text of what kernels compute (Formulas.h), not looked at; empty: none is there.
  std::string_view formulas() const { return formulaText; }
  // As a program of several.
  std::string_view programName() const { return ownName; }
  int64_t microBatches() const { return numMicroBatches; }
  /// The rank of the run at this place in the mesh.
  int64_t worldRank(int64_t rank) const {
    return rankList.empty() ? rank : rankList[static_cast<size_t>(rank)];
  }
  /// The place in the mesh of a rank of the run; -1: it has none.
  int64_t placeOf(int64_t worldRank) const;
  std::span<const TransferView> transfers() const { return transferList; }
  /// At least one: a table without has each segment once.
  std::span<const schedule::Schedule> schedules() const { return scheduleList; }
  /// The one that the rank at this place of the mesh follows.
  const schedule::Schedule &scheduleOf(int64_t rank) const;
  size_t numRankValues() const { return rankValues.size(); }
  const RankValueSpec &rankValue(size_t index) const { return rankValues[index]; }
  /// Of a task: as many operands at its end hold them.
  size_t numReadValues(const TaskView &task) const;
  /// The value of a rank value on `rank`; 0 of one that is read.
  int64_t rankValue(size_t index, int64_t rank) const;
  /// The halo of a Halo task; its `fill` is unused, the task has the bits.
  Halo halo(const task::Halo &params) const;
  /// Those of an exchange by pieces.
  Pieces pieces(const task::Exchange &params) const;

private:
  TaskTable() = default;
  class Reader;
  class ProgramReader;

  std::vector<uint64_t> words; ///< the blob, aligned
  Mesh meshOfRanks;
  uint64_t regions[numSpaces] = {}, packed = 0;
  std::vector<Layout> layouts;
  std::vector<BufferView> bufferList;
  std::vector<TensorView> tensors;
  std::vector<std::string> kernels;
  std::vector<RankValueSpec> rankValues;
  std::vector<Descriptor> descriptors;
  // In the blob.
  std::span<const fb::Call> calls;
  std::span<const int32_t> operands;
  std::span<const fb::Task> tasks;
  std::string_view sources, formulaText;
  std::vector<SegmentView> segmentList;
  std::string_view ownName;
  int64_t numMicroBatches = 1;
  std::vector<int32_t> rankList;
  std::vector<TransferView> transferList;
  std::vector<schedule::Schedule> scheduleList;
  uint32_t handles = 1; ///< 0 is the one of calls that are not in flight
};

/// The tables of all programs of a run, by number, as what schedule::check looks at. An
/// error if they do not belong together: ranks that have no program or two, ends of a
/// transfer that differ.
Expected<schedule::Pipeline> pipelineOf(const std::vector<const TaskTable *> &tables);

} // namespace partita

#endif // PARTITA_BASE_BUNDLE_TASKTABLE_H
