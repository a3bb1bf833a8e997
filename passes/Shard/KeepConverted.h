//===- KeepConverted.h - Communication that recompute leaves out -*- C++ -*-===//
//
// An op that the backward pass repeats (graph.repeats) may be asked not to repeat the
// communication behind it: what the forward pass has received stays in memory, and the
// readers of the copy's conversion read that. What then has no reader is not repeated:
//
//     %p = contract …   %h = reshard %p   …   %p2 = contract …   %h2 = reshard %p2 f(%h2)
//     %p = contract …   %h = reshard %p   …   f(%h)
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_SHARD_KEEPCONVERTED_H
#define PARTITA_PASSES_SHARD_KEEPCONVERTED_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"

namespace partita {

/// Replaces conversions of copies by those of the ops they repeat, where an equal one is
/// there and it communicates, and erases what has no reader any more. Removes the
/// attributes that say so.
void keepConverted(mlir::func::FuncOp function,
                   const llvm::DenseSet<mlir::Operation *> &communicating);

} // namespace partita

#endif // PARTITA_PASSES_SHARD_KEEPCONVERTED_H
