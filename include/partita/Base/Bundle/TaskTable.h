//===- TaskTable.h - Building and reading task tables -----------*- C++ -*-===//
//
// The C++ side of partita/Abi/TaskTable.h, which defines the records and what each
// task kind means. The code generator fills a TaskTableBuilder and embeds the bytes;
// the runtime reads them back through TaskTable, which checks every index, range and
// size first, so that a damaged bundle is an error and never a crash.
//
//   TaskTableBuilder table(mesh);
//   uint32_t x = table.addBuffer(Space::Arena, 0, 4096);
//   …
//   task::AllReduce call;
//   call.dtype = int64_t(DType::F32); call.count = 1024; call.group = {mesh.whole(0)};
//   table.addTask({.kind = TaskKind::AllReduce, .source = "fc1",
//                  .operands = {x, x}, .params = call.encode()});
//   std::string bytes = table.finish();
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_BUNDLE_TASKTABLE_H
#define PARTITA_BASE_BUNDLE_TASKTABLE_H

#include "partita/Abi/TaskTable.h"
#include "partita/Base/DType.h"
#include "partita/Base/Error.h"
#include "partita/Base/Layout/Halo.h"
#include "partita/Base/Layout/Mesh.h"

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

enum class TaskKind : uint16_t {
  Kernel = PARTITA_TASK_KERNEL,
  MatMul = PARTITA_TASK_MATMUL,
  Conv = PARTITA_TASK_CONV,
  ConvTranspose = PARTITA_TASK_CONV_TRANSPOSE,
  Pool = PARTITA_TASK_POOL,
  AllReduce = PARTITA_TASK_ALL_REDUCE,
  AllGather = PARTITA_TASK_ALL_GATHER,
  ReduceScatter = PARTITA_TASK_REDUCE_SCATTER,
  AllToAll = PARTITA_TASK_ALL_TO_ALL,
  Permute = PARTITA_TASK_PERMUTE,
  Broadcast = PARTITA_TASK_BROADCAST,
  Exchange = PARTITA_TASK_EXCHANGE,
  Slice = PARTITA_TASK_SLICE,
  Mask = PARTITA_TASK_MASK,
  Copy = PARTITA_TASK_COPY,
  Repad = PARTITA_TASK_REPAD,
  ToPartial = PARTITA_TASK_TO_PARTIAL,
  Fill = PARTITA_TASK_FILL,
  Start = PARTITA_TASK_START,
  Wait = PARTITA_TASK_WAIT,
  Halo = PARTITA_TASK_HALO,
};
/// "matmul", "all-reduce"…
std::string_view name(TaskKind kind);
/// Whether the task talks to other ranks.
bool isCollective(TaskKind kind);

//===----------------------------------------------------------------------===//
// Parameters per kind: the fixed fields of the C struct plus the tail. `decode` checks
// the length and that every enumeration, count and size is in range.
//===----------------------------------------------------------------------===//
namespace task {

/// An f32 as it travels in int64 parameters.
int64_t floatBits(float value);
float floatFromBits(int64_t bits);
/// The bit pattern of `value` as an element of `type` (for Fill, Mask, Repad…): the
/// nearest value; bool is 0 or 1.
int64_t elementBits(DType type, double value);

struct PostOp {
  int64_t kind = 0; ///< enum partita_post_op
  float alpha = 0, beta = 0;
  int64_t mask = 0; ///< binary ops: result dims along which the operand varies
};
bool isBinary(int64_t postKind);

struct BatchDim {
  int64_t size = 1, a = 0, b = 0, c = 0; ///< extent and strides in elements
};

struct SpatialDim {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1;
  int64_t padBegin = 0, padEnd = 0;
};

using Ints = std::vector<int64_t>;
using IntsView = std::span<const int64_t>;

/// Fixed operand positions of the engine calls.
enum MatMulOperand { MatMulA, MatMulB, MatMulC, MatMulBias, MatMulScratch, MatMulPost };
enum ConvOperand { ConvSrc, ConvWeights, ConvDst, ConvBias, ConvScratch, ConvPost };
enum PoolOperand { PoolSrc, PoolDst, PoolScratch };

struct MatMul : partita_matmul_params {
  MatMul() : partita_matmul_params{} {}
  std::vector<BatchDim> batch;
  std::vector<PostOp> post;
  Ints encode() const; ///< sets num_batch and num_post from the vectors
  static Expected<MatMul> decode(IntsView params);
};
/// Also the parameters of ConvTranspose.
struct Conv : partita_conv_params {
  Conv() : partita_conv_params{} { groups = 1; }
  std::vector<SpatialDim> spatial;
  std::vector<PostOp> post;
  Ints encode() const;
  static Expected<Conv> decode(IntsView params);
};
struct Pool : partita_pool_params {
  Pool() : partita_pool_params{} {}
  std::vector<SpatialDim> spatial;
  Ints encode() const;
  static Expected<Pool> decode(IntsView params);
};

/// The kinds whose tail is one axis list.
#define PARTITA_GROUP_PARAMS(NAME, FIELDS)                                               \
  struct NAME : FIELDS {                                                                 \
    NAME() : FIELDS{} {}                                                                 \
    AxisList group;                                                                      \
    Ints encode() const;                                                                 \
    static Expected<NAME> decode(IntsView params);                                       \
  };
PARTITA_GROUP_PARAMS(AllReduce, partita_all_reduce_params)
PARTITA_GROUP_PARAMS(AllGather, partita_all_gather_params)
PARTITA_GROUP_PARAMS(ReduceScatter, partita_reduce_scatter_params)
PARTITA_GROUP_PARAMS(AllToAll, partita_all_to_all_params)
PARTITA_GROUP_PARAMS(Broadcast, partita_broadcast_params)
#undef PARTITA_GROUP_PARAMS

struct Permute : partita_permute_params {
  Permute() : partita_permute_params{} {}
  AxisList from, to;
  Ints encode() const;
  static Expected<Permute> decode(IntsView params);
};

struct Halo : partita_halo_params {
  Halo() : partita_halo_params{} {}
  std::vector<HaloWindow> windows;
  Ints encode() const; ///< sets num_windows from the vector
  static Expected<Halo> decode(IntsView params);
};

/// The kinds without a tail.
#define PARTITA_PLAIN_PARAMS(NAME, FIELDS)                                               \
  struct NAME : FIELDS {                                                                 \
    NAME() : FIELDS{} {}                                                                 \
    Ints encode() const;                                                                 \
    static Expected<NAME> decode(IntsView params);                                       \
  };
PARTITA_PLAIN_PARAMS(Exchange, partita_exchange_params)
PARTITA_PLAIN_PARAMS(Slice, partita_slice_params)
PARTITA_PLAIN_PARAMS(Mask, partita_mask_params)
PARTITA_PLAIN_PARAMS(Copy, partita_copy_params)
PARTITA_PLAIN_PARAMS(Repad, partita_repad_params)
PARTITA_PLAIN_PARAMS(ToPartial, partita_to_partial_params)
PARTITA_PLAIN_PARAMS(Fill, partita_fill_params)
#undef PARTITA_PLAIN_PARAMS

/// What a task reads and writes: for each operand the bytes that the parameters imply
/// (0: unknown, as for kernels), and whether it may be absent. Empty for Kernel.
struct OperandNeed {
  uint64_t bytes;
  bool optional;
};
Expected<std::vector<OperandNeed>> operandNeeds(TaskKind kind, IntsView params,
                                                const Mesh &mesh);

} // namespace task

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

enum class Space : uint32_t {
  Arena = PARTITA_SPACE_ARENA,
  Weight = PARTITA_SPACE_WEIGHT,
};
enum class Role : uint32_t {
  Input = PARTITA_ROLE_INPUT,
  Output = PARTITA_ROLE_OUTPUT,
  Weight = PARTITA_ROLE_WEIGHT,
};

struct TensorSpec {
  Role role = Role::Input;
  DType type = DType::F32;
  std::string name;
  std::vector<int64_t> shape; ///< global
  std::string layout;         ///< Layout::str(mesh)
  uint32_t buffer = 0;
  uint32_t file = 0; ///< weights only: file index, place and bytes of the global tensor
  uint64_t fileOffset = 0, fileBytes = 0;
};

struct RankValueSpec {
  uint32_t kind = PARTITA_RANK_BLOCK_INDEX; ///< enum partita_rank_value_kind
  int64_t size = 0, block = 0;
  AxisList axes = {};
  std::vector<int64_t> listed = {}; ///< PARTITA_RANK_LISTED only
};

struct TaskSpec {
  TaskKind kind = TaskKind::Kernel;
  std::string source = {};            ///< source node name
  uint32_t kernel = 0;                ///< from addKernel
  std::vector<int64_t> operands = {}; ///< from addBuffer; -1 where absent
  std::vector<int64_t> params = {};
  std::vector<int64_t> rankValues = {}; ///< from addRankValue
  uint16_t stream = 0;
  std::vector<int64_t> waits = {};
};

/// Collects the records of one stage. Indices are returned in order of first use;
/// strings, int lists, kernels and rank values are de-duplicated, so equal input gives
/// equal bytes. Nothing is checked here but by TaskTable::read, which the code generator
/// runs on its own result.
class TaskTableBuilder {
public:
  explicit TaskTableBuilder(const Mesh &mesh);

  /// Offset into the space; a multiple of PARTITA_BUFFER_ALIGNMENT.
  uint32_t addBuffer(Space space, uint64_t offset, uint64_t bytes);
  uint32_t addTensor(const TensorSpec &tensor);
  /// Index of the kernel with this symbol.
  uint32_t addKernel(std::string_view symbol);
  uint32_t addRankValue(const RankValueSpec &value);
  uint32_t addTask(const TaskSpec &task);
  /// Offset of a string, for parameters that name one (Exchange, Halo).
  uint32_t addString(std::string_view text);

  /// Predicted bytes per rank; the arena and weight sizes must cover every buffer.
  void setMemory(uint64_t arenaBytes, uint64_t weightBytes, uint64_t packedBytes);

  size_t numTasks() const { return tasks.size(); }
  /// The blob: always the same bytes for the same calls.
  std::string finish() const;

private:
  partita_range addInts(std::span<const int64_t> values);

  std::string strings;
  std::map<std::string, uint32_t, std::less<>> stringIndex;
  std::vector<int64_t> ints;
  std::map<std::vector<int64_t>, uint32_t> intsIndex;
  std::vector<partita_axis> axes;
  std::vector<partita_buffer> buffers;
  std::vector<partita_tensor> tensors;
  std::vector<partita_kernel> kernels;
  std::vector<partita_rank_value> rankValues;
  std::vector<partita_task> tasks;
  partita_table_header header{};
};

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

struct TensorView {
  Role role;
  DType type;
  std::string_view name;
  std::span<const int64_t> shape;
  std::string_view layout;
  uint32_t buffer;
  uint32_t file;
  uint64_t fileOffset, fileBytes;
};

struct TaskView {
  TaskKind kind;
  std::string_view source;
  std::string_view kernel; ///< symbol; empty unless kind is Kernel
  std::span<const int64_t> operands, params, rankValues, waits;
  uint16_t stream;
  uint32_t kernelIndex;
};

/// A checked table. Owns a copy of the bytes.
class TaskTable {
public:
  /// Checks everything; after that no accessor can fail. The error says what is wrong
  /// in which record: "task 12 (fc1, matmul): operand 2 …".
  static Expected<TaskTable> read(std::span<const std::byte> bytes);

  const Mesh &mesh() const { return meshOfRanks; }
  uint64_t arenaBytes() const { return header().arena_bytes; }
  uint64_t weightBytes() const { return header().weight_bytes; }
  uint64_t packedBytes() const { return header().packed_bytes; }

  std::span<const partita_buffer> buffers() const;
  size_t numTensors() const;
  TensorView tensor(size_t index) const;
  size_t numKernels() const;
  const char *kernel(size_t index) const;
  size_t numTasks() const;
  TaskView task(size_t index) const;
  /// The value of a rank value on `rank`.
  int64_t rankValue(size_t index, int64_t rank) const;
  /// A NUL-terminated string by its offset.
  const char *string(uint32_t offset) const;
  /// The halo of a Halo task; its `fill` is unused, the task has the bits.
  Halo halo(const task::Halo &params) const;

private:
  struct Checker;
  const partita_table_header &header() const {
    return *reinterpret_cast<const partita_table_header *>(words.data());
  }
  template <typename T> std::span<const T> section(partita_section_id id) const;
  std::span<const int64_t> intRange(partita_range range) const;

  std::vector<uint64_t> words; ///< the blob, aligned
  Mesh meshOfRanks;
};

} // namespace partita

#endif // PARTITA_BASE_BUNDLE_TASKTABLE_H
