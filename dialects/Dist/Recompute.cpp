//===- Recompute.cpp - Which ops the backward pass computes again ---------===//
#include "dialects/Dist/Dist.h"
#include "dialects/Interfaces/ValueNames.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace partita;
using namespace partita::dist;

RecomputeAttr dist::recomputeOf(Operation *op) {
  return op->getAttrOfType<RecomputeAttr>(recomputeAttr);
}

SmallPtrSet<Operation *, 16> dist::neededAgain(FunctionOpInterface function) {
  SmallPtrSet<Operation *, 16> needed;
  for (Operation &op : llvm::reverse(function.getFunctionBody().front()))
    if (phaseOf(&op) != Phase::Forward || needed.contains(&op))
      for (Value operand : op.getOperands())
        if (Operation *maker = operand.getDefiningOp(); maker && recomputeOf(maker))
          needed.insert(maker);
  return needed;
}

LogicalResult dist::verifyRecompute(FunctionOpInterface function) {
  Block &body = function.getFunctionBody().front();
  SmallPtrSet<Operation *, 16> needed = neededAgain(function);
  for (Operation &op : body)
    if (recomputeOf(&op) && !needed.contains(&op)) {
      InFlightDiagnostic error = op.emitOpError(
          "is computed again for nobody: all that read it are of the forward pass");
      if (!op.use_empty())
        error.attachNote(op.user_begin()->getLoc()) << "a reader is here";
      return error;
    }
  for (const StateEnds &ends : statesOf(function)) {
    Operation *maker = ends.result < 0
                           ? nullptr
                           : body.getTerminator()
                                 ->getOperand(static_cast<unsigned>(ends.result))
                                 .getDefiningOp();
    if (maker && recomputeOf(maker))
      return maker->emitOpError("gives a state and cannot be computed again");
  }
  return success();
}
