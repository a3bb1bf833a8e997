//===- Notes.cpp - The second place of an error ---------------------------===//
#include "dialects/Interfaces/Notes.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Operation.h"

using namespace mlir;
using namespace partita;

Location partita::withSubjects(Location location, const Error &error) {
  if (error.node.empty() && error.hint.empty())
    return location;
  Builder builder(location.getContext());
  NamedAttrList subjects;
  subjects.append("node", builder.getStringAttr(error.node));
  subjects.append("hint", builder.getStringAttr(error.hint));
  subjects.append("dim", builder.getI64IntegerAttr(error.dim));
  return FusedLoc::get({location}, subjects.getDictionary(location.getContext()),
                       location.getContext());
}

Error partita::errorOf(Diagnostic &diagnostic) {
  Error error{.message = diagnostic.str()};
  auto fused = dyn_cast<FusedLoc>(diagnostic.getLocation());
  if (auto subjects = fused ? dyn_cast_if_present<DictionaryAttr>(fused.getMetadata())
                            : DictionaryAttr()) {
    error.node = subjects.getAs<StringAttr>("node").str();
    error.hint = subjects.getAs<StringAttr>("hint").str();
    error.dim = subjects.getAs<IntegerAttr>("dim").getInt();
    return error;
  }
  for (Diagnostic &note : diagnostic.getNotes())
    if (auto named = dyn_cast<NameLoc>(note.getLocation())) {
      error.node = named.getName().str();
      break;
    }
  return error;
}

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
