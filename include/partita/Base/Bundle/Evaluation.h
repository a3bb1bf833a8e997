//===- Evaluation.h - Names of what evaluates a training step ---*- C++ -*-===//
//
// A bundle of a training step may have an entry more for each that it has, which gives
// the loss alone, on the states of the step (docs/training.md). The compiler makes it,
// and the runtime finds it by these names.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_BUNDLE_EVALUATION_H
#define PARTITA_BASE_BUNDLE_EVALUATION_H

#include <string>
#include <string_view>

namespace partita {

/// The entry beside a step of one entry, which no request chooses by shapes.
inline constexpr const char *evaluationEntry = "evaluate";

/// The entry beside that of a step: "evaluate" for "main", "evaluate batch=8" for
/// "batch=8".
inline std::string evaluationName(std::string_view step) {
  std::string name = evaluationEntry;
  return step == "main" ? name : name + " " + std::string(step);
}
inline bool isEvaluation(std::string_view entry) {
  return entry == evaluationEntry ||
         entry.starts_with(std::string(evaluationEntry) + " ");
}
/// An input of it, absent where a model computes its loss: 1 for a row of the batch that
/// counts, else 0.
inline constexpr const char *rowWeightsInput = "row_weights";
/// The output that comes with such an input: how many labels or numbers count, over which
/// the loss is a mean.
inline constexpr const char *countedOutput = "counted";

} // namespace partita

#endif // PARTITA_BASE_BUNDLE_EVALUATION_H
