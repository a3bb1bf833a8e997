//===- Comm.cpp - What crosses devices ------------------------------------===//
#include "dialects/Comm/Comm.h"

#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"

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

static StringRef text(Operation *op, StringRef name) {
  return cast<StringAttr>(*op->getInherentAttr(name)).getValue();
}

static Expected<AxisList> parseAxes(const Mesh &mesh, ArrayAttr names) {
  AxisList axes;
  for (Attribute name : names) {
    auto axis = mesh.parseAxis(cast<StringAttr>(name).getValue().str());
    if (!axis)
      return tl::unexpected(axis.error());
    axes.push_back(*axis);
  }
  return axes;
}

static Expected<Layout> readLayout(Operation *op, StringRef name, const Mesh &mesh) {
  auto layout = Layout::parse(text(op, name).str(), mesh);
  if (!layout)
    return makeError("bad '" + name.str() + "': " + layout.error().message);
  if (auto ok = layout->verify(mesh); !ok)
    return makeError("bad '" + name.str() + "': " + ok.error().message);
  return layout;
}

/// Reads every part of the step, with an error for each that does not parse.
static Expected<Step> readStep(Operation *op, StepKind kind, const Mesh &mesh) {
  Step step;
  step.kind = kind;
  auto axes = parseAxes(mesh, cast<ArrayAttr>(*op->getInherentAttr("axes")));
  if (!axes)
    return makeError("bad axes: " + axes.error().message);
  step.axes = *axes;
  auto before = readLayout(op, "from", mesh), after = readLayout(op, "to", mesh);
  if (!before || !after)
    return tl::unexpected(!before ? before.error() : after.error());
  step.before = std::move(*before);
  step.after = std::move(*after);
  auto place = cast<DenseI64ArrayAttr>(*op->getInherentAttr("place")).asArrayRef();
  if (place.size() != 4)
    return makeError("expected 'place' to have 4 entries");
  step.dim = static_cast<int32_t>(place[0]);
  step.factor = static_cast<int32_t>(place[1]);
  step.toDim = static_cast<int32_t>(place[2]);
  step.toFactor = static_cast<int32_t>(place[3]);
  if (auto reduce = op->getInherentAttr("kind"); reduce && *reduce) {
    auto parsed = reduceKindFromName(cast<StringAttr>(*reduce).getValue().str());
    if (!parsed)
      return makeError("unknown reduction kind \"" + text(op, "kind").str() + "\"");
    step.reduce = *parsed;
  }
  return step;
}

Step comm::detail::stepOf(Operation *op, StepKind kind, const Mesh &mesh) {
  auto step = readStep(op, kind, mesh);
  step->receivedElements = cast<CommOpInterface>(op).getReceivedElements();
  return *step;
}

/// A place must exist in the layouts before anything indexes it.
static bool placeExists(const Layout &layout, int32_t dim, int32_t factor) {
  return dim >= 0 && dim < layout.rank() && factor >= 0 &&
         factor < static_cast<int32_t>(layout.dims[dim].factors.size());
}

LogicalResult comm::detail::verifyStep(Operation *op) {
  auto mesh = dist::meshOf(op);
  if (!mesh)
    return op->emitOpError(mesh.error().message);
  StepKind kind = StepKind::View;
  llvm::TypeSwitch<Operation *>(op)
      .Case<AllReduceOp, ReduceScatterOp, ToPartialOp, AllGatherOp, SliceOp, AllToAllOp,
            PermuteOp, ExchangeOp, RepadOp>([&](auto step) { kind = step.kStep; });
  auto step = readStep(op, kind, *mesh);
  if (!step)
    return op->emitOpError("has ") << step.error().message;
  auto check = [&](StringRef what, const Layout &layout, Value value) -> LogicalResult {
    std::vector<int64_t> local = layout.localShape();
    if (local == shapeOf(value))
      return success();
    return op->emitOpError("expected ")
           << what << " of local shape [" << ArrayRef(local) << "] for layout "
           << layout.str(*mesh) << ", got " << value.getType();
  };
  if (failed(check("an operand", step->before, op->getOperand(0))) ||
      failed(check("a result", step->after, op->getResult(0))))
    return failure();
  if (step->before.globalShape() != step->after.globalShape())
    return op->emitOpError("has layouts of different global shapes");
  bool placed = kind == StepKind::AllGather || kind == StepKind::Slice ||
                kind == StepKind::ReduceScatter || kind == StepKind::AllToAll ||
                kind == StepKind::Repad;
  if (placed && !placeExists(step->before, step->dim, step->factor))
    return op->emitOpError("has a place outside its layouts");
  if (kind == StepKind::AllToAll &&
      !placeExists(step->before, step->toDim, step->toFactor))
    return op->emitOpError("has a place outside its layouts");
  return success();
}

SmallVector<std::string> comm::detail::axisNames(ArrayAttr axes) {
  SmallVector<std::string> names;
  for (Attribute axis : axes)
    names.push_back(cast<StringAttr>(axis).getValue().str());
  return names;
}

//===-- Halo --------------------------------------------------------------===//

/// Reads every part of the halo, with an error for each that does not parse.
static Expected<Halo> readHalo(HaloOp op, const Mesh &mesh) {
  auto before = readLayout(op, "from", mesh);
  auto positions = readLayout(op, "positions", mesh);
  if (!before || !positions)
    return tl::unexpected(!before ? before.error() : positions.error());
  Halo halo;
  halo.before = std::move(*before);
  halo.positions = std::move(*positions);
  size_t count = op.getDims().size();
  if (op.getStrides().size() != count || op.getReach().size() != count ||
      op.getLow().size() != count)
    return makeError("'strides', 'reach' and 'low' of other lengths than 'dims', which "
                     "has " +
                     std::to_string(count) + " entries");
  for (size_t i = 0; i < count; ++i) {
    if (op.getDims()[i] < 0 || op.getDims()[i] >= halo.positions.rank())
      return makeError("a window of dim " + std::to_string(op.getDims()[i]) +
                       " of a tensor of rank " + std::to_string(halo.positions.rank()));
    halo.windows.push_back({static_cast<int32_t>(op.getDims()[i]), op.getStrides()[i],
                            op.getReach()[i], op.getLow()[i]});
  }
  auto kind = reduceKindFromName(op.getKind().str());
  if (!kind)
    return makeError("unknown kind \"" + op.getKind().str() + "\"");
  halo.fill = *kind;
  return halo;
}

Halo HaloOp::getHalo(const Mesh &mesh) { return *readHalo(*this, mesh); }

SmallVector<std::string> HaloOp::getAxisNames() {
  Mesh mesh = *dist::meshOf(*this);
  SmallVector<std::string> names;
  for (const AxisRef &axis : getHalo(mesh).axes(mesh))
    names.push_back(mesh.str(axis));
  return names;
}

LogicalResult HaloOp::verify() {
  auto mesh = dist::meshOf(*this);
  if (!mesh)
    return emitOpError(mesh.error().message);
  auto halo = readHalo(*this, *mesh);
  if (!halo)
    return emitOpError("has ") << halo.error().message;
  if (auto ok = halo->verify(*mesh); !ok)
    return emitOpError("is inconsistent: ") << ok.error().message;
  if (halo->before.localShape() != shapeOf(getInput()))
    return emitOpError("expected an operand of local shape [")
           << ArrayRef(halo->before.localShape()) << "] for layout "
           << halo->before.str(*mesh) << ", got " << getInput().getType();
  if (halo->shape() != shapeOf(getResult()))
    return emitOpError("expected a result of shape [")
           << ArrayRef(halo->shape()) << "] for the windows of "
           << halo->positions.str(*mesh) << ", got " << getResult().getType();
  if (getElementTypeOrSelf(getInput().getType()) !=
      getElementTypeOrSelf(getResult().getType()))
    return emitOpError("changes the element type");
  return success();
}

Value comm::emitHalo(OpBuilder &builder, Location location, const Mesh &mesh,
                     const Halo &halo, Value input) {
  SmallVector<int64_t> dims, strides, reach, low;
  for (const HaloWindow &window : halo.windows) {
    dims.push_back(window.dim);
    strides.push_back(window.stride);
    reach.push_back(window.reach);
    low.push_back(window.low);
  }
  auto type = RankedTensorType::get(halo.shape(), getElementTypeOrSelf(input.getType()));
  return HaloOp::create(builder, location, type, input, halo.before.str(mesh),
                        halo.positions.str(mesh), dims, strides, reach, low,
                        name(halo.fill), haloElements(mesh, halo));
}

/// A layout that an op names, on the mesh of its module.
static FailureOr<Layout> parsedLayout(Operation *op, StringRef text) {
  auto mesh = dist::meshOf(op);
  if (!mesh)
    return op->emitOpError(mesh.error().message);
  auto layout = Layout::parse(text.str(), *mesh);
  if (!layout)
    return op->emitOpError("has a bad layout: ") << layout.error().message;
  return *layout;
}

LogicalResult MaskOp::verify() {
  FailureOr<Layout> layout = parsedLayout(*this, getLayout());
  if (failed(layout))
    return failure();
  if (layout->localShape() != shapeOf(getInput()))
    return emitOpError("expected an operand of local shape [")
           << ArrayRef(layout->localShape()) << "], got " << getInput().getType();
  for (int64_t dim : getDims())
    if (dim < 0 || dim >= layout->rank())
      return emitOpError("names dim ")
             << dim << " of a tensor of rank " << layout->rank();
  if (!reduceKindFromName(getKind().str()))
    return emitOpError("has an unknown kind \"") << getKind() << "\"";
  return success();
}

LogicalResult LocalIndexOp::verify() {
  FailureOr<Layout> layout = parsedLayout(*this, getLayout());
  if (failed(layout))
    return failure();
  if (layout->rank() != 1 || !layout->partial.empty())
    return emitOpError("expected the layout of one dim without partial axes, got ")
           << getLayout();
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

Value comm::emitStep(OpBuilder &builder, Location location, const Mesh &mesh,
                     const Step &step, Value input) {
  if (step.kind == StepKind::View)
    return input;
  SmallVector<Attribute> axes;
  for (const AxisRef &axis : step.axes)
    axes.push_back(builder.getStringAttr(mesh.str(axis)));
  NamedAttrList attributes;
  attributes.set("axes", builder.getArrayAttr(axes));
  attributes.set("from", builder.getStringAttr(step.before.str(mesh)));
  attributes.set("to", builder.getStringAttr(step.after.str(mesh)));
  attributes.set("place", builder.getDenseI64ArrayAttr(
                              {step.dim, step.factor, step.toDim, step.toFactor}));
  attributes.set("received", builder.getI64IntegerAttr(step.receivedElements));
  bool reducing = step.kind == StepKind::AllReduce ||
                  step.kind == StepKind::ReduceScatter ||
                  step.kind == StepKind::ToPartial;
  if (reducing)
    attributes.set("kind", builder.getStringAttr(name(step.reduce)));
  Type element = cast<RankedTensorType>(input.getType()).getElementType();
  OperationState state(location, opName(step.kind), input,
                       RankedTensorType::get(step.after.localShape(), element),
                       attributes.getAttrs());
  return builder.create(state)->getResult(0);
}
