//===- Comm.cpp - What crosses devices ------------------------------------===//
#include "dialects/Comm/Comm.h"

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

/// Where the program says its mesh, the op must be for that one.
static LogicalResult verifyMesh(Operation *op, dist::MeshAttr mesh) {
  dist::MeshAttr around = dist::findMesh(op);
  if (!around || around == mesh)
    return success();
  return op->emitOpError("is for mesh \"")
         << mesh.getMesh().str() << "\", the program is for \"" << around.getMesh().str()
         << "\"";
}

static LogicalResult verifyLocalShape(Operation *op, StringRef what,
                                      dist::LayoutAttr layout, Value value) {
  std::vector<int64_t> local = layout.getLayout().localShape();
  if (local == shapeOf(value))
    return success();
  return op->emitOpError("expected ")
         << what << " of local shape [" << ArrayRef(local) << "] for layout "
         << layout.str() << ", got " << value.getType();
}

static LogicalResult verifySameElements(Operation *op) {
  if (getElementTypeOrSelf(op->getOperand(0).getType()) ==
      getElementTypeOrSelf(op->getResult(0).getType()))
    return success();
  return op->emitOpError("changes the element type");
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
  if (failed(verifyMesh(op, from.getMesh())) ||
      failed(verifyLocalShape(op, "an operand", from, op->getOperand(0))) ||
      failed(verifyLocalShape(op, "a result", to, op->getResult(0))) ||
      failed(verifySameElements(op)))
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
  if (failed(verifyMesh(*this, getFrom().getMesh())) ||
      failed(verifyLocalShape(*this, "an operand", getFrom(), getInput())))
    return failure();
  if (halo.shape() != shapeOf(getResult()))
    return emitOpError("expected a result of shape [")
           << ArrayRef(halo.shape()) << "] for the windows of "
           << getTo().getPositions().str() << ", got " << getResult().getType();
  return verifySameElements(*this);
}

LogicalResult MaskOp::verify() {
  const Layout &layout = getLayout().getLayout();
  if (failed(verifyMesh(*this, getLayout().getMesh())) ||
      failed(verifyLocalShape(*this, "an operand", getLayout(), getInput())))
    return failure();
  if (!llvm::is_sorted(getDims()) || getDims().empty())
    return emitOpError("expected one or more dims in ascending order");
  for (int64_t dim : getDims())
    if (dim < 0 || dim >= layout.rank())
      return emitOpError("names dim ") << dim << " of a tensor of rank " << layout.rank();
  return success();
}

LogicalResult LocalIndexOp::verify() {
  const Layout &layout = getLayout().getLayout();
  if (failed(verifyMesh(*this, getLayout().getMesh())))
    return failure();
  if (layout.rank() != 1 || !layout.partial.empty())
    return emitOpError("expected the layout of one dim without partial axes, got ")
           << getLayout().str();
  if (!getElementTypeOrSelf(getIndices().getType()).isSignlessInteger())
    return emitOpError("expected integer indices, got ") << getIndices().getType();
  return success();
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
  return HaloOp::create(builder, location, type, input,
                        dist::LayoutAttr::get(builder.getContext(), mesh, halo.before),
                        dist::WindowsAttr::of(mesh, halo));
}
