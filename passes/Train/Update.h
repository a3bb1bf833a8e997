//===- Update.h - From gradients to the next parameters ---------*- C++ -*-===//
#ifndef PARTITA_PASSES_TRAIN_UPDATE_H
#define PARTITA_PASSES_TRAIN_UPDATE_H

#include "dialects/Graph/Formula.h"
#include "partita/Train/Spec.h"

#include <functional>

namespace partita::train {

/// A parameter that trains: its value before the step and its gradient.
struct Parameter {
  std::string name;
  mlir::Value value, gradient;
  bool decays = true;
};

/// Gives the value before the step of a new state of a parameter, which begins as zeros.
using NewState =
    std::function<mlir::Value(const Parameter &parameter, const std::string &state)>;

/// Says of an update op that it belongs to the parameter, if it reads or makes a tensor
/// of the parameter's shape.
void markParameter(mlir::Operation *op, const Parameter &parameter);

struct Updated {
  mlir::Value rate; ///< f32 scalar
  mlir::Value norm; ///< of all gradients, before clipping; null: not clipped
  std::vector<mlir::Value> parameters; ///< in order
  /// The states that were made, and what becomes of them.
  std::vector<std::pair<std::string, mlir::Value>> states;
};

/// Builds the update of step `step`, an i64 scalar that counts from 1, before the
/// terminator of the block.
Expected<Updated> buildUpdate(mlir::Block &block, const Spec &spec, mlir::Value step,
                              const std::vector<Parameter> &parameters,
                              const NewState &newState);

} // namespace partita::train

#endif // PARTITA_PASSES_TRAIN_UPDATE_H
