//===- LiftConversions.h - Conversions as services of values ----*- C++ -*-===//
#ifndef PARTITA_PASSES_SHARD_LIFTCONVERSIONS_H
#define PARTITA_PASSES_SHARD_LIFTCONVERSIONS_H

#include "partita/Base/Error.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace partita {

/// A copy of a planned module in which each conversion is an entry of the `dist.served`
/// of what it converts, and ops that a split program has beside an op of the model are
/// gone: partita-insert-reshards makes the module of it again. A module without
/// conversions is copied as it is. The module has passed its gate.
Expected<mlir::OwningOpRef<mlir::ModuleOp>> withoutConversions(mlir::ModuleOp planned);

} // namespace partita

#endif // PARTITA_PASSES_SHARD_LIFTCONVERSIONS_H
