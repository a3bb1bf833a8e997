//===- Inputs.h - Inputs that reach all of a program ------------*- C++ -*-===//
//
// A check on random inputs sees what they reach: an index must be able to name every row
// of what it indexes, and a mask must be one.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_REFERENCE_INPUTS_H
#define PARTITA_PASSES_REFERENCE_INPUTS_H

#include "passes/Reference/Evaluate.h"

namespace partita {

/// What an integer argument is, as its users see it: values in [low, high).
struct InputRange {
  int64_t low = 0, high = 4;
  bool isIndex = false;
};

/// Follows the argument through what only moves, selects or converts its elements, and
/// through additions of one constant, to its users: one that reads it as an index limits
/// it to the dim's size, several to the smallest; without one it is a mask, 0 or 1, if it
/// is compared, counted or converted to bool or float, and a small number otherwise.
InputRange inputRange(mlir::BlockArgument argument);

/// One tensor per argument, the same for the same seed: floats in [-1, 1), integers over
/// their range; of an index, both ends are among the values.
Tensors drawInputs(mlir::func::FuncOp function, uint64_t seed);

} // namespace partita

#endif // PARTITA_PASSES_REFERENCE_INPUTS_H
