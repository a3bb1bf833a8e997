//===- Notes.h - The second place of an error -------------------*- C++ -*-===//
//
// An error is reported at one op. Where another op is part of it, a note says where that
// one stands.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_DIALECTS_INTERFACES_NOTES_H
#define PARTITA_DIALECTS_INTERFACES_NOTES_H

#include "partita/Base/Error.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Value.h"

namespace partita {

/// `location` with the subjects of an error of a library, for those who turn diagnostics
/// into errors again: metadata of a fused location.
mlir::Location withSubjects(mlir::Location location, const Error &error);
/// The error that a diagnostic tells of, with those subjects; without them the node is
/// that of its first note, if it has one.
Error errorOf(mlir::Diagnostic &diagnostic);

/// Where `value` is made or, for an argument, declared. `what` names it in the note.
mlir::InFlightDiagnostic noteOrigin(mlir::InFlightDiagnostic diagnostic,
                                    mlir::Value value,
                                    const llvm::Twine &what = "the value");

/// Where each operand of `op` comes from, by number, if it has several: for errors of ops
/// whose operands may not fit each other.
mlir::InFlightDiagnostic noteOperands(mlir::InFlightDiagnostic diagnostic,
                                      mlir::Operation *op);

} // namespace partita

#endif // PARTITA_DIALECTS_INTERFACES_NOTES_H
