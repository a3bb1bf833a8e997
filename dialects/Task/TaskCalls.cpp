//===- TaskCalls.cpp - Ops that run functions, or rows of tensors ---------===//
#include "dialects/Task/Task.h"

using namespace mlir;
using namespace partita;
using namespace partita::task_ir;

static Layout layoutOf(dist::LayoutAttr layout, Type type) {
  return layout ? layout.getLayout()
                : Layout::replicated(cast<RankedTensorType>(type).getShape().vec());
}

static func::FuncOp functionOf(Operation *op, FlatSymbolRefAttr name) {
  return name ? SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(op, name)
              : func::FuncOp();
}

func::FuncOp RepeatOp::callee() { return functionOf(*this, getBodyAttr()); }
func::FuncOp IfOp::thenCallee() { return functionOf(*this, getThenAttr()); }
func::FuncOp IfOp::elseCallee() { return functionOf(*this, getOtherwiseAttr()); }

SmallVector<func::FuncOp> task_ir::calleesOf(Operation *op) {
  if (auto repeat = dyn_cast<RepeatOp>(op))
    return {repeat.callee()};
  if (auto branch = dyn_cast<IfOp>(op))
    return branch.elseCallee()
               ? SmallVector<func::FuncOp>{branch.thenCallee(), branch.elseCallee()}
               : SmallVector<func::FuncOp>{branch.thenCallee()};
  return {};
}

static bool isInteger(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  return type.getNumElements() == 1 &&
         (type.getElementType().isInteger(32) || type.getElementType().isInteger(64));
}

static RankedTensorType withRows(Type row, int64_t rows) {
  auto type = cast<RankedTensorType>(row);
  SmallVector<int64_t> shape{rows};
  llvm::append_range(shape, type.getShape());
  return RankedTensorType::get(shape, type.getElementType());
}

/// `types` are those of the function's ends, but for an expected one in which `at` is one
/// of several rows.
static LogicalResult verifyEnds(Operation *op, StringRef what, TypeRange given,
                                TypeRange wanted, size_t firstRow, size_t endRow,
                                int64_t rows) {
  if (given.size() != wanted.size())
    return op->emitOpError("has ")
           << given.size() << " " << what << "s, its function has " << wanted.size();
  for (size_t i = 0; i < given.size(); ++i) {
    Type type = wanted[i];
    if (i >= firstRow && i < endRow)
      type = withRows(type, rows);
    if (given[i] != type)
      return op->emitOpError() << what << " " << i << " is " << given[i] << ", expected "
                               << type;
  }
  return success();
}

LogicalResult RepeatOp::verifySymbolUses(SymbolTableCollection &) {
  func::FuncOp body = callee();
  if (!body || body.isExternal())
    return emitOpError("has no function ") << getBodyAttr();
  auto trips = static_cast<int64_t>(getTrips());
  if (trips < 1 || trips > (int64_t(1) << 31))
    return emitOpError("has ") << trips << " trips";
  if (getCount() && !isInteger(getCount()))
    return emitOpError("expected an i32 or i64 as count, got ") << getCount().getType();
  size_t carried = getCarried().size(), scanned = getScanned().size();
  SmallVector<Type> given(getCarried().getTypes());
  llvm::append_range(given, getScanned().getTypes());
  llvm::append_range(given, getShared().getTypes());
  if (failed(verifyEnds(*this, "operand", given, body.getArgumentTypes(), carried,
                        carried + scanned, trips)) ||
      failed(verifyEnds(*this, "result", getResultTypes(), body.getResultTypes(), carried,
                        getNumResults(), trips)))
    return failure();
  if (getCount() && getNumResults() != carried)
    return emitOpError("has a count and rows as results");
  for (unsigned i = 0; i < carried; ++i)
    if (body.getArgumentTypes()[i] != body.getResultTypes()[i] ||
        layoutOf(dist::argumentLayout(body, i), body.getArgumentTypes()[i])
                .canonicalized() !=
            layoutOf(dist::resultLayout(body, i), body.getResultTypes()[i])
                .canonicalized())
      return emitOpError("carries value ") << i << ", which goes into " << getBodyAttr()
                                           << " in another type or layout "
                                           << "than it comes out";
  return success();
}

LogicalResult IfOp::verifySymbolUses(SymbolTableCollection &) {
  auto type = cast<RankedTensorType>(getCondition().getType());
  if (!type.getElementType().isInteger(1) || type.getNumElements() != 1)
    return emitOpError("expected one bool as condition, got ") << type;
  func::FuncOp then = thenCallee(), otherwise = elseCallee();
  if (!then || then.isExternal())
    return emitOpError("has no function ") << getThenAttr();
  if (getOtherwiseAttr() && (!otherwise || otherwise.isExternal()))
    return emitOpError("has no function ") << getOtherwiseAttr();
  for (func::FuncOp function : calleesOf(*this))
    if (failed(verifyEnds(*this, "operand", getInputs().getTypes(),
                          function.getArgumentTypes(), 0, 0, 0)) ||
        failed(verifyEnds(*this, "result", getResultTypes(), function.getResultTypes(), 0,
                          0, 0)))
      return failure();
  // Where the results come from must not show.
  for (unsigned i = 0; i < getNumResults(); ++i) {
    if (!otherwise && i >= getInputs().size())
      return emitOpError("has no operand for result ") << i << " without an else";
    Type result = getResultTypes()[i];
    Layout other =
        otherwise ? layoutOf(dist::resultLayout(otherwise, i), result)
                  : layoutOf(dist::argumentLayout(then, i), then.getArgumentTypes()[i]);
    if (layoutOf(dist::resultLayout(then, i), result).canonicalized() !=
        other.canonicalized())
      return emitOpError("gives result ") << i << " in two layouts";
  }
  for (unsigned i = 0; otherwise && i < getInputs().size(); ++i) {
    Type type = getInputs()[i].getType();
    if (layoutOf(dist::argumentLayout(then, i), type).canonicalized() !=
        layoutOf(dist::argumentLayout(otherwise, i), type).canonicalized())
      return emitOpError("passes operand ") << i << " in two layouts";
  }
  return success();
}

static LogicalResult verifyWholeDim(Operation *op, Value tensor, Value number,
                                    int64_t dim, dist::LayoutAttr attr) {
  const Layout &layout = attr.getLayout();
  auto type = cast<RankedTensorType>(tensor.getType());
  if (ArrayRef(layout.localShape()) != type.getShape())
    return op->emitOpError("expected the local part of ")
           << attr.str() << ", got " << type;
  if (dim < 0 || dim >= type.getRank())
    return op->emitOpError("has no dim ") << dim;
  for (const DimFactor &factor : layout.dims[static_cast<size_t>(dim)].factors)
    if (!factor.axes.empty())
      return op->emitOpError("is along dim ")
             << dim << ", which is split in " << attr.str();
  if (!isInteger(number))
    return op->emitOpError("expected an i32 or i64, got ") << number.getType();
  return success();
}

LogicalResult UpdateOp::verify() {
  auto dim = static_cast<int64_t>(getDim());
  if (failed(verifyWholeDim(*this, getTarget(), getAt(), dim, getLayout())))
    return failure();
  auto rows = cast<RankedTensorType>(getRows().getType());
  auto target = cast<RankedTensorType>(getTarget().getType());
  SmallVector<int64_t> shape(target.getShape());
  if (rows.getRank() == target.getRank())
    shape[static_cast<size_t>(dim)] =
        std::min(rows.getDimSize(static_cast<unsigned>(dim)),
                 target.getDimSize(static_cast<unsigned>(dim)));
  if (rows.getShape() != ArrayRef(shape) ||
      rows.getElementType() != target.getElementType())
    return emitOpError("writes rows of ") << rows << " into " << target;
  return success();
}

LogicalResult KeepOp::verify() {
  return verifyWholeDim(*this, getInput(), getCount(), static_cast<int64_t>(getDim()),
                        getLayout());
}

//===----------------------------------------------------------------------===//
// Layouts
//===----------------------------------------------------------------------===//

static Layout rowsOf(Layout layout, int64_t rows) {
  layout.dims.insert(layout.dims.begin(), Layout::replicated({rows}).dims[0]);
  return layout;
}

static StatedLayouts layoutsOf(RepeatOp op) {
  func::FuncOp body = op.callee();
  StatedLayouts out;
  if (op.getCount())
    out.operands.push_back(layoutOf({}, op.getCount().getType()));
  size_t carried = op.getCarried().size(), scanned = op.getScanned().size();
  auto trips = static_cast<int64_t>(op.getTrips());
  for (unsigned i = 0; i < body.getNumArguments(); ++i) {
    Layout layout = layoutOf(dist::argumentLayout(body, i), body.getArgumentTypes()[i]);
    bool isRow = i >= carried && i < carried + scanned;
    out.operands.push_back(isRow ? rowsOf(layout, trips) : layout);
  }
  for (unsigned i = 0; i < body.getNumResults(); ++i) {
    Layout layout = layoutOf(dist::resultLayout(body, i), body.getResultTypes()[i]);
    out.results.push_back(i < carried ? layout : rowsOf(layout, trips));
  }
  return out;
}

static StatedLayouts layoutsOf(IfOp op) {
  func::FuncOp then = op.thenCallee();
  StatedLayouts out;
  out.operands.push_back(layoutOf({}, op.getCondition().getType()));
  for (unsigned i = 0; i < then.getNumArguments(); ++i)
    out.operands.push_back(
        layoutOf(dist::argumentLayout(then, i), then.getArgumentTypes()[i]));
  for (unsigned i = 0; i < then.getNumResults(); ++i)
    out.results.push_back(
        layoutOf(dist::resultLayout(then, i), then.getResultTypes()[i]));
  return out;
}

std::optional<StatedLayouts> task_ir::statedLayouts(Operation *op) {
  if (auto repeat = dyn_cast<RepeatOp>(op))
    return layoutsOf(repeat);
  if (auto branch = dyn_cast<IfOp>(op))
    return layoutsOf(branch);
  if (auto update = dyn_cast<UpdateOp>(op)) {
    Layout target = update.getLayout().getLayout(), rows = target;
    auto dim = static_cast<size_t>(update.getDim());
    int64_t count = cast<RankedTensorType>(update.getRows().getType()).getShape()[dim];
    rows.dims[dim] = Layout::replicated({count}).dims[0];
    return StatedLayouts{{rows, target, layoutOf({}, update.getAt().getType())},
                         {target}};
  }
  if (auto keep = dyn_cast<KeepOp>(op)) {
    const Layout &layout = keep.getLayout().getLayout();
    return StatedLayouts{{layout, layoutOf({}, keep.getCount().getType())}, {layout}};
  }
  return std::nullopt;
}

LogicalResult task_ir::verifyCalls(ProgramOp program) {
  llvm::SmallPtrSet<Operation *, 8> known;
  for (auto function : program.getBody().front().getOps<func::FuncOp>()) {
    WalkResult result = function.walk([&](Operation *op) -> WalkResult {
      for (func::FuncOp callee : calleesOf(op))
        if (!known.contains(callee))
          return op->emitOpError("runs @")
                 << callee.getName() << ", which does not come before @"
                 << function.getName();
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      return failure();
    known.insert(function);
  }
  return success();
}
