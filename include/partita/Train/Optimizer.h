//===- Optimizer.h - Update rules as formulas -------------------*- C++ -*-===//
//
// An optimizer is a list of named formulas of the payload language (Scalar/Payload.h).
// Values are known by name:
//
//     p        the parameter           g      its gradient, accumulated and clipped
//     t        the step, from 1        rate   the learning rate of the step
//     m, v, …  states of the rule, tensors like the parameter that begin as zeros
//     beta1, … numbers of the rule; decay is 0 for parameters without weight decay
//
// A line gives its value a name, which those behind it see; what it calls p, or a state,
// is the next step's. Nothing here knows of tensors or devices.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TRAIN_OPTIMIZER_H
#define PARTITA_TRAIN_OPTIMIZER_H

#include "partita/Train/Spec.h"

#include <map>

namespace partita::train {

struct Line {
  std::string name, formula;
  /// The formula's element is squared and summed over the whole tensor; the value is the
  /// root: a scalar.
  bool isNorm = false;
};

struct UpdateRule {
  std::vector<std::string> states;
  /// Of the step alone: scalars of t, in f64.
  std::vector<Line> once;
  /// Per parameter.
  std::vector<Line> lines;
  std::map<std::string, double> numbers;
};

/// The rule of an optimizer. Sources: PyTorch's torch.optim of SGD, Adam, AdamW and
/// Adagrad; LAMB of You et al., 2020, algorithm 2, with bias correction and without a
/// bound on the norm of weights.
UpdateRule updateRule(const Optimizer &optimizer);

/// The learning rate of step t, in f64: a formula of t alone.
std::string rateFormula(double rate, const Schedule &schedule);

} // namespace partita::train

#endif // PARTITA_TRAIN_OPTIMIZER_H
