//===- AttentionOps.cpp - graph.attention and its gradients as kernels ----===//
#include "passes/Codegen/Common/AttentionOps.h"

#include "dialects/Graph/Attention.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Kernels/Target.h"
#include "passes/Codegen/Common/KernelBuilder.h"
#include "passes/Codegen/Common/Models.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

//===----------------------------------------------------------------------===//
// Ops without a kernel
//===----------------------------------------------------------------------===//

/// True if a target has a kernel for these shapes and types: vectors of f32, over loops
/// of more than one step.
static bool hasKernel(Operation *op, const kernels::Target &target) {
  Shape q = shapeOf(op->getOperand(0)), v = shapeOf(op->getOperand(2));
  auto isLoop = [](int64_t size) { return size > 1; };
  if (!isa<graph::AttentionOp>(op) && !target.streamsGradients)
    return false;
  return target.streamsAttention && std::max(q.back(), v.back()) <= target.widestHead &&
         !getElementTypeOrSelf(op->getOperand(0)).isF64() &&
         llvm::all_of(ArrayRef(q).take_back(2), isLoop) &&
         llvm::all_of(ArrayRef(v).take_back(2), isLoop) && elementCount(q) != 0;
}

func::FuncOp codegen::withKernels(func::FuncOp function, const kernels::Target &target) {
  for (Operation &op : llvm::make_early_inc_range(function.front())) {
    if (!graph::isAttention(&op) || hasKernel(&op, target))
      continue;
    OpBuilder builder(&op);
    Operation *before = op.getPrevNode();
    auto values = graph::expandAttention(&op, builder);
    if (!values) {
      op.emitError(values.error().message);
      continue;
    }
    for (Operation *made = op.getPrevNode(); made != before; made = made->getPrevNode())
      if (made->getNumOperands() != 0)
        copyStepMarks(&op, made);
    op.replaceAllUsesWith(*values);
    op.erase();
  }
  return function;
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

namespace {
/// Rows and columns of a tensor, which has outer dims in front.
enum class Along : uint8_t { Queries, Keys };
enum class Across : uint8_t { Depth, Width, Nothing };

/// An op, or both gradients of one attention, on the way to a kernel.
class OpFormer {
public:
  OpFormer(Operation *op, TaskFormer &former)
      : op(op), former(former), shape(domainOf(op)),
        builder(former, shape, {0, 1, rank() - 2, rank() - 1}) {}

  void form();
  /// The op that gives the other gradients, or null.
  void formGradients(Operation *byQueries, Operation *byKeys);

private:
  /// [depth, width, outer…, queries, keys]
  static Shape domainOf(Operation *op) {
    Shape q = shapeOf(op->getOperand(0)), v = shapeOf(op->getOperand(2));
    Shape shape{q.back(), v.back()};
    shape.insert(shape.end(), q.begin(), q.end() - 1);
    shape.push_back(v[v.size() - 2]);
    return shape;
  }
  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  View inDomain(const View &view, Along along, Across across) const;
  bool isPlain(const View &view) const;
  void addOperand(unsigned number, Along along, Across across);
  void addOutput(Value result, Along along, Across across);
  void addLogits(size_t firstScored, const Payload &given);
  int addPart(const Payload &payload, DType type) {
    return builder.addPayload(op, payload, arguments, type);
  }
  void findHiders(const Payload &payload);
  void finish() {
    builder.setAttention(std::move(spec));
    builder.finish(sourceName(op));
  }

  Operation *op;
  TaskFormer &former;
  Shape shape;
  KernelBuilder builder;
  AttentionSpec spec;
  std::vector<int> arguments; ///< nodes: the score, then the payload's other operands
};
} // namespace

View OpFormer::inDomain(const View &view, Along along, Across across) const {
  std::vector<Parts> dims;
  for (int64_t size : shape)
    dims.push_back(size == 1 ? Parts() : Parts{{size, 0}});
  size_t outer = shape.size() - 4;
  for (size_t d = 0; d < outer; ++d)
    if (sizeOf(view.dims[d]) != 1)
      dims[2 + d] = view.dims[d];
  dims[shape.size() - (along == Along::Queries ? 2 : 1)] = view.dims[outer];
  if (across != Across::Nothing)
    dims[across == Across::Depth ? 0 : 1] = view.dims[outer + 1];
  return {view.offset, std::move(dims)};
}

/// True if the tensor has one stride along each of the dims that are no outer ones.
bool OpFormer::isPlain(const View &view) const {
  return llvm::all_of(ArrayRef<int64_t>{0, 1, rank() - 2, rank() - 1}, [&](int64_t d) {
    return view.dims[static_cast<size_t>(d)].size() == 1;
  });
}

void OpFormer::addOperand(unsigned number, Along along, Across across) {
  Value value = op->getOperand(number);
  DType type = codegen::dtypeOf(value);
  Tensor tensor = former.tensorOf(value);
  View view = inDomain(tensor.view, along, across);
  if (!isPlain(view)) {
    tensor = former.copied(tensor, type, sourceName(op));
    view = inDomain(tensor.view, along, across);
  }
  builder.addOperand(tensor, view, type);
}

void OpFormer::addOutput(Value result, Along along, Across across) {
  Tensor tensor = former.allocateForUser(result);
  if (!isPlain(inDomain(tensor.view, along, across)))
    tensor = former.allocate(result);
  builder.addOutput(-1, tensor, inDomain(tensor.view, along, across),
                    codegen::dtypeOf(result), false);
  former.setTensor(result, tensor);
}

void OpFormer::addLogits(size_t firstScored, const Payload &given) {
  // Simplified: -1 that was read is the negative of 1.
  const Payload payload = given.partAt(given.nodes().size() - 1);
  spec.score = builder.score(DType::F32);
  arguments = {spec.score};
  for (Value operand : llvm::drop_begin(op->getOperands(), firstScored)) {
    // A dim of queries or keys in several parts would be several dims of the kernel.
    if (!uniformOf(operand)) {
      Tensor tensor = former.tensorOf(operand);
      if (llvm::any_of(ArrayRef(tensor.view.dims).take_back(2),
                       [](const Parts &parts) { return parts.size() > 1; }))
        former.setTensor(
            operand, former.copied(tensor, codegen::dtypeOf(operand), sourceName(op)));
    }
    arguments.push_back(builder.nodeOf(operand));
  }
  const ScalarNode &root = payload.nodes().back();
  bool isScore = root.op == ScalarOp::Operand && root.operand == 0;
  spec.logits = isScore ? spec.score : addPart(payload, DType::F32);
  findHiders(payload);
}

/// Says of each node if the node depends on the score.
static std::vector<bool> dependsOnScore(const Payload &payload) {
  std::vector<bool> depends;
  for (const ScalarNode &n : payload.nodes()) {
    bool any = n.op == ScalarOp::Operand && n.operand == 0;
    for (int32_t arg : n.args)
      any |= depends[static_cast<size_t>(arg)];
    depends.push_back(any);
  }
  return depends;
}

/// From the result back: a choice between scores and a number, or what is added to them.
void OpFormer::findHiders(const Payload &payload) {
  std::vector<bool> depends = dependsOnScore(payload);
  auto nodeAt = [&](int32_t i) -> const ScalarNode & {
    return payload.nodes()[static_cast<size_t>(i)];
  };
  auto at = static_cast<int32_t>(payload.nodes().size()) - 1;
  for (;;) {
    const ScalarNode &n = nodeAt(at);
    if (n.op == ScalarOp::Select && spec.hiders.empty()) {
      bool isThen = depends[static_cast<size_t>(n.args[1])];
      const ScalarNode &other = nodeAt(n.args[isThen ? 2 : 1]);
      if (depends[static_cast<size_t>(n.args[0])] || other.op != ScalarOp::Constant ||
          other.value > -1e3)
        return;
      spec.hides = isThen ? AttentionSpec::Hides::Where : AttentionSpec::Hides::WhereNot;
      spec.hidden = other.value;
      spec.hiders = {
          addPart(payload.partAt(static_cast<size_t>(n.args[0])), DType::Bool)};
      return;
    }
    if (n.op != ScalarOp::Add || depends[static_cast<size_t>(n.args[0])] ==
                                     depends[static_cast<size_t>(n.args[1])])
      return;
    bool isLeft = depends[static_cast<size_t>(n.args[0])];
    spec.hides = AttentionSpec::Hides::Sum;
    spec.hiders.push_back(
        addPart(payload.partAt(static_cast<size_t>(n.args[isLeft ? 1 : 0])), DType::F32));
    at = n.args[isLeft ? 0 : 1];
  }
}

void OpFormer::form() {
  auto attention = cast<graph::AttentionOp>(op);
  addOperand(0, Along::Queries, Across::Depth);
  addOperand(1, Along::Keys, Across::Depth);
  addOperand(2, Along::Keys, Across::Width);
  spec.scale = attention.getScale().convertToDouble();
  spec.zeroForNaN = attention.getZeroForNan();
  addLogits(3, attention.getPayload());
  addOutput(attention.getOutput(), Along::Queries, Across::Width);
  addOutput(attention.getLargest(), Along::Queries, Across::Nothing);
  addOutput(attention.getSum(), Along::Queries, Across::Nothing);
  finish();
}

void OpFormer::formGradients(Operation *byQueries, Operation *byKeys) {
  for (unsigned i : {0u, 1u, 2u})
    addOperand(i, i == 0 ? Along::Queries : Along::Keys,
               i == 2 ? Across::Width : Across::Depth);
  for (unsigned i : {3u, 4u, 5u, 6u})
    addOperand(i, Along::Queries, i == 5 ? Across::Width : Across::Nothing);
  auto fill = [&](auto gradient) {
    spec.scale = gradient.getScale().convertToDouble();
    spec.zeroForNaN = gradient.getZeroForNan();
    const Payload &payload = gradient.getPayload();
    addLogits(7, payload);
    Payload slope = payload.derivative(0);
    const ScalarNode &root = slope.nodes().back();
    if (root.op != ScalarOp::Constant || root.value != 1)
      spec.slope = addPart(slope, DType::F32);
  };
  llvm::TypeSwitch<Operation *>(op)
      .Case<graph::AttentionGradQueryOp, graph::AttentionGradKeysOp>(fill);
  spec.ofQueries = byQueries, spec.ofKeys = byKeys;
  if (byQueries)
    addOutput(byQueries->getResult(0), Along::Queries, Across::Depth);
  if (byKeys) {
    addOutput(byKeys->getResult(0), Along::Keys, Across::Depth);
    addOutput(byKeys->getResult(1), Along::Keys, Across::Width);
  }
  finish();
}

//===----------------------------------------------------------------------===//
// Models
//===----------------------------------------------------------------------===//

/// The op of the type that reads the same and stands for the same attention, which has no
/// kernel yet; null if there is none, or there are few heads.
template <typename Other>
static Operation *partnerOf(Operation *op, const TaskFormer &former) {
  Shape k = shapeOf(op->getOperand(1));
  if (elementCount(Shape(k.begin(), k.end() - 2)) <
      former.model().kernels.fewestGradientHeads)
    return nullptr;
  for (Operation *user : op->getOperand(6).getUsers())
    if (isa<Other>(user) && user->getBlock() == op->getBlock() &&
        dist::phaseOf(user) == dist::phaseOf(op) &&
        llvm::equal(user->getOperands(), op->getOperands()) &&
        user->getPropertiesAsAttribute() == op->getPropertiesAsAttribute() &&
        !former.isPlaced(user->getResult(0)))
      return user;
  return nullptr;
}

namespace {
struct AttentionModel
    : TaskOpInterface::ExternalModel<AttentionModel, graph::AttentionOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    OpFormer(op, former).form();
    return success();
  }
};

struct GradQueryModel
    : TaskOpInterface::ExternalModel<GradQueryModel, graph::AttentionGradQueryOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    if (!former.isPlaced(op->getResult(0)))
      OpFormer(op, former)
          .formGradients(op, partnerOf<graph::AttentionGradKeysOp>(op, former));
    return success();
  }
};

struct GradKeysModel
    : TaskOpInterface::ExternalModel<GradKeysModel, graph::AttentionGradKeysOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    if (!former.isPlaced(op->getResult(0)))
      OpFormer(op, former)
          .formGradients(partnerOf<graph::AttentionGradQueryOp>(op, former), op);
    return success();
  }
};
} // namespace

void codegen::attachAttentionModels(MLIRContext &context) {
  graph::AttentionOp::attachInterface<AttentionModel>(context);
  graph::AttentionGradQueryOp::attachInterface<GradQueryModel>(context);
  graph::AttentionGradKeysOp::attachInterface<GradKeysModel>(context);
}
