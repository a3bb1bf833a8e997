//===- Communicate.cpp - Reshard steps as tasks ---------------------------===//
#include "dialects/Comm/Comm.h"
#include "dialects/Task/Task.h"

#include "passes/Codegen/Common/KernelBuilder.h"
#include "passes/Codegen/Common/Models.h"

#include <limits>

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

/// The bit pattern of the value that leaves a reduction unchanged.
static int64_t neutralBits(DType type, ReduceKind kind) {
  HostTensor one = HostTensor::zeros(type, {});
  fillNeutral(one, kind);
  int64_t bits = 0;
  std::memcpy(&bits, one.bytes.data(), one.bytes.size());
  return bits;
}

namespace {
/// One step on its way to tasks.
class StepFormer {
public:
  StepFormer(comm::StepOpInterface op, TaskFormer &former)
      : op(op), former(former), step(op.getStep()), g(stepGeometry(step)),
        type(codegen::dtypeOf(op->getOperand(0))) {}

  LogicalResult form() {
    source = former.denseOf(op->getOperand(0));
    Value result = op->getResult(0);
    bool inPlace =
        step.kind == StepKind::AllReduce && former.mayOverwrite(op->getOperand(0), op);
    target = inPlace ? Tensor{source.storage, View::dense(shapeOf(result))}
                     : former.allocate(result);
    former.setTensor(result, target);
    if (elementCount(shapeOf(result)) == 0)
      return success();
    switch (step.kind) {
    case StepKind::View:
      former.copy(source, target, type, sourceName(op));
      return success();
    case StepKind::Slice:
      return slice();
    case StepKind::AllGather:
      return allGather();
    case StepKind::AllToAll:
      return allToAll();
    case StepKind::Permute:
      return permute();
    case StepKind::AllReduce:
      return allReduce();
    case StepKind::ReduceScatter:
      return reduceScatter();
    case StepKind::ToPartial:
      return toPartial();
    case StepKind::Repad:
      return repad();
    case StepKind::Exchange:
      return exchange();
    }
    return failure();
  }

private:
  template <typename Params> Params params() const {
    Params p;
    p.dtype = static_cast<uint8_t>(type);
    return p;
  }
  LogicalResult add(task::Params params, std::vector<RankValueSpec> values = {}) {
    Task task{sourceName(op)};
    task.operands = {former.place(source), former.place(target)};
    task.params = std::move(params);
    task.rankValues = std::move(values);
    former.addTask(std::move(task));
    return success();
  }
  RankValueSpec blockIndex() const { return {PARTITA_RANK_BLOCK_INDEX, 0, 0, step.axes}; }
  int64_t elements() const { return step.before.localElements(); }

  LogicalResult slice() {
    auto p = params<task::Slice>();
    p.outer = g.outer, p.parts = g.count, p.block = g.chunk * g.inner;
    return add(p, {blockIndex()});
  }
  LogicalResult allGather() {
    auto p = params<task::AllGather>();
    p.outer = g.outer, p.block = g.chunk * g.inner, p.group = step.axes;
    return add(p);
  }
  LogicalResult allReduce() {
    auto p = params<task::AllReduce>();
    p.reduce = static_cast<int64_t>(step.reduce);
    p.count = elements(), p.group = step.axes;
    return add(p);
  }
  LogicalResult reduceScatter() {
    auto p = params<task::ReduceScatter>();
    p.reduce = static_cast<int64_t>(step.reduce);
    p.outer = g.outer, p.block = g.chunk * g.inner, p.group = step.axes;
    return add(p);
  }
  /// The place that the axes leave is joined, the one they enter is split.
  LogicalResult allToAll() {
    auto p = params<task::AllToAll>();
    p.split_first = !g.fromFirst;
    p.outer = g.outer, p.split = g.toChunk, p.middle = g.middle, p.join = g.chunk;
    p.inner = g.inner, p.group = step.axes;
    return add(p);
  }
  LogicalResult permute() {
    auto p = params<task::Permute>();
    p.count = elements();
    auto [from, to] = permuteAxes(step);
    p.from = std::move(from), p.to = std::move(to);
    return add(p);
  }
  LogicalResult repad() {
    auto p = params<task::Repad>();
    p.outer = g.outer, p.from = g.chunk, p.to = g.toChunk, p.inner = g.inner;
    return add(p);
  }
  LogicalResult exchange() {
    Task task{sourceName(op)};
    task.operands = {former.place(source), former.place(target)};
    task.params = params<task::Exchange>();
    task.layouts = {step.before, step.after};
    former.addTask(std::move(task));
    return success();
  }
  /// A rank that is not the first along an inner partial kind of another reduction holds
  /// that kind's neutral element instead: see toPartialFill.
  LogicalResult toPartial() {
    for (const PartialAxes &entry : step.before.partial)
      if (entry.kind > step.reduce)
        return op->emitError("a partial ")
               << name(step.reduce) << " around a partial " << name(entry.kind)
               << " has no code generation";
    auto p = params<task::ToPartial>();
    p.count = elements(), p.bits = neutralBits(type, step.reduce);
    return add(p, {blockIndex()});
  }

  comm::StepOpInterface op;
  TaskFormer &former;
  Step step;
  StepGeometry g;
  DType type;
  Tensor source, target;
};

template <typename Op>
struct StepModel : TaskOpInterface::ExternalModel<StepModel<Op>, Op> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    return StepFormer(cast<comm::StepOpInterface>(op), former).form();
  }
};

/// Where in its buffer every rank has what it holds before, if that is one run: elements
/// from the buffer's begin. `halo` is of dims as they lie in memory.
static std::optional<int64_t> ownElements(const Halo &halo) {
  std::optional<int64_t> begin = ownBegin(halo);
  if (!begin)
    return std::nullopt;
  auto dim = static_cast<size_t>(halo.windows[0].dim);
  Shape shape = halo.shape();
  if (elementCount(ArrayRef(shape).take_front(dim)) != 1)
    return std::nullopt;
  return *begin * elementCount(ArrayRef(shape).drop_front(dim + 1));
}

/// An image in the order of the target stays so: its layouts are those of the permuted
/// dims.
struct HaloModel : TaskOpInterface::ExternalModel<HaloModel, comm::HaloOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    auto haloOp = cast<comm::HaloOp>(op);
    Halo halo = haloOp.getHalo();
    Value result = haloOp.getResult();
    DType type = codegen::dtypeOf(result);
    Tensor source = former.tensorOf(haloOp.getInput()), target;
    const TargetModel &model = former.model();
    bool isImage = model.isImage(source.view) && former.isAligned(source);
    if (isImage) {
      target = former.allocateLike(result, model.image(shapeOf(result)));
      isImage = model.isImage(target.view);
    }
    if (isImage) {
      permute(halo, model.orderOf(target.view));
    } else {
      source = former.denseOf(haloOp.getInput());
      target = former.allocate(result);
    }
    former.setTensor(result, target);
    if (elementCount(shapeOf(result)) == 0)
      return success();
    Task task{sourceName(op)};
    task.operands = {former.place(source), former.place(target)};
    if (auto begin = ownElements(halo);
        begin && former.makeInside(haloOp.getInput(), op, target, *begin))
      task.operands[0] = {target.storage, static_cast<uint64_t>(*begin) * byteWidth(type),
                          task.operands[0].bytes};
    task::Halo params;
    params.dtype = static_cast<int64_t>(type);
    params.bits = neutralBits(type, halo.fill);
    params.windows = halo.windows;
    task.params = std::move(params);
    task.layouts = {halo.before, halo.positions};
    former.addTask(std::move(task));
    return success();
  }

  /// Dims come in the order in which they lie in memory.
  static void permute(Halo &halo, ArrayRef<size_t> order) {
    for (Layout *layout : {&halo.before, &halo.positions}) {
      auto dims = layout->dims;
      for (auto [at, d] : llvm::enumerate(order))
        layout->dims[at] = dims[d];
    }
    for (HaloWindow &window : halo.windows)
      window.dim = static_cast<int32_t>(llvm::find(order, window.dim) - order.begin());
    llvm::sort(halo.windows,
               [](const HaloWindow &a, const HaloWindow &b) { return a.dim < b.dim; });
  }
};

/// An exchange whose layouts say the shapes.
struct PiecesModel : TaskOpInterface::ExternalModel<PiecesModel, comm::PiecesOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    auto piecesOp = cast<comm::PiecesOp>(op);
    const Pieces pieces = piecesOp.getExchange();
    Tensor source = former.denseOf(piecesOp.getInput());
    Tensor target = former.allocate(piecesOp.getResult());
    former.setTensor(piecesOp.getResult(), target);
    if (elementCount(pieces.after) == 0)
      return success();
    task::Exchange params;
    params.dtype = static_cast<uint8_t>(codegen::dtypeOf(piecesOp.getInput()));
    for (const Piece &piece : pieces.list) {
      params.pieces.emplace_back(static_cast<int32_t>(piece.from),
                                 static_cast<int32_t>(piece.to));
      llvm::append_range(params.runs, piece.runs);
    }
    Task task{sourceName(op)};
    task.operands = {former.place(source), former.place(target)};
    task.params = std::move(params);
    task.layouts = {Layout::replicated(pieces.before), Layout::replicated(pieces.after)};
    former.addTask(std::move(task));
    return success();
  }
};

/// Padding of a dim is behind the valid prefix of its major factor; one task per dim.
struct MaskModel : TaskOpInterface::ExternalModel<MaskModel, comm::MaskOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    auto mask = cast<comm::MaskOp>(op);
    const Layout &layout = mask.getLayout().getLayout();
    DType type = codegen::dtypeOf(mask.getInput());
    bool inPlace = former.mayOverwrite(mask.getInput(), op);
    Tensor source = former.denseOf(mask.getInput()), target = source;
    if (!inPlace)
      target = former.copied(source, type, sourceName(op));
    target.view = View::dense(shapeOf(mask.getResult()));
    former.setTensor(mask.getResult(), target);
    int64_t bits = neutralBits(type, mask.getKind().getValue());
    for (int64_t d : mask.getDims()) {
      const DimFactor &major = layout.dims[static_cast<size_t>(d)].factors[0];
      task::Mask p;
      p.dtype = static_cast<int64_t>(type);
      p.outer = 1, p.extent = major.local(), p.inner = 1, p.bits = bits;
      for (int64_t i = 0; i < layout.rank(); ++i)
        (i < d ? p.outer : p.inner) *= layout.dims[static_cast<size_t>(i)].local();
      p.inner /= p.extent;
      Task task{sourceName(op)};
      task.operands = {former.place(target)};
      task.params = p;
      if (major.blocks.empty())
        task.rankValues = {
            {PARTITA_RANK_VALID_EXTENT, major.size, major.local(), major.axes}};
      else
        task.rankValues = {{PARTITA_RANK_LISTED, 0, 0, major.axes, major.blocks}};
      former.addTask(std::move(task));
    }
    return success();
  }
};

struct StartModel : TaskOpInterface::ExternalModel<StartModel, task_ir::StartOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    auto start = cast<task_ir::StartOp>(op);
    std::vector<Task> &tasks = former.target().tasks;
    std::optional<Task> call;
    for (Operation &member : start.communications()) {
      size_t before = tasks.size();
      if (failed(cast<TaskOpInterface>(member).formTasks(former)))
        return failure();
      // No elements, no task.
      if (tasks.size() == before || !mayFly(tasks.back().kind()))
        continue;
      Task own = std::move(tasks.back());
      tasks.pop_back();
      own.phase = dist::phaseOf(&member);
      if (call)
        join(*call, std::move(own));
      else
        call = std::move(own);
    }
    if (!call)
      return success();
    former.addTask(std::move(*call));
    former.startLast(start.getHandle());
    return success();
  }

  /// The item of `own` becomes the last of the call.
  static void join(Task &call, Task own) {
    llvm::append_range(call.operands, own.operands);
    std::visit(
        [&]<typename P>(P &p) {
          if constexpr (requires { p.more; })
            p.more.push_back(task::itemOf(std::get<P>(own.params), 0));
        },
        call.params);
  }
};

struct WaitModel : TaskOpInterface::ExternalModel<WaitModel, task_ir::WaitOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    auto wait = cast<task_ir::WaitOp>(op);
    auto start = wait.getHandle().getDefiningOp<task_ir::StartOp>();
    if (!start)
      return op->emitError("waits for a handle that is not started here");
    former.waitFor(wait.getHandle());
    for (auto [result, op] : llvm::zip_equal(wait.getResults(), start.communications()))
      former.setTensor(result, former.tensorOf(op.getResult(0)));
    return success();
  }
};

template <typename... Ops> void attach(MLIRContext &context) {
  (Ops::template attachInterface<StepModel<Ops>>(context), ...);
}
} // namespace

void codegen::attachCommModels(MLIRContext &context) {
  attach<comm::AllReduceOp, comm::ReduceScatterOp, comm::ToPartialOp, comm::AllGatherOp,
         comm::SliceOp, comm::AllToAllOp, comm::PermuteOp, comm::ExchangeOp,
         comm::RepadOp>(context);
  comm::HaloOp::attachInterface<HaloModel>(context);
  comm::PiecesOp::attachInterface<PiecesModel>(context);
  comm::MaskOp::attachInterface<MaskModel>(context);
  task_ir::StartOp::attachInterface<StartModel>(context);
  task_ir::WaitOp::attachInterface<WaitModel>(context);
}
