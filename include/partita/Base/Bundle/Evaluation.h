//===- Evaluation.h - Names of what evaluates a training step ---*- C++ -*-===//
//
// A bundle of a training step may have a second entry, which gives the loss alone, on the
// states of the step (docs/training.md). The compiler makes it, and the runtime finds it
// by these names.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_BUNDLE_EVALUATION_H
#define PARTITA_BASE_BUNDLE_EVALUATION_H

namespace partita {

/// The entry, which no request chooses by shapes. Names of other entries are "main", or
/// have a "=".
inline constexpr const char *evaluationEntry = "evaluate";
/// An input of it, absent where a model computes its loss: 1 for a row of the batch that
/// counts, else 0.
inline constexpr const char *rowWeightsInput = "row_weights";
/// The output that comes with such an input: how many labels or numbers count, over which
/// the loss is a mean.
inline constexpr const char *countedOutput = "counted";

} // namespace partita

#endif // PARTITA_BASE_BUNDLE_EVALUATION_H
