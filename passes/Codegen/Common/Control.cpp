//===- Control.cpp - Loops, branches, rows at computed places -------------===//
//
// The functions that an op runs are formed in its place, between a task that says how
// often, or whether, the tasks behind it run, and the end of these.
//
//===----------------------------------------------------------------------===//
#include "dialects/Task/Task.h"
#include "passes/Codegen/Common/Models.h"
#include "passes/Codegen/Common/TaskFormer.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;
using namespace partita::task_ir;

namespace {

/// A task whose number of tasks behind it is filled in when they are there.
class RangeFormer {
public:
  template <typename Params>
  RangeFormer(TaskFormer &former, Task task, Params params, Params *) : former(former) {
    task.params = std::move(params);
    former.addTask(std::move(task));
    index = former.target().tasks.size() - 1;
  }
  template <typename Params> void close() {
    auto &task = former.target().tasks[index];
    std::get<Params>(task.params).tasks =
        static_cast<uint32_t>(former.target().tasks.size() - 1 - index);
  }

private:
  TaskFormer &former;
  size_t index;
};

/// What an integer tensor of one element holds when the task runs, from 0 to `most`.
void readValue(TaskFormer &former, Task &task, Value value, int64_t most) {
  RankValueSpec spec;
  spec.kind = PARTITA_RANK_READ;
  spec.size = most;
  spec.type = codegen::dtypeOf(value);
  task.rankValues.push_back(spec);
  task.operands.push_back(former.place(former.denseOf(value)));
}

bool isWhole(TaskFormer &former, const Tensor &tensor) {
  const Storage &storage = former.target().storages[static_cast<size_t>(tensor.storage)];
  return storage.isTemporary() && tensor.view.offset == 0 && tensor.view.isDense() &&
         storage.elements == tensor.view.elements();
}

/// The value of `results[i]` comes to be in `to`: it is made there, or copied. What the
/// body was given, an argument, is there before it and is always copied.
void deliver(TaskFormer &former, TaskFormer &body, ArrayRef<Tensor> arguments,
             std::vector<Tensor> &results, size_t i, const Tensor &to, size_t first,
             DType type, const std::string &source) {
  Tensor from = results[i];
  if (from.storage == to.storage)
    return;
  bool isGiven = llvm::any_of(
      arguments, [&](const Tensor &given) { return given.storage == from.storage; });
  if (isGiven || !isWhole(former, from) || !body.makeIn(from.storage, to.storage, first))
    return former.copy(from, to, type, source);
  for (Tensor &other : results)
    if (other.storage == from.storage)
      other.storage = to.storage;
}

/// One repeat on its way to tasks.
class RepeatFormer {
public:
  RepeatFormer(RepeatOp op, TaskFormer &former)
      : op(op), former(former), source(sourceName(op)), callee(op.callee()),
        loop(former.target().numLoops++) {}

  LogicalResult form() {
    for (Value value : op.getCarried()) {
      Tensor place = former.allocate(value);
      former.copy(former.tensorOf(value), place, codegen::dtypeOf(value), source);
      carried.push_back(place);
    }
    for (Value value : op.getScanned())
      scanned.push_back(former.denseOf(value));
    for (Value value : op.getShared())
      shared.push_back(former.tensorOf(value));
    for (Value result : op->getResults().drop_front(carried.size()))
      rows.push_back(former.allocate(result));
    Task task{source};
    task.loop = loop;
    task::Repeat params;
    params.trips = static_cast<int64_t>(op.getTrips());
    if (op.getCount())
      readValue(former, task, op.getCount(), params.trips);
    RangeFormer range(former, std::move(task), params, &params);
    if (failed(body()))
      return failure();
    range.close<task::Repeat>();
    for (auto [i, result] : llvm::enumerate(op->getResults()))
      former.setTensor(result,
                       i < carried.size() ? carried[i] : rows[i - carried.size()]);
    return success();
  }

private:
  /// The row of this trip.
  Tensor window(const Tensor &all, RankedTensorType row) {
    Program &program = former.target();
    Storage storage = {program.storages[static_cast<size_t>(all.storage)].space,
                       *partita::dtypeOf(row.getElementType()), row.getNumElements()};
    auto width = static_cast<int64_t>(byteWidth(storage.type));
    storage.window = {all.storage, loop, all.view.offset * width,
                      storage.elements * width};
    program.storages.push_back(storage);
    return {static_cast<int>(program.storages.size()) - 1,
            View::dense(row.getShape().vec())};
  }
  /// Rows that are not aligned are copied: nothing but copies takes them.
  static bool isAligned(RankedTensorType row) {
    return static_cast<uint64_t>(row.getNumElements()) *
               byteWidth(*partita::dtypeOf(row.getElementType())) %
               PARTITA_BUFFER_ALIGNMENT ==
           0;
  }

  LogicalResult body() {
    size_t first = former.target().tasks.size();
    std::vector<Tensor> arguments = carried;
    for (auto [i, all] : llvm::enumerate(scanned)) {
      auto type = cast<RankedTensorType>(callee.getArgumentTypes()[carried.size() + i]);
      Tensor row = window(all, type);
      arguments.push_back(
          isAligned(type)
              ? row
              : former.copied(row, *partita::dtypeOf(type.getElementType()), source));
    }
    llvm::append_range(arguments, shared);
    TaskFormer inner(callee, former);
    auto made = inner.runBody(arguments);
    if (failed(made))
      return failure();
    std::vector<Tensor> &results = *made;
    auto typeOf = [&](size_t i) {
      return cast<RankedTensorType>(callee.getResultTypes()[i]);
    };
    auto dtypeOf = [&](size_t i) {
      return *partita::dtypeOf(typeOf(i).getElementType());
    };
    for (size_t i = 0; i < rows.size(); ++i) {
      size_t r = carried.size() + i;
      Tensor row = window(rows[i], typeOf(r));
      if (isAligned(typeOf(r)))
        deliver(former, inner, arguments, results, r, row, first, dtypeOf(r), source);
      else
        former.copy(results[r], row, dtypeOf(r), source);
    }
    // What another one was must not be overwritten before it has moved on.
    for (size_t i = 0; i < carried.size(); ++i)
      for (size_t k = 0; k < carried.size(); ++k)
        if (k != i && results[i].storage == carried[k].storage)
          results[i] = former.copied(results[i], dtypeOf(i), source);
    for (size_t i = 0; i < carried.size(); ++i)
      deliver(former, inner, arguments, results, i, carried[i], first, dtypeOf(i),
              source);
    return success();
  }

  RepeatOp op;
  TaskFormer &former;
  std::string source;
  func::FuncOp callee;
  int loop;
  std::vector<Tensor> carried, scanned, shared, rows;
};

struct RepeatModel : TaskOpInterface::ExternalModel<RepeatModel, RepeatOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    return RepeatFormer(cast<RepeatOp>(op), former).form();
  }
};

/// Two parts, of which one is skipped.
struct IfModel : TaskOpInterface::ExternalModel<IfModel, IfOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    auto branch = cast<IfOp>(op);
    Place condition = former.place(former.denseOf(branch.getCondition()));
    std::vector<Tensor> arguments, results;
    for (Value input : branch.getInputs())
      arguments.push_back(former.tensorOf(input));
    for (Value result : op->getResults())
      results.push_back(former.allocate(result));
    for (bool isThen : {true, false}) {
      task::Skip params;
      params.when = !isThen;
      Task task{sourceName(op), {condition}};
      RangeFormer range(former, std::move(task), params, &params);
      func::FuncOp callee = isThen ? branch.thenCallee() : branch.elseCallee();
      if (failed(part(op, callee, arguments, results, former)))
        return failure();
      range.close<task::Skip>();
    }
    for (auto [value, tensor] : llvm::zip_equal(op->getResults(), results))
      former.setTensor(value, tensor);
    return success();
  }

  static LogicalResult part(Operation *op, func::FuncOp callee,
                            ArrayRef<Tensor> arguments, ArrayRef<Tensor> results,
                            TaskFormer &former) {
    std::string source = sourceName(op);
    if (!callee) {
      for (auto [i, to] : llvm::enumerate(results))
        former.copy(arguments[i], to,
                    codegen::dtypeOf(op->getResult(static_cast<unsigned>(i))), source);
      return success();
    }
    size_t first = former.target().tasks.size();
    TaskFormer inner(callee, former);
    auto made = inner.runBody(arguments);
    if (failed(made))
      return failure();
    for (auto [i, to] : llvm::enumerate(results))
      deliver(former, inner, arguments, *made, i, to, first,
              codegen::dtypeOf(op->getResult(static_cast<unsigned>(i))), source);
    return success();
  }
};

/// Of the same or another region.
struct MoveModel : TaskOpInterface::ExternalModel<MoveModel, MoveOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    auto move = cast<MoveOp>(op);
    Tensor source = former.denseOf(move.getInput());
    Tensor target = former.allocate(move.getResult());
    former.target().storages.back().space = static_cast<Space>(move.getSpace());
    former.setTensor(move.getResult(), target);
    former.copy(source, target, codegen::dtypeOf(move.getInput()), sourceName(op));
    return success();
  }
};

struct UpdateModel : TaskOpInterface::ExternalModel<UpdateModel, UpdateOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    auto update = cast<UpdateOp>(op);
    Tensor rows = former.denseOf(update.getRows());
    Tensor target = former.ownCopy(op, update.getTarget());
    Shape shape = shapeOf(update.getTarget());
    auto dim = static_cast<size_t>(update.getDim());
    task::Update p;
    p.dtype = static_cast<uint8_t>(codegen::dtypeOf(update.getTarget()));
    p.outer = p.inner = 1;
    for (size_t d = 0; d < shape.size(); ++d)
      if (d != dim)
        (d < dim ? p.outer : p.inner) *= shape[d];
    p.extent = shape[dim];
    p.count = shapeOf(update.getRows())[dim];
    Task task{sourceName(op), {former.place(rows), former.place(target)}};
    task.params = p;
    readValue(former, task, update.getAt(), p.extent - p.count);
    former.addTask(std::move(task));
    return success();
  }
};

struct KeepModel : TaskOpInterface::ExternalModel<KeepModel, KeepOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    auto keep = cast<KeepOp>(op);
    Tensor target = former.ownCopy(op, keep.getInput());
    Shape shape = shapeOf(keep.getInput());
    auto dim = static_cast<size_t>(keep.getDim());
    task::Mask p;
    p.dtype = static_cast<uint8_t>(codegen::dtypeOf(keep.getInput()));
    p.outer = p.inner = 1;
    for (size_t d = 0; d < shape.size(); ++d)
      if (d != dim)
        (d < dim ? p.outer : p.inner) *= shape[d];
    p.extent = shape[dim];
    Task task{sourceName(op), {former.place(target)}};
    task.params = p;
    readValue(former, task, keep.getCount(), p.extent);
    former.addTask(std::move(task));
    return success();
  }
};
} // namespace

void codegen::attachControlModels(MLIRContext &context) {
  RepeatOp::attachInterface<RepeatModel>(context);
  IfOp::attachInterface<IfModel>(context);
  MoveOp::attachInterface<MoveModel>(context);
  UpdateOp::attachInterface<UpdateModel>(context);
  KeepOp::attachInterface<KeepModel>(context);
}
