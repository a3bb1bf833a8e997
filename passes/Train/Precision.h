//===- Precision.h - A forward pass in a narrower type ----------*- C++ -*-===//
//
// Weights and inputs stay f32 and are cast where they are read; products, convolutions
// and what is elementwise compute in the narrow type. Norms, softmax and reductions
// compute in f32, as sums of many narrow numbers lose digits; what is made of their
// results and of running moments alone does too. Outputs are cast back, so that the loss
// is f32:
//
//     %y = graph.contract %x, %w : (f32, f32) -> f32
//
//     %x2 = graph.cast %x {to = bf16}   %w2 = graph.cast %w {to = bf16}
//     %y = graph.contract %x2, %w2 : (bf16, bf16) -> bf16
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_TRAIN_PRECISION_H
#define PARTITA_PASSES_TRAIN_PRECISION_H

#include "dialects/Graph/Formula.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace partita::train {

/// Makes the f32 ops of `main` compute in `narrow`, f16 or bf16. An error names an op
/// that runs functions: their bodies are not looked into.
Expected<void> computeIn(mlir::func::FuncOp main, mlir::Type narrow);

} // namespace partita::train

#endif // PARTITA_PASSES_TRAIN_PRECISION_H
