//===- EvaluatePipeline.h - Running schedules on host tensors ---*- C++ -*-===//
#ifndef PARTITA_PASSES_REFERENCE_EVALUATEPIPELINE_H
#define PARTITA_PASSES_REFERENCE_EVALUATEPIPELINE_H

#include "passes/Reference/Evaluate.h"

#include "mlir/IR/BuiltinOps.h"

#include <map>

namespace partita {

using NamedTensors = std::map<std::string, HostTensor>;

/// Runs one request of a module of level L4 on the virtual ranks of all its programs:
/// segments by evaluatePartitioned, in the order of the schedules, each program as far as
/// its waits allow. A slot holds what was written there last, so that a wrong order or
/// too few slots give wrong numbers or an error. `given` has the inputs, whole, and the
/// states; the result has the outputs and the states behind the request. An error names
/// what is missing, a program that waits for ever, or a slot that holds nothing.
Expected<NamedTensors> evaluatePipeline(mlir::ModuleOp module, const NamedTensors &given,
                                        const WeightLoader &weights,
                                        const Evaluating &how = {});

} // namespace partita

#endif // PARTITA_PASSES_REFERENCE_EVALUATEPIPELINE_H
