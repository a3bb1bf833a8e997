//===- Differentiate.h - Reverse mode over a program ------------*- C++ -*-===//
//
// The cotangent of a value is ∂loss/∂value. Ops are visited from the last to the first;
// each one with a cotangent states those of its operands (DifferentiableOpInterface), and
// what several users give to one value is added up.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_TRAIN_DIFFERENTIATE_H
#define PARTITA_PASSES_TRAIN_DIFFERENTIATE_H

#include "dialects/Dist/Manual.h"
#include "dialects/Graph/Formula.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace partita::train {

/// A value and its cotangent.
struct Seed {
  mlir::Value value, cotangent;
};

/// Builds, before the terminator of the block, the cotangents of `wanted`, arguments of
/// the block; null where the seeds do not depend on one. Each op that is built has a
/// phase and the name of the node that it differentiates, with "/backward" behind it, or
/// "/weight" where it leads to an argument of `wanted` and to nothing that depends on the
/// other arguments.
///
/// An error names the node that has no gradient, and the argument that needs it.
Expected<graph::Values> differentiate(mlir::Block &block, llvm::ArrayRef<Seed> seeds,
                                      const graph::Values &wanted);

/// The same through a loop or a branch: cotangents of its operands, from those of its
/// results, for the operands in `wanted`. Functions are added to the module; a loop is
/// replaced by one that keeps what was carried into each trip, and the op erased.
Expected<graph::Values> callGradients(mlir::Operation *op, mlir::OpBuilder &builder,
                                      llvm::ArrayRef<mlir::Value> cotangents,
                                      const std::vector<bool> &wanted);

/// The same through communication that is written by hand (docs/manual.md); spreads are
/// there.
Expected<graph::Values> manualGradients(dist::ManualOp op, mlir::OpBuilder &builder,
                                        mlir::Value cotangent);

/// Whether a value can have a cotangent: integers have none, nor have floats of a byte,
/// which are storage.
inline bool isReal(mlir::Value value) {
  mlir::Type element = mlir::getElementTypeOrSelf(value.getType());
  return element.isF64() || element.isF32() || element.isF16() || element.isBF16();
}

} // namespace partita::train

#endif // PARTITA_PASSES_TRAIN_DIFFERENTIATE_H
