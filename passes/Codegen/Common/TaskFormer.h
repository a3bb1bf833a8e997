//===- TaskFormer.h - From a partitioned function to tasks ------*- C++ -*-===//
//
// Walks the function once. An op becomes
//   nothing       if its result is a view of its operand (reshape, transpose, slice…) or
//                 a uniform constant,
//   tasks         if it has TaskOpInterface (engine calls, collectives),
//   part of kernels of its users, where that takes least (Fusion.h), stored there or not,
//   a kernel      otherwise.
// Pointwise ops behind an engine call become post-ops of the call.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_COMMON_TASKFORMER_H
#define PARTITA_PASSES_CODEGEN_COMMON_TASKFORMER_H

#include "dialects/Dist/Dist.h"
#include "passes/Codegen/Common/AttentionOps.h"
#include "passes/Codegen/Common/Fusion.h"
#include "passes/Codegen/Common/Interfaces.h"
#include "passes/Codegen/Common/Program.h"
#include "passes/Codegen/Common/Rolling.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>
#include <set>
#include <unordered_map>

namespace partita::codegen {

/// Where a value lies.
struct Tensor {
  int storage = -1;
  View view;
};

/// What the segments of a program share: equal kernels, weights, calls.
struct FormerState {
  std::unordered_map<size_t, std::vector<int>> kernelsOfHash;
  std::map<std::string, int> weightOfKey;
  explicit FormerState(TargetModel::Calls &calls) : calls(calls) {}
  TargetModel::Calls &calls;
  std::string constantPrefix; ///< programs of a bundle name their constants apart
  std::map<int, std::string> keyOfWeight; ///< by storage; see weightOfKey
  llvm::DenseMap<mlir::Attribute, size_t> constants;
  std::set<std::pair<int, std::string>> packed; ///< storage, form
  /// By storage the tasks that touch it or a window of it, ascending; of the first
  /// `indexed` tasks. One that is made in another's place stays in both lists.
  std::unordered_map<int, std::vector<size_t>> touching;
  std::vector<size_t> ranges; ///< tasks that run others, or skip them
  size_t indexed = 0;
};

/// A buffer that a segment's argument or result is bound to. Its storage is made when it
/// is first needed.
struct BufferSlot {
  std::string name;
  Storage kind; ///< slots, shared, input, output
  int storage = -1;
};

class KernelBuilder;

class TaskFormer {
public:
  TaskFormer(mlir::func::FuncOp function, Program &program, FormerState &state)
      : function(withKernels(function, program.target->kernels)), program(program),
        state(state), fusion(function, program.target->kernels) {}

  /// Of a function that `caller`'s runs.
  TaskFormer(mlir::func::FuncOp callee, TaskFormer &caller)
      : TaskFormer(callee, caller.program, caller.state) {
    isCalled = true;
    taken = caller.handlesInUse();
  }

  /// What the function makes of a state that it moves on.
  struct Rolling {
    BufferSlot *buffer;
    RolledValues values;
  };
  /// Adds the tasks of one segment, whose arguments are `reads` and whose results
  /// `writes`; a failure has been reported.
  llvm::LogicalResult run(llvm::ArrayRef<BufferSlot *> reads,
                          llvm::ArrayRef<BufferSlot *> writes,
                          llvm::ArrayRef<Rolling> rolling = {});

  /// Adds the tasks of a function on these arguments, which they do not write; its
  /// results.
  llvm::FailureOr<std::vector<Tensor>> runBody(llvm::ArrayRef<Tensor> arguments);

  /// Whether tasks from number `first` on can make what they make in `from`, a storage of
  /// theirs, in `to` instead: nothing reads `to` once `from` is being filled but at the
  /// elements that are written. If so they do.
  bool makeIn(int from, int to, size_t first);

  /// Whether the value, which nothing but `user` reads, can be made inside of `target`, a
  /// storage that no task touches yet, from its element `begin` on. If so it is: its
  /// tasks fill that part, and it has no place of its own.
  bool makeInside(mlir::Value value, mlir::Operation *user, const Tensor &target,
                  int64_t begin);

  /// The storage of a buffer, made if need be for a tensor of this kind.
  static int storageOf(Program &program, BufferSlot &buffer, DType type,
                       int64_t elements);
  /// The tensor that a segment finds in a buffer.
  Tensor tensorIn(BufferSlot &buffer, DType type, const Shape &shape);
  /// Where it leaves this one there.
  Tensor resultIn(mlir::Value value, BufferSlot &buffer);

  // For the models of ops.

  /// Whether the concatenation is rows of a state that it moves on. If so what it appends
  /// is there now, and so is its result.
  bool append(mlir::Operation *concat);

  const Mesh &mesh() const { return program.mesh; }
  Program &target() { return program; }
  const TargetModel &model() const { return *program.target; }
  Fusion &plan() { return fusion; }

  /// Where the value lies; makes copies of what cannot be a view of its operand.
  Tensor tensorOf(mlir::Value value);
  /// Likewise, as a dense tensor that begins at an aligned address.
  Tensor denseOf(mlir::Value value);
  /// A dense copy of any tensor.
  Tensor copied(const Tensor &tensor, DType type, const std::string &source);
  /// A tensor that the op may write, with the contents of its operand `value`: that of
  /// its first result.
  Tensor ownCopy(mlir::Operation *op, mlir::Value value);
  /// A task that copies `from` to `to`, of equal shape.
  void copy(const Tensor &from, const Tensor &to, DType type, const std::string &source);

  int addStorage(DType type, int64_t elements);
  /// A new dense buffer for the value.
  Tensor allocate(mlir::Value value);
  /// A new buffer whose dims have the order in memory that `model` has; row-major for
  /// results of the function.
  Tensor allocateLike(mlir::Value value, const View &model);
  /// Like allocate, but so that the views that lie between the value and its only user
  /// become dense: a product followed by a transpose writes transposed.
  Tensor allocateForUser(mlir::Value value);
  /// True if it is said where the value lies.
  bool isPlaced(mlir::Value value) const { return tensors.contains(value); }
  void setTensor(mlir::Value value, Tensor tensor) { tensors[value] = std::move(tensor); }

  /// Whether nothing but `user` reads the value's storage, so that it may overwrite it.
  bool mayOverwrite(mlir::Value value, mlir::Operation *user);
  /// Whether `user`, whose tasks are formed next, may have its result where the value
  /// lies: the tasks of all its other readers are there already, and none is in flight.
  bool mayReplace(mlir::Value value, mlir::Operation *user);

  /// The tensor's bytes; of a strided view, everything from its first element on.
  Place place(const Tensor &tensor) const;
  /// Whether the tensor begins at an aligned address.
  bool isAligned(const Tensor &tensor) const;
  bool isWeight(const Tensor &tensor) const {
    return program.storages[static_cast<size_t>(tensor.storage)].space == Space::Weight;
  }
  void addTask(Task task) { program.tasks.push_back(std::move(task)); }
  /// Starts the last task, a collective, on a free handle for the value `handle`.
  void startLast(mlir::Value handle);
  /// Waits for what the handle was started with; nothing if nothing was.
  void waitFor(mlir::Value handle);
  /// Adds the call of an engine, with its scratch as operand `scratchOperand`; `weight`
  /// is the operand that may be packed, if any.
  llvm::LogicalResult addEngineCall(mlir::Operation *op, Task task, size_t scratchOperand,
                                    std::optional<size_t> weight = std::nullopt);

  /// Names of the engine op's value and of those of its first `steps` post-ops.
  std::vector<MadeName> namesOfCall(mlir::Operation *engine, size_t steps) const;

  /// The reduction of no elements is its neutral one, as the evaluator knows.
  llvm::LogicalResult reduceNothing(mlir::Operation *op);

  /// The post-ops of `engine` from `step` on as a kernel over `partial`, the result so
  /// far: for what the engine does not take.
  void formRest(mlir::Operation *engine, size_t step, const Tensor &partial);

  /// A weight tensor of the stage, once per name and layout.
  Tensor weight(const TensorSpec &spec, int64_t localElements, mlir::Operation *literal);

  /// A name for the bytes of a constant; equal constants have one.
  std::string constantName(mlir::Operation *op);

private:
  std::set<uint32_t> handlesInUse() const;
  /// Whether nothing but `user` reads the value; `value` becomes what it is a view of.
  bool isReadOnlyBy(mlir::Value &value, mlir::Operation *user) const;
  /// Whether the task, one from `first` on, is in no part that runs otherwise than once.
  bool runsAlways(size_t task, size_t first) const;
  bool mayShare(Task &task, int from, int to);
  /// Brings FormerState::touching up to the last task.
  void indexTasks();
  /// Tasks from `first` on that touch one of two storages, or a window of one, ascending.
  std::vector<size_t> tasksAt(int storage, int other, size_t first);
  /// What lay in `from`, a storage of this segment, lies in `to`.
  void rename(int from, int to, const std::vector<size_t> &tasks);
  void formInputs(llvm::ArrayRef<BufferSlot *> reads);
  void placeRolling(const Rolling &rolling);
  /// Where the value, or a view of it that is all that is read, is appended to a state;
  /// nothing if it is not, or lies there in no such order.
  std::optional<Tensor> placeToAppend(mlir::Value value);
  llvm::LogicalResult formOp(mlir::Operation &op);
  /// Likewise, but for the part of the step that the tasks belong to.
  llvm::LogicalResult formTasksOf(mlir::Operation &op);
  void formResults(llvm::ArrayRef<BufferSlot *> reads,
                   llvm::ArrayRef<BufferSlot *> writes);
  void formResult(mlir::Value value, BufferSlot &buffer, bool isRead);
  /// The kernel whose root is `op`.
  llvm::LogicalResult formKernel(mlir::Operation *op);
  /// Tells whether a value is an argument whose place is that of a result, too: a state,
  /// a sum over micro-batches or a carried value, not what a request gives.
  bool isKeptArgument(mlir::Value value);
  /// The kernel of an op that changes elements of operand 0 where they lie.
  void formInPlace(mlir::Operation *op, KernelBuilder &builder);
  /// The kernel of an attention (FormAttention.cpp).
  llvm::LogicalResult formAttention(const kernels::Attention &attention);
  /// Says which attentions are no kernel, and which kernels are apart from their users'.
  void noteApart();
  Tensor materializeConstant(mlir::Value value);
  /// A tensor of the value's type, full of the first element of `contents`, whose dims
  /// have the order in memory that `order` has.
  Tensor filled(mlir::Value value, const HostTensor &contents, const View &order = {});
  /// The kernel's number; equal kernels have one.
  int addKernel(KernelSpec spec);
  friend class KernelBuilder;

  mlir::func::FuncOp function;
  Program &program;
  FormerState &state;
  Fusion fusion;
  size_t firstTask = 0;     ///< of this segment
  bool isCalled = false;    ///< arguments belong to a caller
  std::set<uint32_t> taken; ///< handles in flight around the function
  llvm::DenseMap<mlir::Value, Tensor> tensors;
  llvm::DenseMap<int, int> movedTo; ///< storages of `tensors` that are others now
  /// By concatenation what it appends, and where that goes.
  using Appended = llvm::SmallVector<std::pair<mlir::Value, Tensor>, 1>;
  llvm::DenseMap<mlir::Operation *, Appended> appends;
  llvm::DenseMap<mlir::Value, Tensor> appendedAt; ///< the first of these places
  std::set<std::pair<int, int64_t>> isAppended; ///< those that have their rows, by begin
  /// What is in flight, by the value of its handle: the task that started it.
  llvm::DenseMap<mlir::Value, size_t> flying;
};

/// The name by which the user knows the op.
std::string sourceName(mlir::Operation *op);
/// The element type of a tensor value.
DType dtypeOf(mlir::Value value);
/// The layout on an argument, result or op attribute; replicated if there is none.
Layout layoutFrom(dist::LayoutAttr layout, const Shape &shape);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_COMMON_TASKFORMER_H
