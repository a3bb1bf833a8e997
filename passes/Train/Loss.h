//===- Loss.h - What training makes small -----------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_TRAIN_LOSS_H
#define PARTITA_PASSES_TRAIN_LOSS_H

#include "dialects/Graph/Formula.h"
#include "partita/Train/Spec.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace partita::train {

/// Adds to `main` the argument of the labels, behind its other inputs, and the ops of the
/// loss, a scalar. An error says which output there is not, or what does not fit it.
Expected<mlir::Value> buildLoss(mlir::func::FuncOp main, const Loss &loss);

} // namespace partita::train

#endif // PARTITA_PASSES_TRAIN_LOSS_H
