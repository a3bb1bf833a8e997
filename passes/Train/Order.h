//===- Order.h - Which op of a training step runs when ----------*- C++ -*-===//
#ifndef PARTITA_PASSES_TRAIN_ORDER_H
#define PARTITA_PASSES_TRAIN_ORDER_H

#include "mlir/IR/Block.h"

namespace partita::train {

/// A cotangent and a weight gradient may need the same (a normalized activation): it is
/// computed once, in the phase that comes first, and in the stage that comes first in the
/// backward pass: that of the op which stands first.
void mergeAcrossPhases(mlir::Block &block);

/// Lets the forward pass find the taps of a maximum over windows, for which the gradient
/// has an op of its own: what the windows read is not read again, and kept for nobody.
void findTapsForward(mlir::Block &block);

/// Sums of the backward pass lose what is 0 in them: a norm's offsets x − mean(x), times
/// what all that is summed has alike, add up to 0. So the cotangent of a mean,
/// −Σ (dy·s + o·k), is −s · Σ dy: it does not wait for k, which is a sum over dy itself,
/// and Σ dy is the gradient of the bias behind the norm. The gradient of a bias in front
/// of a norm is a sum less as much, 0: by rounding it would be noise, of which an
/// optimizer that divides by its size makes whole steps.
void dropCenteredSums(mlir::Block &block);

/// Moves each op of the update to where it can run first: behind its operands, and, as a
/// state is written in place, behind those who read what the state was. So a gradient
/// lives until its update, not until the end. A sum over rows, of a bias or a scale,
/// waits for the kernels in front of the next call, which may have others of the same
/// rows.
void updateEarly(mlir::Block &block);

} // namespace partita::train

#endif // PARTITA_PASSES_TRAIN_ORDER_H
