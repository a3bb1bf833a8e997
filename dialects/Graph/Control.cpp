//===- Control.cpp - Functions that run several times, or perhaps ---------===//
#include "dialects/Graph/Graph.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;

static Operation *functionOf(Operation *op, FlatSymbolRefAttr name) {
  auto function = SymbolTable::lookupNearestSymbolFrom<FunctionOpInterface>(op, name);
  return function && !function.isExternal() ? function.getOperation() : nullptr;
}

SmallVector<Operation *> RepeatOp::getCallees() {
  return {functionOf(*this, getBodyAttr())};
}
int64_t RepeatOp::getCallTrips() { return static_cast<int64_t>(getTrips()); }
unsigned RepeatOp::getNumCarried() { return static_cast<unsigned>(getCarried().size()); }
bool RepeatOp::operandHasRows(unsigned i) {
  return i >= getNumCarried() && i < getNumCarried() + getScanned().size();
}
bool RepeatOp::resultHasRows(unsigned i) { return i >= getNumCarried(); }

SmallVector<Operation *> graph::IfOp::getCallees() {
  return {functionOf(*this, getThenAttr()), functionOf(*this, getOtherwiseAttr())};
}
int graph::IfOp::getArgumentOf(unsigned i) { return static_cast<int>(i) - 1; }

/// The type of what the functions have, as the op has it: in rows of a loop.
static Type withRows(Type row, std::optional<int64_t> rows) {
  if (!rows)
    return row;
  auto type = cast<RankedTensorType>(row);
  SmallVector<int64_t> shape{*rows};
  llvm::append_range(shape, type.getShape());
  return RankedTensorType::get(shape, type.getElementType());
}

/// Whether the operands and results of the op are what its functions take and give.
static LogicalResult verifyEnds(CallingOpInterface op) {
  for (Operation *operation : op.getCallees()) {
    auto callee = dyn_cast_if_present<FunctionOpInterface>(operation);
    if (!callee)
      return op->emitOpError("runs a function that is not there");
    unsigned first = op->getNumOperands() != 0 && op.getArgumentOf(0) < 0 ? 1 : 0;
    auto check = [&](StringRef what, TypeRange given, TypeRange wanted, unsigned from,
                     function_ref<bool(unsigned)> hasRows) -> LogicalResult {
      if (given.size() != wanted.size() + from)
        return op->emitOpError("has ") << given.size() - from << " " << what << "s, @"
                                       << callee.getName() << " has " << wanted.size();
      for (unsigned i = from; i < given.size(); ++i) {
        Type type =
            withRows(wanted[i - from],
                     hasRows(i) ? std::optional(op.getCallTrips()) : std::nullopt);
        if (given[i] != type)
          return op->emitOpError()
                 << what << " " << i << " is " << given[i] << ", expected " << type;
      }
      return success();
    };
    if (failed(check("operand", op->getOperandTypes(), callee.getArgumentTypes(), first,
                     [&](unsigned i) { return op.operandHasRows(i); })) ||
        failed(check("result", op->getResultTypes(), callee.getResultTypes(), 0,
                     [&](unsigned i) { return op.resultHasRows(i); })))
      return failure();
  }
  return success();
}

LogicalResult GradientOp::verifySymbolUses(SymbolTableCollection &) {
  auto callee = dyn_cast_if_present<FunctionOpInterface>(functionOf(*this, getOfAttr()));
  if (!callee)
    return emitOpError("differentiates a function that is not there");
  if (callee.getNumResults() != 1)
    return emitOpError("differentiates one result, @")
           << callee.getName() << " has " << callee.getNumResults();
  if (TypeRange(callee.getArgumentTypes()) != TypeRange(getOperandTypes()))
    return emitOpError("has operands of types ")
           << getOperandTypes() << ", @" << callee.getName() << " takes "
           << callee.getArgumentTypes();
  if (getNumResults() == 0 || getNumResults() > getNumOperands())
    return emitOpError("has ") << getNumResults() << " results and " << getNumOperands()
                               << " operands";
  for (auto [i, type] : llvm::enumerate(getResultTypes()))
    if (type != getOperandTypes()[i])
      return emitOpError("result ")
             << i << " is " << type << ", expected the type of operand " << i << ", "
             << getOperandTypes()[i];
  return success();
}

LogicalResult RepeatOp::verifySymbolUses(SymbolTableCollection &) {
  auto trips = static_cast<int64_t>(getTrips());
  if (trips < 1 || trips > (int64_t(1) << 31))
    return emitOpError("has ") << trips << " trips";
  if (getNumResults() < getNumCarried())
    return emitOpError("carries ")
           << getNumCarried() << " values and has " << getNumResults() << " results";
  // Carried values are results of the body's argument types, both being the op's.
  for (unsigned i = 0; i < getNumCarried(); ++i)
    if (getOperand(i).getType() != getResult(i).getType())
      return emitOpError("carries value ")
             << i << ", which goes in as " << getOperand(i).getType()
             << " and comes out as " << getResult(i).getType();
  return verifyEnds(cast<CallingOpInterface>(getOperation()));
}

LogicalResult graph::IfOp::verifySymbolUses(SymbolTableCollection &) {
  auto type = cast<RankedTensorType>(getCondition().getType());
  if (!type.getElementType().isInteger(1) || type.getNumElements() != 1)
    return emitOpError("expected one bool as condition, got ") << type;
  return verifyEnds(cast<CallingOpInterface>(getOperation()));
}
