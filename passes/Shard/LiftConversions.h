//===- LiftConversions.h - Conversions as services of values ----*- C++ -*-===//
#ifndef PARTITA_PASSES_SHARD_LIFTCONVERSIONS_H
#define PARTITA_PASSES_SHARD_LIFTCONVERSIONS_H

#include "dialects/Dist/ProgramFlow.h"
#include "partita/Base/Error.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace partita {

/// A planned module without its conversions.
struct Unconverted {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  /// The flow of its function "main", with the strategies; null where "main" has calls,
  /// whose callees then have conversions of their own, or had no conversions.
  std::unique_ptr<dist::ProgramFlow> flow;
  std::vector<Strategy> strategies;
};

/// A copy of a planned module in which each conversion is an entry of the `dist.served`
/// of what it converts, and ops that a split program has beside an op of the model are
/// gone: partita-insert-reshards makes the module of it again. A module without
/// conversions is copied as it is. The module has passed its gate.
Expected<Unconverted> withoutConversions(mlir::ModuleOp planned);

} // namespace partita

#endif // PARTITA_PASSES_SHARD_LIFTCONVERSIONS_H
