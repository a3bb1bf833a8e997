//===- Comm.cpp - What crosses devices ------------------------------------===//
#include "dialects/Comm/Comm.h"
#include "dialects/Interfaces/Notes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace partita;
using namespace partita::comm;

#include "dialects/Comm/CommDialect.cpp.inc"
#include "dialects/Comm/CommInterfaces.cpp.inc"

#define GET_OP_CLASSES
#include "dialects/Comm/CommOps.cpp.inc"

void CommDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/Comm/CommOps.cpp.inc"
      >();
}

Operation *CommDialect::materializeConstant(OpBuilder &builder, Attribute value,
                                            Type type, Location location) {
  return arith::ConstantOp::materialize(builder, value, type, location);
}

/// Where the program says its mesh, the op must be for that one.
static LogicalResult verifyMesh(Operation *op, dist::MeshAttr mesh) {
  dist::MeshAttr around = dist::findMesh(op);
  if (!around || around == mesh)
    return success();
  return dist::noteMesh(op->emitOpError("is for mesh \"")
                            << mesh.getMesh().str() << "\", the program is for \""
                            << around.getMesh().str() << "\"",
                        op);
}

void comm::detail::effectsOf(
    Operation *op,
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  if (op->getNumOperands() < 2)
    return;
  effects.emplace_back(MemoryEffects::Read::get(), &op->getOpOperand(0));
  effects.emplace_back(MemoryEffects::Write::get(), &op->getOpOperand(1));
}

static ArrayRef<int64_t> localShapeOf(Value value) {
  return cast<ShapedType>(value.getType()).getShape();
}

/// What the op fills: its result, or in the form on buffers its last operand.
static Value targetOf(Operation *op) {
  return op->getNumResults() ? op->getResult(0) : op->getOperands().back();
}

/// The op is in one of its two forms and keeps the element type.
static LogicalResult verifyForm(Operation *op) {
  bool onBuffers = isa<MemRefType>(op->getOperand(0).getType());
  if (op->getNumOperands() != (onBuffers ? 2u : 1u) ||
      op->getNumResults() != (onBuffers ? 0u : 1u))
    return op->emitOpError(onBuffers
                               ? "on a buffer writes into a buffer and has no result"
                               : "on a tensor has a result and no buffer");
  if (getElementTypeOrSelf(op->getOperand(0).getType()) ==
      getElementTypeOrSelf(targetOf(op).getType()))
    return success();
  return op->emitOpError("changes the element type");
}

static LogicalResult verifySameShape(Operation *op) {
  if (localShapeOf(op->getOperand(0)) == localShapeOf(targetOf(op)))
    return success();
  return op->emitOpError("changes the shape");
}

static LogicalResult verifyLocalShape(Operation *op, StringRef what,
                                      dist::LayoutAttr layout, Value value) {
  std::vector<int64_t> local = layout.getLayout().localShape();
  if (ArrayRef(local) == localShapeOf(value))
    return success();
  InFlightDiagnostic error = op->emitOpError("expected ")
                             << what << " of local shape [" << ArrayRef(local)
                             << "] for layout " << layout.str() << ", got "
                             << value.getType();
  return value.getDefiningOp() == op ? std::move(error)
                                     : noteOrigin(std::move(error), value);
}

Step comm::detail::stepOf(Operation *op) {
  auto step = cast<StepOpInterface>(op);
  auto derived = stepBetween(step.getFrom().devices(), step.getStepKind(),
                             step.getFrom().getLayout(), step.getTo().getLayout());
  assert(derived && "the op has been verified");
  return std::move(*derived);
}

LogicalResult comm::detail::verifyStep(Operation *op) {
  auto step = cast<StepOpInterface>(op);
  dist::LayoutAttr from = step.getFrom(), to = step.getTo();
  if (from.getMesh() != to.getMesh())
    return op->emitOpError("leads from mesh \"")
           << from.devices().str() << "\" to mesh \"" << to.devices().str() << "\"";
  if (failed(verifyForm(op)) || failed(verifyMesh(op, from.getMesh())) ||
      failed(verifyLocalShape(op, "an operand", from, op->getOperand(0))) ||
      failed(verifyLocalShape(op, "a result", to, targetOf(op))))
    return failure();
  if (auto ok = partita::verifyStep(from.devices(), step.getStepKind(), from.getLayout(),
                                    to.getLayout());
      !ok)
    return op->emitOpError("is not possible: ") << ok.error().message;
  return success();
}

LogicalResult HaloOp::verify() {
  if (getFrom().getMesh() != getTo().getPositions().getMesh())
    return emitOpError("leads from mesh \"")
           << getFrom().devices().str() << "\" to mesh \"" << getTo().devices().str()
           << "\"";
  Halo halo = getHalo();
  if (auto ok = halo.verify(getDevices()); !ok)
    return emitOpError("is inconsistent: ") << ok.error().message;
  if (failed(verifyForm(*this)) || failed(verifyMesh(*this, getFrom().getMesh())) ||
      failed(verifyLocalShape(*this, "an operand", getFrom(), getInput())))
    return failure();
  if (ArrayRef(halo.shape()) != localShapeOf(targetOf(*this)))
    return emitOpError("expected a result of shape [")
           << ArrayRef(halo.shape()) << "] for the windows of "
           << getTo().getPositions().str() << ", got " << targetOf(*this).getType();
  return success();
}

Pieces PiecesOp::getExchange() {
  return getPieces().between(localShapeOf(getInput()), localShapeOf(targetOf(*this)));
}

LogicalResult PiecesOp::verify() {
  if (failed(verifyForm(*this)) || failed(verifyMesh(*this, getPieces().getMesh())))
    return failure();
  if (auto ok = getExchange().verify(getDevices()); !ok)
    return emitOpError("is inconsistent: ") << ok.error().message;
  return success();
}

LogicalResult MaskOp::verify() {
  const Layout &layout = getLayout().getLayout();
  if (failed(verifyForm(*this)) || failed(verifySameShape(*this)) ||
      failed(verifyMesh(*this, getLayout().getMesh())) ||
      failed(verifyLocalShape(*this, "an operand", getLayout(), getInput())))
    return failure();
  if (!llvm::is_sorted(getDims()) || getDims().empty())
    return emitOpError("expected one or more dims in ascending order");
  for (int64_t dim : getDims())
    if (dim < 0 || dim >= layout.rank())
      return emitOpError("names dim ") << dim << " of a tensor of rank " << layout.rank();
  return success();
}

static LogicalResult verifyOneDim(Operation *op, dist::LayoutAttr layout) {
  if (layout.getLayout().rank() != 1 || !layout.getLayout().partial.empty())
    return op->emitOpError("expected the layout of one dim without partial axes, got ")
           << layout.str();
  return success();
}

LogicalResult LocalIndexOp::verify() {
  if (failed(verifyForm(*this)) || failed(verifySameShape(*this)) ||
      failed(verifyMesh(*this, getLayout().getMesh())) ||
      failed(verifyOneDim(*this, getLayout())))
    return failure();
  if (!getElementTypeOrSelf(getIndices().getType()).isSignlessInteger())
    return emitOpError("expected integer indices, got ") << getIndices().getType();
  return success();
}

LogicalResult ClaimOp::verify() {
  if (getFrom().getMesh() != getTo().getMesh())
    return emitOpError("leads from mesh \"")
           << getFrom().devices().str() << "\" to mesh \"" << getTo().devices().str()
           << "\"";
  if (failed(verifyMesh(*this, getFrom().getMesh())) ||
      failed(verifyLocalShape(*this, "an operand", getFrom(), getInput())))
    return failure();
  return verifyLocalShape(*this, "a result", getTo(), getResult());
}

LogicalResult CoordinateOp::verify() {
  if (failed(verifyMesh(*this, getLayout().getMesh())) ||
      failed(verifyOneDim(*this, getLayout())))
    return failure();
  if (getLayout().getLayout().dims[0].factors.size() != 1)
    return emitOpError("expected a dim in one piece, got ") << getLayout().str();
  return success();
}

OpFoldResult CoordinateOp::fold(FoldAdaptor) {
  if (getLayout().getLayout().dims[0].sharded())
    return {};
  return IntegerAttr::get(IndexType::get(getContext()), 0);
}

static StringRef opName(StepKind kind) {
  switch (kind) {
  case StepKind::Slice:
    return SliceOp::getOperationName();
  case StepKind::AllGather:
    return AllGatherOp::getOperationName();
  case StepKind::AllToAll:
    return AllToAllOp::getOperationName();
  case StepKind::Permute:
    return PermuteOp::getOperationName();
  case StepKind::AllReduce:
    return AllReduceOp::getOperationName();
  case StepKind::ReduceScatter:
    return ReduceScatterOp::getOperationName();
  case StepKind::ToPartial:
    return ToPartialOp::getOperationName();
  case StepKind::Repad:
    return RepadOp::getOperationName();
  case StepKind::Exchange:
    return ExchangeOp::getOperationName();
  case StepKind::View:
    break;
  }
  llvm_unreachable("a view has no op");
}

Value comm::emitStep(OpBuilder &builder, Location location, dist::MeshAttr mesh,
                     const Step &step, Value input) {
  if (step.kind == StepKind::View)
    return input;
  MLIRContext *context = builder.getContext();
  NamedAttrList attributes;
  attributes.set("from", dist::LayoutAttr::get(context, mesh, step.before));
  attributes.set("to", dist::LayoutAttr::get(context, mesh, step.after));
  OperationState state(location, opName(step.kind), input,
                       RankedTensorType::get(step.after.localShape(),
                                             getElementTypeOrSelf(input.getType())),
                       attributes.getAttrs());
  return builder.create(state)->getResult(0);
}

Value comm::emitHalo(OpBuilder &builder, Location location, dist::MeshAttr mesh,
                     const Halo &halo, Value input) {
  auto type = RankedTensorType::get(halo.shape(), getElementTypeOrSelf(input.getType()));
  return HaloOp::create(builder, location, type, input, /*out=*/Value(),
                        dist::LayoutAttr::get(builder.getContext(), mesh, halo.before),
                        dist::WindowsAttr::of(mesh, halo))
      .getResult();
}
