//===- Loss.h - What training makes small -----------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_TRAIN_LOSS_H
#define PARTITA_PASSES_TRAIN_LOSS_H

#include "dialects/Graph/Formula.h"
#include "partita/Train/Spec.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace partita::train {

/// Scalars. The loss of several micro-batches is the sum of `value` divided by that of
/// `counted`, or, where that is null, by their number.
struct BuiltLoss {
  mlir::Value value;
  mlir::Value counted; ///< the share of labels that count
};

/// Adds to `main` the argument of the labels, behind its other inputs, and the ops of the
/// loss. A mean over labels that count has `counted` where `isPart` says that `main` is
/// one of several micro-batches; else `value` is the mean. An error says which output
/// there is not, or what does not fit it.
Expected<BuiltLoss> buildLoss(mlir::func::FuncOp main, const Loss &loss, bool isPart);

} // namespace partita::train

#endif // PARTITA_PASSES_TRAIN_LOSS_H
