//===- Recompute.h - Training steps that fit into memory --------*- C++ -*-===//
//
// A step that needs more than a device has is planned without a limit first. Of that plan
// the cheapest stretches are chosen whose recompute fits (Search/Recompute.h); with them
// the step is derived, planned under the limit, and formed anew. What it then needs is
// that of its tasks, scratch and pads included. It says how far the choice was off: the
// limit that choices are made for is moved until one fits and no cheaper one does.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_PIPELINES_RECOMPUTE_H
#define PARTITA_PASSES_PIPELINES_RECOMPUTE_H

#include "partita/Search/Recompute.h"
#include "passes/Pipelines/Compiler.h"

#include <memory>

namespace partita {

/// What a plan that is followed computes again.
Expected<void> takeRecompute(CompileOptions &options);

/// Whether options ask for a step of one program under a limit, whose specification
/// leaves open what is computed again.
bool choosesRecompute(const CompileOptions &options);

/// The choices of one step, as it is planned without a limit.
class RecomputeChoices {
public:
  static Expected<std::unique_ptr<RecomputeChoices>> create(const CompileOptions &options,
                                                            const Progress &progress);

  std::optional<search::RecomputeChoice> choose(int64_t limit) const {
    return space->choose(limit);
  }
  int64_t least() const { return space->least(); }
  int64_t before() const { return space->before(); }
  /// Of one run, predicted; and what no plan is faster than, where that is known.
  double seconds = 0;
  std::optional<double> lowerBoundSeconds;

private:
  CompileOptions options;
  std::unique_ptr<Compiler> compiler;
  std::unique_ptr<search::RecomputeSpace> space;
};

/// Adds to the options what must be computed again so that the program fits, if anything,
/// and says so in a note. An error says what is needed, what there is, and what takes
/// most.
Expected<void> chooseRecompute(CompileOptions &options, std::vector<std::string> &notes,
                               const Progress &progress);

/// "recompute of 12 nodes in 3 stretches: …", of a choice.
std::string recomputeText(const search::RecomputeChoice &choice, double seconds);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_RECOMPUTE_H
