//===- Recompute.h - Training steps that fit into memory --------*- C++ -*-===//
//
// A step that needs more than a device has may compute something again, run in smaller
// micro-batches, lie in smaller parts, or all of these. It is one list:
//
//     micro-batches   plan                         computed again
//     1, 2, 4, …      under the limit              nothing
//     1, 2, 4, …      any                          what the best answer of a bound does
//     1, 2, 4, …      without a limit, with one    the cheapest stretches that fit
//                     in between
//
// With a choice the step is derived and planned under the limit itself. What it then
// needs says how far the choice was off: the limit that choices are made for is moved
// until one fits and no cheaper one does. Of all that fit the fastest is taken.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_PIPELINES_RECOMPUTE_H
#define PARTITA_PASSES_PIPELINES_RECOMPUTE_H

#include "partita/Search/Recompute.h"
#include "partita/Search/RecomputeBound.h"
#include "passes/Pipelines/Compiler.h"

#include <functional>
#include <map>
#include <memory>

namespace partita {

/// What a plan that is followed computes again, and its number of micro-batches.
void takeChoices(Job &job);

/// Whether a training step's specification leaves open what is computed again.
bool choosesRecompute(const Job &job);

/// Whether a step of one program is asked for under a limit, whose specification leaves
/// open what is computed again, or the number of micro-batches.
bool choosesStep(const Job &job);

/// The choices of one step under a plan with nothing computed again.
class RecomputeChoices {
public:
  /// The plan is of the timing's program, which has so many micro-batches.
  RecomputeChoices(search::Timing &timing, const search::Decided &plan,
                   std::optional<int64_t> accumulation);
  /// Of the step as it is asked for, with so many bytes for each device, or without a
  /// limit.
  static Expected<std::unique_ptr<RecomputeChoices>>
  create(const Job &job, std::optional<int64_t> memory);

  std::optional<search::RecomputeChoice> choose(int64_t limit) const {
    return space.choose(limit);
  }
  int64_t least() const { return space.least(); }
  int64_t before() const { return space.before(); }
  int64_t accumulation() const { return microBatches; }
  std::optional<int64_t> rows; ///< as Compiler::rows
  /// Of one run, predicted; and what no plan is faster than, where that is known.
  double seconds = 0;
  std::optional<double> lowerBoundSeconds;

private:
  int64_t microBatches;
  search::RecomputeSpace space;
};

/// What a step needs and takes with something chosen, once it is derived and planned so.
struct StepForm {
  int64_t bytes = 0;
  std::optional<double> seconds; ///< of one run, where a search says it
  PlanPeak peak;
  /// What the step takes at least with any memory, where a search says it.
  std::optional<double> leastSeconds = std::nullopt;
};

/// Looks for the fastest step that fits.
class StepFitter {
public:
  /// Derives and plans the step with a number of micro-batches (absent: as specified) and
  /// what is computed again, if anything; an error if no plan of it fits.
  using Measure = std::function<Expected<StepForm>(std::optional<int64_t> accumulation,
                                                   const search::RecomputeChoice &)>;
  /// The choices of a step with a number of micro-batches that is planned with so many
  /// bytes, or without a limit.
  using Bases = std::function<Expected<std::unique_ptr<RecomputeChoices>>(
      std::optional<int64_t> accumulation, std::optional<int64_t> memory)>;
  struct Outcome {
    int64_t accumulation = 1;
    search::RecomputeChoice choice; ///< no nodes: nothing is computed again
    StepForm form;
    double seconds = 0; ///< of one run
  };

  /// What the best answer of a bound of any recompute (Search/RecomputeBound.h) repeats
  /// of a step with a number of micro-batches and so many bytes; absent: none was found.
  using Proposals = std::function<Expected<std::optional<search::RecomputeChoice>>(
      std::optional<int64_t> accumulation, int64_t memory)>;
  struct Means {
    Measure measure;
    Bases basesOf;
    Proposals propose;
  };

  /// How many choices are measured of one plan, and of one where a proposal fits.
  struct Most {
    int ofPlan, besideProposals;
  };

  StepFitter(const Job &job, int64_t limit, Most most, Means means);

  /// Looks through the list, those first that promise most, for as long as they promise
  /// to be faster than what is known, `best` or `known`.
  Expected<void> run(std::optional<double> known);

  std::optional<Outcome> best;     ///< the fastest that fits
  std::optional<Outcome> tightest; ///< that needs least
  std::string lastError;           ///< why there was no plan
  std::optional<int64_t> rows;     ///< as Compiler::rows
  /// Why the model cannot be imported with some number of micro-batches.
  std::string refused;
  /// Of a step without a limit, with nothing computed again, in one micro-batch.
  double freeSeconds = 0;
  /// What no step is faster than, whatever is chosen, where that is known.
  std::optional<double> lowerBoundSeconds;
  /// Bytes that steps need with nothing computed again, by number of micro-batches, if
  /// planned, and that the search expects without a limit.
  std::map<int64_t, int64_t> without, withoutLimit;

private:
  /// A step, planned without a limit or with one in between.
  struct Base {
    std::unique_ptr<RecomputeChoices> choices;
    int64_t offset; ///< bytes that a step was expected to need more than it does
  };
  /// Plans to choose from: the one without a limit first, then, if a search decides and
  /// that one needs more than the limit, one with a limit in between, if there is any.
  Expected<std::vector<std::unique_ptr<RecomputeChoices>>>
  plansOf(std::optional<int64_t> accumulation) const;
  /// Measures one of so many micro-batches with nothing computed again; false if no
  /// other one can be better.
  Expected<bool> tryPlain(int64_t count);
  /// Measures what is proposed with the limit; then, as long as that makes a step faster
  /// or none has fit, with less.
  Expected<void> tryProposals(int64_t count);
  bool isGoodEnough(double seconds) const;
  /// A larger number takes no less time, as each op then runs oftener on less.
  bool isBehind(int64_t count) const;
  double fastest() const;
  void tryStretches();
  void tryChoicesOf(const Base &base);
  /// Bytes beyond the limit. `expected`: of one run, in seconds.
  int64_t excess(int64_t count, const search::RecomputeChoice &choice, double expected);
  void keep(Outcome outcome);

  const Job job;
  const bool counts, repeats; ///< what is open
  int64_t limit;
  Most most;
  int measuredInAll = 0;
  Means means;
  std::optional<double> known;
  std::vector<Base> bases;
  std::map<int64_t, double> freeSecondsOf; ///< by number of micro-batches
  /// Of what was measured.
  std::map<std::tuple<int64_t, bool, std::vector<std::vector<std::string>>>, int64_t>
      excessOf;
};

/// A plan is as good as one that is less than this fraction faster.
inline constexpr double goodEnough = 0.005;

/// With a memory limit: adds to the feedback what must be computed again and the number
/// of micro-batches so that the program fits, if anything, and says so in a note. An
/// error says what is needed, what there is, and what takes most.
Expected<void> chooseStep(Job &job, std::vector<std::string> &notes);

/// What a plan says of a choice.
PlanRecompute planRecompute(const search::RecomputeChoice &choice);

/// What `StepFitter::Proposals` are of a step without recompute.
Expected<std::optional<search::RecomputeChoice>>
proposedBy(const Expected<std::optional<search::AnyRecompute>> &any);

/// "recompute: 12 nodes in 3 stretches are computed again, …", of a choice.
std::string recomputeText(const search::RecomputeChoice &choice, double seconds);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_RECOMPUTE_H
