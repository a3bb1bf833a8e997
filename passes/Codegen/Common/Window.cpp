//===- Window.cpp - Convolution and pooling as engine calls ---------------===//
#include "dialects/Graph/Graph.h"
#include "passes/Codegen/Common/Models.h"
#include "passes/Codegen/Common/TaskFormer.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

/// An image operand in one of the target's formats. Negative pads, which cut, have been
/// taken off by a slice; `pads` becomes non-negative.
static Tensor imageOf(Value image, std::vector<int64_t> &pads, TaskFormer &former) {
  Shape shape = shapeOf(image), starts(shape.size(), 0), ones(shape.size(), 1);
  size_t spatial = shape.size() - 2;
  bool cuts = false;
  for (size_t d = 0; d < spatial; ++d) {
    int64_t low = std::min<int64_t>(0, pads[d]);
    int64_t high = std::min<int64_t>(0, pads[spatial + d]);
    starts[2 + d] = -low;
    shape[2 + d] += low + high;
    pads[d] -= low;
    pads[spatial + d] -= high;
    cuts |= low != 0 || high != 0;
  }
  Tensor tensor = former.tensorOf(image);
  if (cuts) {
    auto cut = tensor.view.sliced(shape, starts, ones);
    if (!cut) {
      tensor = former.denseOf(image);
      cut = tensor.view.sliced(shape, starts, ones);
    }
    tensor.view = *cut;
  }
  const TargetModel &model = former.model();
  if (model.readsImage(tensor.view) && former.isAligned(tensor))
    return tensor;
  DType type = codegen::dtypeOf(image);
  Tensor packed{former.addStorage(type, elementCount(shape)), model.image(shape)};
  former.copy(tensor, packed, type, model.kernels.images.name);
  if (!cuts)
    former.setTensor(image, packed);
  return packed;
}

static std::vector<task::SpatialDim> spatialDims(const Shape &in, const Shape &out,
                                                 ArrayRef<int64_t> kernel,
                                                 ArrayRef<int64_t> strides,
                                                 ArrayRef<int64_t> dilations,
                                                 ArrayRef<int64_t> pads) {
  std::vector<task::SpatialDim> dims;
  for (size_t d = 0; d < kernel.size(); ++d)
    dims.push_back({in[2 + d], out[2 + d], kernel[d], strides[d], dilations[d], pads[d],
                    pads[kernel.size() + d]});
  return dims;
}

/// Operands of the post-ops from `first` on, dense over the dims along which they vary,
/// in the order in memory of the result.
static void addConvPosts(Operation *op, size_t first, const View &target,
                         TaskFormer &former, Task &task, task::Conv &params) {
  Value result = op->getResult(0);
  std::vector<size_t> order = former.model().orderOf(target);
  for (const kernels::PostStep &step : former.plan().postChain(op).drop_front(first)) {
    task::PostOp post = step.post;
    if (Value operand = former.plan().value(step.operand)) {
      Tensor tensor = former.tensorOf(operand);
      View view = tensor.view.broadcast(shapeOf(result));
      View varying{view.offset, {}};
      for (size_t d : order) {
        bool moves =
            llvm::any_of(view.dims[d], [](const Part &p) { return p.stride != 0; });
        post.mask |= int64_t(moves) << d;
        if (moves)
          varying.dims.push_back(view.dims[d]);
      }
      tensor.view = varying;
      if (!varying.isDense() || !former.isAligned(tensor))
        tensor = former.copied(tensor, codegen::dtypeOf(operand), sourceName(op));
      task.operands.push_back(former.place(tensor));
    }
    params.post.push_back(post);
  }
}

/// Where the image lies that is added first to the products, if the result can have its
/// place: a residual that nobody reads later. The engine then adds to what is there, and
/// takes faster primitives than with an operand more.
///
///   %1 = conv %0 … : reads %x earlier     %0, %1: places of their own
///   %2 = conv %1 …; %3 = %2 + %x          %3 in the place of %x
static std::optional<Tensor> placeOfAddend(Operation *op, TaskFormer &former) {
  ArrayRef<kernels::PostStep> chain = former.plan().postChain(op);
  Value result = former.plan().callResult(op);
  const TargetModel &model = former.model();
  if (!model.kernels.calls.addsToResult || chain.empty() || !chain[0].isSum())
    return std::nullopt;
  Value addend = former.plan().value(chain[0].operand);
  if (addend.getType() != result.getType() || codegen::dtypeOf(addend) == DType::I32 ||
      llvm::any_of(
          result.getUsers(),
          [](Operation *user) {
            return user->hasTrait<OpTrait::IsTerminator>(); // has a place of its own
          }) ||
      !former.mayReplace(addend, former.plan().op(chain[0].op)))
    return std::nullopt;
  Tensor place = former.tensorOf(addend);
  return model.isImage(place.view) ? std::optional(place) : std::nullopt;
}

template <typename Op>
static LogicalResult formConv(Op op, TaskFormer &former, bool transposed) {
  const TargetModel &model = former.model();
  Value result = former.plan().callResult(op);
  std::optional<Tensor> addend = placeOfAddend(op, former);
  Tensor target =
      addend ? *addend : former.allocateLike(result, model.image(shapeOf(result)));
  former.setTensor(result, target);
  std::vector<int64_t> pads(op.getPads().begin(), op.getPads().end());
  // The pads of a transposed convolution cut its result; the engine takes them as such.
  std::vector<int64_t> none(pads.size(), 0);
  Tensor image = imageOf(op.getInput(), transposed ? none : pads, former);
  Tensor filter = former.denseOf(op.getFilter());
  Shape in = image.view.shape(), kernel = shapeOf(op.getFilter());
  Shape out = shapeOf(result);
  if (elementCount(out) == 0)
    return success();
  task::Conv params;
  params.dtype = static_cast<int64_t>(codegen::dtypeOf(op.getResult()));
  if constexpr (requires { op.getSums(); })
    if (op.getSums()) {
      params.a_dtype = static_cast<uint8_t>(codegen::dtypeOf(op.getInput()));
      params.b_dtype = static_cast<uint8_t>(codegen::dtypeOf(op.getFilter()));
    }
  params.batch = in[0], params.in_channels = in[1], params.out_channels = out[1];
  params.groups = static_cast<int64_t>(op.getGroup());
  params.src_format = model.formatOf(image.view);
  params.dst_format = model.formatOf(target.view);
  params.has_bias = op.getBias() != nullptr;
  params.weights_packed = model.kernels.calls.packsWeights && former.isWeight(filter) &&
                          filter.view.offset == 0;
  params.adds_to_result = addend.has_value();
  params.spatial = spatialDims(in, out, ArrayRef(kernel).drop_front(2), op.getStrides(),
                               op.getDilations(), pads);
  Task task{sourceName(op)};
  task.operands = {former.place(image), former.place(filter), former.place(target),
                   params.has_bias ? former.place(former.denseOf(op.getBias())) : Place(),
                   Place()};
  addConvPosts(op, addend ? 1 : 0, target.view, former, task, params);
  task.made = former.namesOfCall(op, former.plan().postChain(op).size());
  if (transposed)
    task.params = task::ConvTranspose(std::move(params));
  else
    task.params = std::move(params);
  return former.addEngineCall(op, std::move(task), task::ConvScratch, task::ConvWeights);
}

namespace {
struct ConvModel : TaskOpInterface::ExternalModel<ConvModel, graph::ConvOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    return formConv(cast<graph::ConvOp>(op), former, false);
  }
};

struct ConvTransposeModel
    : TaskOpInterface::ExternalModel<ConvTransposeModel, graph::ConvTransposeOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    return formConv(cast<graph::ConvTransposeOp>(op), former, true);
  }
};

struct ConvBackwardFilterModel
    : TaskOpInterface::ExternalModel<ConvBackwardFilterModel,
                                     graph::ConvBackwardFilterOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    auto gradient = cast<graph::ConvBackwardFilterOp>(op);
    if (elementCount(shapeOf(gradient.getInput())) == 0 ||
        elementCount(shapeOf(gradient.getCotangent())) == 0)
      return former.reduceNothing(op);
    Tensor target = former.allocate(gradient.getResult());
    former.setTensor(gradient.getResult(), target);
    std::vector<int64_t> pads(gradient.getPads().begin(), gradient.getPads().end());
    std::vector<int64_t> none(pads.size(), 0);
    Tensor image = imageOf(gradient.getInput(), pads, former);
    Tensor cotangent = imageOf(gradient.getCotangent(), none, former);
    Shape in = image.view.shape(), out = cotangent.view.shape();
    Shape kernel = shapeOf(gradient.getResult());
    task::ConvBackwardFilter params;
    params.dtype = static_cast<int64_t>(codegen::dtypeOf(gradient.getResult()));
    params.batch = in[0], params.in_channels = in[1], params.out_channels = out[1];
    params.groups = static_cast<int64_t>(gradient.getGroup());
    params.src_format = former.model().formatOf(image.view);
    params.dst_format = former.model().formatOf(cotangent.view);
    params.spatial = spatialDims(in, out, ArrayRef(kernel).drop_front(2),
                                 gradient.getStrides(), gradient.getDilations(), pads);
    Task task{sourceName(op)};
    task.operands = {former.place(image), former.place(cotangent), former.place(target),
                     Place()};
    task.params = std::move(params);
    return former.addEngineCall(op, std::move(task), task::BackwardScratch);
  }
};

struct PoolModel : TaskOpInterface::ExternalModel<PoolModel, graph::PoolOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    auto pool = cast<graph::PoolOp>(op);
    const TargetModel &model = former.model();
    Tensor target =
        former.allocateLike(pool.getResult(), model.image(shapeOf(pool.getResult())));
    former.setTensor(pool.getResult(), target);
    std::vector<int64_t> pads(pool.getPads().begin(), pool.getPads().end());
    Tensor image = imageOf(pool.getInput(), pads, former);
    Shape in = image.view.shape(), out = shapeOf(pool.getResult());
    if (elementCount(out) == 0)
      return success();
    task::Pool params;
    params.dtype = static_cast<int64_t>(codegen::dtypeOf(pool.getResult()));
    params.mode = pool.getKind() == graph::PoolKind::Max ? PARTITA_POOL_MAX
                  : pool.getCountPadding()               ? PARTITA_POOL_AVG_INCLUDE
                                                         : PARTITA_POOL_AVG_EXCLUDE;
    params.batch = in[0], params.channels = in[1];
    params.src_format = model.formatOf(image.view);
    params.dst_format = model.formatOf(target.view);
    params.spatial = spatialDims(in, out, pool.getWindow(), pool.getStrides(),
                                 pool.getDilations(), pads);
    Task task{sourceName(op)};
    task.operands = {former.place(image), former.place(target), Place()};
    task.params = std::move(params);
    return former.addEngineCall(op, std::move(task), task::PoolScratch);
  }
};
} // namespace

void codegen::attachWindowModels(MLIRContext &context) {
  graph::ConvOp::attachInterface<ConvModel>(context);
  graph::ConvTransposeOp::attachInterface<ConvTransposeModel>(context);
  graph::ConvBackwardFilterOp::attachInterface<ConvBackwardFilterModel>(context);
  graph::PoolOp::attachInterface<PoolModel>(context);
}
