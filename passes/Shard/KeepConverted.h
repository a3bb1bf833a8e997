//===- KeepConverted.h - Communication that recompute leaves out -*- C++ -*-===//
//
// An op that is computed again may be asked not to repeat the communication behind it
// (`keep communication` of #dist.recompute): what the forward pass has received stays in
// memory, and is read in place of what the copy would be converted to. What then has no
// reader is not repeated:
//
//     %p = contract …   %h = reshard %p   …   %h2 = reshard %p {backward}   f(%h2)
//     %p = contract …   %h = reshard %p   …   f(%h)
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_SHARD_KEEPCONVERTED_H
#define PARTITA_PASSES_SHARD_KEEPCONVERTED_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"

namespace partita {

/// Replaces conversions of copies by those of the ops that they repeat, where an equal
/// one is there and it communicates. Then marks say no more than that an op is computed
/// again, and ops of which no copy is needed have none.
void keepConverted(mlir::func::FuncOp function,
                   const llvm::DenseSet<mlir::Operation *> &communicating);

} // namespace partita

#endif // PARTITA_PASSES_SHARD_KEEPCONVERTED_H
