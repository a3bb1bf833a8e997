//===- Notes.cpp - The second place of an error ---------------------------===//
#include "dialects/Interfaces/Notes.h"

#include "mlir/IR/Operation.h"

using namespace mlir;
using namespace partita;

InFlightDiagnostic partita::noteOrigin(InFlightDiagnostic diagnostic, Value value,
                                       const Twine &what) {
  diagnostic.attachNote(value.getLoc()) << what << " comes from here";
  return diagnostic;
}

InFlightDiagnostic partita::noteOperands(InFlightDiagnostic diagnostic, Operation *op) {
  if (op->getNumOperands() < 2)
    return diagnostic;
  for (OpOperand &operand : op->getOpOperands())
    diagnostic.attachNote(operand.get().getLoc())
        << "operand " << operand.getOperandNumber() << ", " << operand.get().getType()
        << ", comes from here";
  return diagnostic;
}
