//===- Loss.h - What training makes small -----------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_TRAIN_LOSS_H
#define PARTITA_PASSES_TRAIN_LOSS_H

#include "dialects/Graph/Formula.h"
#include "partita/Train/Spec.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace partita::train {

/// Scalars. The loss of several micro-batches is the sum of `value` divided by that of
/// `counted`, or, where that is null, by their number.
struct BuiltLoss {
  mlir::Value value;
  mlir::Value counted; ///< the share of labels that count; of an evaluation their number
};

/// Adds to `main` the argument of the labels, behind its other inputs, and the ops of the
/// loss. A mean over labels that count has `counted` where `isPart` says that `main` is
/// one of several micro-batches; else `value` is the mean. An error says which output
/// there is not, or what does not fit it.
Expected<BuiltLoss> buildLoss(mlir::func::FuncOp main, const Loss &loss, bool isPart);

/// Adds the same to `main` for an evaluation, and behind the labels an argument with a
/// weight for each of their rows (rowWeightsInput): `value` is the mean over what counts
/// in rows of weight 1, in f32 at least, whatever the reduction, and 0 where nothing
/// counts. A loss that the model computes, or that has no rows, is as it is, without
/// `counted`.
Expected<BuiltLoss> buildEvaluatedLoss(mlir::func::FuncOp main, const Loss &loss);

/// Replaces every log-softmax, once nothing is differentiated any more, by the ops that
/// it is made of: a row op needs its whole row on every rank, a maximum and a sum do not.
/// So logits that are split along a vocabulary stay so up to the loss and back.
void expandLogSoftmax(mlir::ModuleOp module);

} // namespace partita::train

#endif // PARTITA_PASSES_TRAIN_LOSS_H
