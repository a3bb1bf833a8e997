//===- Program.h - A stage as tasks, kernels and storages -------*- C++ -*-===//
//
// What the code generator knows between the partitioned module and the bundle: a list of
// tasks in order, the buffers they touch, and the kernels that they call. Buffers have
// sizes here but no places yet.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_PROGRAM_H
#define PARTITA_PASSES_CODEGEN_COMMON_PROGRAM_H

#include "partita/Base/Bundle/Formulas.h"
#include "partita/Base/Bundle/TaskTable.h"
#include "partita/Base/Layout/Layout.h"
#include "partita/Base/Phase.h"
#include "partita/Rule/Scalar/Payload.h"
#include "passes/Codegen/Common/TargetModel.h"

#include "mlir/IR/Operation.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace partita::codegen {

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// One value of a kernel, defined for every point of its domain.
struct KernelNode {
  enum Kind {
    Load,     ///< an element of operand `operand`, at the point
    Constant, ///< the value of a uniform graph.constant `op`
    Payload,  ///< the scalar payload of `op` on `args`
    Row,      ///< `op` mixes or reduces the points of a row; args as its operands
    Indexed,  ///< `op` computes where to read; `reads` are its operands
    Result,   ///< another result of node args[0], a Row or Indexed one of the same `op`
    Score,    ///< what the kernel's first product is there, scaled; see AttentionSpec
  };
  Kind kind = Load;
  mlir::Operation *op = nullptr;
  DType type = DType::F32;
  int operand = -1;
  std::vector<int> args; ///< earlier nodes
  /// Kernel operands, one per operand of `op` that is read at computed places: of an
  /// Indexed op all.
  std::vector<int> reads;
  int scalar = 0; ///< Indexed: the first of its scalars
  int result = 0; ///< Result: its number
  /// Payload: what is computed of `args` where it is not the payload of `op`, whose
  /// payloads are several.
  std::optional<partita::Payload> own = {};

  /// Whether both compute the same: ops count by what they are, not by which.
  bool operator==(const KernelNode &other) const;
};

/// Whether the kernel looks at the node's indices before it computes.
bool isChecked(const KernelNode &node);

/// A buffer that a kernel reads or writes. Element (i0, i1, …) of the domain is at
/// offset + Σ i·stride.
struct KernelOperand {
  DType type = DType::F32;
  int64_t offset = 0;
  std::vector<int64_t> strides; ///< per domain dim
  View view;                    ///< for reads: the whole tensor instead
  /// The output is written once per row.
  bool perRow = false;
  int node = -1; ///< outputs: what is stored
  /// Reads: the output whose buffer this is too, at the same elements. −1: none.
  int output = -1;

  bool operator==(const KernelOperand &) const = default;
};

/// How a kernel's points are divided into units that threads may compute apart.
///
///   domain [12, 128, 64], no rows:   dims 2            1536 units of 64 points
///   domain [12, 128 | 128]:          dims 1 …          until there are enough units
///   domain [100000], no rows:        dims 0, chunk 1600
struct KernelSplit {
  size_t dims = 0;   ///< a unit is one index of these leading dims together …
  int64_t chunk = 0; ///< … and, unless 0, so many points of the dim that follows
  int64_t units = 1;
  /// How many neighbouring rows, along the last outer dim, are read together: where an
  /// element's neighbour in memory is that of the next row, a row by itself would use one
  /// element of each cache line. 1: rows are contiguous, or an op needs a row by itself.
  int64_t lanes = 1;

  bool operator==(const KernelSplit &) const = default;
};

/// What makes a kernel compute attention: softmax of a function of q·kᵀ·scale along the
/// keys, times v. The domain is [outer dims… | depth, width, queries, keys]: operand 0 is
/// q, 1 is k, 2 is v, each with stride 0 along the dims that it lacks, further operands
/// are read by nodes at [outer…, queries, keys]; output 0 is the result, outputs 1 and 2,
/// where there are any, the largest logit and the sum of exp(logit - largest) of each
/// row.
///
/// A kernel of gradients has the row statistics as operands 3 and 4, the cotangent of the
/// result as operand 5, and its sum with the result over each row as operand 6. Its
/// outputs are the gradient of q, those of k and v, or all three.
struct AttentionSpec {
  double scale = 1;
  int score = -1;  ///< the node that stands for q·kᵀ·scale
  int logits = -1; ///< the node of which the softmax is taken
  /// Where the softmax is no number, it is 0.
  bool zeroForNaN = false;
  /// What tells that a key is hidden from a query, whatever the score, so that its weight
  /// is 0 if the query sees any other key.
  enum class Hides { None, Where, WhereNot, Sum };
  Hides hides = Hides::None;
  /// Where: `hiders` is one node, a bool that is false (WhereNot: true) at hidden keys.
  /// Sum: the sum of these nodes is hiddenBelow or less there.
  std::vector<int> hiders = {};
  /// Where: the logit of hidden keys.
  double hidden = 0;
  /// Gradients that the kernel computes; neither: the result.
  bool ofQueries = false, ofKeys = false;
  int slope = -1; ///< of gradients: the node of the derivative of the logit by the score
  /// Queries that a thread takes together, and keys that are in its scratch at one time.
  int64_t queryBlock = 0, keyBlock = 0;

  bool isGradient() const { return ofQueries || ofKeys; }
  /// Multiply-adds for a pair of a query and a key.
  int64_t products(int64_t depth, int64_t width) const;

  bool operator==(const AttentionSpec &) const = default;
};

/// Added to a score, numbers up to this one hide a key: exp of the sum is 0 beside that
/// of any number above hiddenLogit. Exporters write -infinity, or the least number of
/// f32.
inline constexpr double hiddenBelow = -1e30, hiddenLogit = -1e29;

/// A loop nest that computes its outputs point by point. Trailing `rowDims` dims are one
/// row: Row nodes see all its points at once. Shapes, strides and attributes are baked
/// in, so equal nests are one function, whatever layer they come from.
struct KernelSpec {
  std::vector<int64_t> domain;
  int64_t rowDims = 0;
  /// Points from the begin of a row on at which outputs are stored, where the row is one
  /// dim: nobody reads those behind. −1: all.
  int64_t storedPoints = -1;
  /// Operands first, then outputs, then scratch: the order of the task's operands.
  std::vector<KernelOperand> operands, outputs;
  std::vector<KernelNode> nodes; ///< arguments before users
  /// For nodes with reads: original dim d of the tensor is Σ weight · domain index.
  struct IndexTerm {
    int64_t dim, weight;
    bool operator==(const IndexTerm &) const = default;
  };
  std::vector<std::vector<IndexTerm>> originalDims;
  uint64_t scratchBytes = 0; ///< per thread, a multiple of PARTITA_BUFFER_ALIGNMENT
  int numScalars = 0;        ///< rank values of the task, for Indexed nodes
  KernelSplit split = {};    ///< for any number of threads
  std::optional<AttentionSpec> attention = {};

  /// Equal kernels have equal code: every member counts.
  bool operator==(const KernelSpec &) const = default;
  /// Of the shape of the loops and the kinds of nodes: equal for equal kernels.
  size_t hash() const;

  /// What --partita-lower-kernels prints.
  std::string text() const;
  int64_t rowElements() const;
  /// Whether a Row node changes some elements of an operand in the place of the output,
  /// and touches no others.
  bool changesInPlace(int node) const;
  size_t numOuter() const { return domain.size() - static_cast<size_t>(rowDims); }
  /// Set in a kernel of gradients by keys if outer dim `dim` counts queries that read
  /// the same keys.
  bool isGroup(size_t dim) const;
  /// Division of the kernel by a target; attention is divided by its blocks.
  KernelSplit splitBy(const kernels::Division &division) const;
  /// Where in a thread's scratch row `slot` of a node's begins, in bytes; row 0 behind
  /// the last node: the bytes of all.
  uint64_t scratchOffset(size_t node, int64_t slot) const;
  /// All its work, in steps of about 0.2 ns: what an operation on one element takes in
  /// vectors. A rough figure, by which is decided how many threads are woken.
  int64_t work() const;
  /// How many points nodes have.
  double points() const;
  /// For profiles: task::Work.
  double flops() const;
  double bytes() const;
};

/// The name of the stage's kernel of this number.
inline std::string kernelSymbol(size_t number) {
  return "kernel_" + std::to_string(number);
}

//===----------------------------------------------------------------------===//
// Tasks
//===----------------------------------------------------------------------===//

/// How a state rolls (docs/state.md): [outer, window] rows of its elements are rows base
/// … base + window of [outer, capacity]. Views and places are relative to the base.
struct Roll {
  size_t dim = 0; ///< of the tensor, of which the rows are
  int64_t outer = 1, window = 0;
  int64_t row = 1;      ///< elements from one row to the next, aligned
  int64_t capacity = 0; ///< rows
  int64_t advance = 0;  ///< rows that a request appends

  /// Elements from the base on that a request may touch.
  int64_t reach() const { return ((outer - 1) * capacity + window + advance) * row; }
  int64_t elements() const { return outer * capacity * row; }
};

/// Memory that holds one thing at a time.
struct Storage {
  Space space = Space::Arena;
  DType type = DType::F32;
  int64_t elements = 0;
  /// The runtime writes it before the first task, or reads it after the last.
  bool input = false, output = false;
  /// More than one entry of the schedule touches it: it has its place for the whole
  /// request, once per slot.
  bool shared = false;
  uint32_t slots = 1;
  /// One row of another storage, by the trip of a loop: in trip t the bytes from
  /// begin + t·step on.
  struct Window {
    int of = -1;
    int loop = -1; ///< number of a Repeat task
    int64_t begin = 0, step = 0;
  };
  Window window = {};
  bool isWindow() const { return window.of >= 0; }
  /// Of a state that rolls; `elements` are then those that a request may touch.
  std::optional<Roll> roll = {};
  /// Whether its place may be used for something else while nobody needs what it holds.
  bool isTemporary() const {
    return (space == Space::Arena || space == Space::Host) && !input && !output &&
           !shared && !isWindow();
  }
  /// Of one slot.
  uint64_t bytes() const { return static_cast<uint64_t>(elements) * byteWidth(type); }
  /// Likewise, with rows into which it has yet to roll.
  uint64_t slotBytes() const {
    return roll ? static_cast<uint64_t>(roll->elements()) * byteWidth(type) : bytes();
  }
  /// From one slot to the next; 0: there is one.
  uint64_t stride() const {
    return slots == 1 ? 0
                      : (slotBytes() + PARTITA_BUFFER_ALIGNMENT - 1) /
                            PARTITA_BUFFER_ALIGNMENT * PARTITA_BUFFER_ALIGNMENT;
  }
  uint64_t allBytes() const { return (slots - 1) * stride() + slotBytes(); }
};

/// Part of a storage, as an operand; storage −1: absent.
struct Place {
  int storage = -1;
  uint64_t offset = 0, bytes = 0;
};

struct Task {
  std::string source; ///< node name
  std::vector<Place> operands = {};
  /// What it does. The numbers of a kernel are those of Program::kernels; those of
  /// layouts (Exchange, Halo) are set when the table is written.
  task::Params params = {};
  std::vector<RankValueSpec> rankValues = {};
  /// Engine calls: the operand that is read in packed form only, or −1.
  int packedOperand = -1;
  /// Exchange, Halo: what lies where before, and after.
  std::vector<Layout> layouts = {};
  uint32_t handle = 0; ///< of a collective or copy that is only started
  int loop = -1;       ///< of a Repeat: its number
  bool isSlow = false; ///< an engine call that is plain loops
  std::optional<Phase> phase = {};
  /// Names of what it makes: of a kernel by node, of a call its own and then those of its
  /// post-ops. Empty: it makes a value of the name of its source.
  std::vector<MadeName> made = {};

  TaskKind kind() const { return kindOf(params); }
};

/// A tensor of the stage's interface. `weight`: name for the weight source; constants of
/// the program have their bytes in `literal` instead.
struct TensorEntry {
  TensorSpec spec;
  int storage = -1;
  mlir::Operation *literal = nullptr;
  std::string initial = {}; ///< a state's: the weight that it begins as
  /// What its bytes are asked for by; empty: it begins as zeros.
  const std::string &bytesOf() const {
    return spec.role == Role::State ? initial : spec.name;
  }
};

/// Tasks of the program from `firstTask` to the next segment's.
struct ProgramSegment {
  std::string name;
  bool once = false;
  size_t firstTask = 0;
  std::vector<int> reads, writes; ///< storages of buffers
};

/// A program's end of a transfer; its buffer is the storage.
struct ProgramTransfer {
  TransferSpec spec;
  int storage = -1;
};

/// What a rank's threads are to be used for.
struct TeamPlan {
  /// Per rank; the engine's scratch depends on it. 0: this machine's cores divided by the
  /// ranks, until the programs are formed.
  int threads = 1;
  /// The work of a kernel that is worth a thread: see KernelSpec::work. Smaller for
  /// tests.
  int64_t workPerPart = 10'000;
};

struct Program {
  /// Name, ranks, micro-batches, as in the table.
  ProgramSpec identity;
  Mesh mesh;
  const TargetModel *target = nullptr; ///< outlives the program
  TeamPlan team;
  std::vector<Storage> storages;
  std::vector<Task> tasks;
  std::vector<KernelSpec> kernels;
  std::vector<TensorEntry> tensors;
  std::vector<ProgramSegment> segments;
  std::vector<ProgramTransfer> transfers;
  std::vector<schedule::Schedule> schedules; ///< of segments and transfers by number
  /// Of the module to whose ops kernels and constants refer, where nobody else keeps it.
  std::shared_ptr<void> owner;
  /// A weight's storage and the bytes of one of its packed forms.
  std::vector<std::pair<int, uint64_t>> packed;
  int numLoops = 0;
  /// What might have been faster, and why it is not: a node's name, and words.
  std::vector<std::pair<std::string, std::string>> notes;

  uint64_t packedBytes() const {
    uint64_t bytes = 0;
    for (const auto &entry : packed)
      bytes += entry.second;
    return bytes;
  }
};

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_PROGRAM_H
