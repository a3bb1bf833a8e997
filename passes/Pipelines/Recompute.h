//===- Recompute.h - Training steps that fit into memory --------*- C++ -*-===//
//
// A step that needs more than a device has may compute something again, lie in smaller
// parts, or both. So it is planned without a limit, and with one in between: of each of
// these plans the cheapest stretches are chosen whose recompute fits
// (Search/Recompute.h). With them the step is derived and planned under the limit itself.
// What it then needs says how far the choice was off: the limit that choices are made for
// is moved until one fits and no cheaper one does. Of all that fit, the plan without
// recompute among them, the fastest is taken.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_PIPELINES_RECOMPUTE_H
#define PARTITA_PASSES_PIPELINES_RECOMPUTE_H

#include "partita/Search/Recompute.h"
#include "passes/Pipelines/Compiler.h"

#include <functional>
#include <map>
#include <memory>

namespace partita {

/// What a plan that is followed computes again.
Expected<void> takeRecompute(CompileOptions &options);

/// Whether options ask for a step of one program under a limit, whose specification
/// leaves open what is computed again.
bool choosesRecompute(const CompileOptions &options);

/// The choices of one step, as it is planned with so many bytes for each device, or
/// without a limit.
class RecomputeChoices {
public:
  static Expected<std::unique_ptr<RecomputeChoices>> create(const CompileOptions &options,
                                                            std::optional<int64_t> memory,
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

/// What a step needs and takes with something computed again, once it is derived and
/// planned so.
struct RecomputeForm {
  int64_t bytes = 0;
  std::optional<double> seconds; ///< of one run, where a search says it
  PlanPeak peak;
};

/// Looks for the fastest step that fits.
class RecomputeFitter {
public:
  /// Derives and plans the step with a choice; an error if no plan of it fits.
  using Measure = std::function<Expected<RecomputeForm>(const search::RecomputeChoice &)>;
  struct Outcome {
    search::RecomputeChoice choice;
    RecomputeForm form;
    double seconds = 0; ///< of one run
  };

  RecomputeFitter(int64_t limit, int mostMeasured, Measure measure,
                  const Progress &progress)
      : limit(limit), mostMeasured(mostMeasured), measure(std::move(measure)),
        progress(progress) {}

  /// Tries choices of these plans, those first that promise most, for as long as they
  /// promise to be faster than what is known, `best` or `seconds`. A step without
  /// recompute was expected to need `offset` bytes more than it does.
  void run(const std::vector<std::unique_ptr<RecomputeChoices>> &bases, int64_t offset,
           std::optional<double> seconds);

  std::optional<Outcome> best;     ///< the fastest that fits
  std::optional<Outcome> tightest; ///< that needs least
  std::string lastError;           ///< why there was no plan

private:
  void tryChoicesOf(const RecomputeChoices &base, int64_t offset);
  /// Bytes beyond the limit.
  int64_t excess(const RecomputeChoices &base, const search::RecomputeChoice &choice);

  int64_t limit;
  int mostMeasured;
  Measure measure;
  const Progress &progress;
  /// Of what was measured.
  std::map<std::vector<std::vector<std::string>>, int64_t> excessOf;
};

/// A plan is as good as one that is less than this fraction faster.
inline constexpr double goodEnough = 0.005;

/// Plans to choose from for steps that must fit into so many bytes: the one without a
/// limit first, then, if a search decides and that one needs more, one with a limit in
/// between, if there is any.
Expected<std::vector<std::unique_ptr<RecomputeChoices>>>
recomputeBases(const CompileOptions &options, int64_t limit, const Progress &progress);

/// Adds to the options what must be computed again so that the program fits, if anything,
/// and says so in a note. An error says what is needed, what there is, and what takes
/// most.
Expected<void> chooseRecompute(CompileOptions &options, std::vector<std::string> &notes,
                               const Progress &progress);

/// "recompute of 12 nodes in 3 stretches: …", of a choice.
std::string recomputeText(const search::RecomputeChoice &choice, double seconds);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_RECOMPUTE_H
