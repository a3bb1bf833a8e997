//===- Manual.h - Graphs that are written per rank --------------*- C++ -*-===//
#ifndef PARTITA_DIALECTS_DIST_MANUAL_H
#define PARTITA_DIALECTS_DIST_MANUAL_H

#include "dialects/Dist/Dist.h"

#include "mlir/IR/BuiltinOps.h"

namespace partita::dist {

/// The first `dist.manual` of a function or module, in program order; null: nothing in it
/// is written per rank. Functions that ops of a function run are not looked into.
ManualOp findManual(mlir::Operation *op);

/// Layout of the tensor outside of an op that enters or leaves, which its strategy
/// splits as that of any op.
Layout outerLayout(ManualOp op);

/// Follows over which axes the values of a graph that is written per rank may differ
/// (docs/manual.md), and that what must be one tensor is: what enters and leaves,
/// outputs, conditions; that no strategy splits what differs. As a verifier, of level L0
/// to L2, in a sentence that names the op that asks and the op from which the values
/// differ.
mlir::LogicalResult verifyManual(mlir::ModuleOp module);

/// The ops of a function, and of those that it runs, that read what may differ between
/// ranks: no strategy may split them. A failure is as of verifyManual.
mlir::FailureOr<llvm::DenseSet<mlir::Operation *>>
localOps(mlir::FunctionOpInterface function);

/// Before a function is differentiated: where an op reads something that is the same
/// along axes over which another operand may differ, it reads it by a *spread*, a
/// `dist.manual` from a partial sum over those axes to the same. The rank's part is what
/// it was; as that of a sum, its cotangents add up. An error is as of verifyManual.
mlir::LogicalResult spreadManual(mlir::FunctionOpInterface function);
inline bool isSpread(ManualOp op) {
  return op.getFrom() == op.getTo() && !op.getPieces();
}

} // namespace partita::dist

#endif // PARTITA_DIALECTS_DIST_MANUAL_H
