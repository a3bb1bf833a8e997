//===- Optimizer.h - The update of the parameters ---------------*- C++ -*-===//
//
// An optimizer is one pass over memory: per parameter it reads the gradient, the state
// and the parameter, and writes state and parameter. With mixed precision the parameter
// is an f32 master copy, and the copy that the model computes with is written too; that
// is the 12 bytes of state and 2 + 2 of weight and gradient of ZeRO (Rajbhandari et al.
// 2020, §3: K = 12 for Adam).
//
// Sharding is not a parameter here: give the parameters that one rank holds.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COST_OPTIMIZER_H
#define PARTITA_COST_OPTIMIZER_H

#include "partita/Topology/Topology.h"

namespace partita {

enum class OptimizerKind : uint8_t { Sgd, Momentum, Adagrad, Adam, AdamW, Lamb };

/// f32 values that the optimizer keeps per parameter, the parameter itself excluded.
int stateValues(OptimizerKind kind);

struct TrainingMemory {
  double weights = 0;   ///< that the model computes with
  double gradients = 0; ///< of their type
  double optimizer = 0; ///< state, and the f32 master copy if the weights are not f32
  double total() const { return weights + gradients + optimizer; }
};

/// Bytes for `parameters` of type `type`.
TrainingMemory trainingMemory(OptimizerKind kind, DType type, double parameters);

/// Bytes that an update of `parameters` reads and writes.
double updateBytes(OptimizerKind kind, DType type, double parameters);

/// Seconds of an update in one kernel; LAMB takes two passes, as its norms are needed
/// before anything is written.
double updateSeconds(const Device &device, OptimizerKind kind, DType type,
                     double parameters);

} // namespace partita

#endif // PARTITA_COST_OPTIMIZER_H
