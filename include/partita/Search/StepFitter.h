//===- StepFitter.h - The fastest form of a step that fits ------*- C++ -*-===//
//
// A training step that needs more than a device has may compute something again, run in
// smaller micro-batches, lie in smaller parts, or all of these. A *form* is a number of
// micro-batches and what is computed again; the forms that are planned under the limit
// are one list, of which the fastest that fits is taken:
//
//     micro-batches   computed again
//     1, 2, 4, …      nothing
//     the fastest     what is proposed (RecomputeBound.h) for a *room*, the limit at
//                     first, with the strategies of the step without a limit, or any
//     the same        of two such choices, one that fits and one that does not, the
//                     first one's in the first k layers and the other's in the rest
//     the same        if the plain step fits and is slow: what makes room beside its
//                     strategies, so that a search may take faster ones
//
// A proposal's bytes are those of its step but for some, so that it may not fit, or leave
// room: the room is moved until one fits and no larger one does. Equal layers are alike
// in an answer, so that answers are steps of as many layers apart: k is what lies
// between.
//
// Example: 96 layers that keep all need 100 GiB, and 50 GiB if each repeats its
// attention; the limit is 80 GiB. With k = 39 the step needs 79.7 GiB.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_STEPFITTER_H
#define PARTITA_SEARCH_STEPFITTER_H

#include "partita/Base/Bundle/Plan.h"
#include "partita/Search/RecomputeBound.h"

#include <array>
#include <chrono>
#include <functional>
#include <limits>
#include <map>

namespace partita::search {

struct StepForm {
  int64_t microBatches = 1; ///< 1 where the specification says the number
  RecomputeChoice recompute = {};
  bool operator==(const StepForm &) const = default;
};

/// Needs and time of a step of a form, planned under the limit.
struct FormedStep {
  int64_t bytes = 0;
  std::optional<double> seconds = std::nullopt; ///< of one run, where a search says it
  PlanPeak peak = {};
  /// Bound of the step with any memory, where a search says it.
  std::optional<Bound> freeBound = std::nullopt;
};

/// A step planned without a limit, with nothing computed again.
struct FreeStep {
  int64_t bytes = 0;                         ///< predicted
  double seconds = 0;                        ///< predicted, of one run
  std::optional<Bound> bound = std::nullopt; ///< where that is known
  /// Rows of the batch, where the number of micro-batches is chosen.
  std::optional<int64_t> rows = std::nullopt;
};

/// Steps of which a proposal is.
struct ProposalSpace {
  /// Strategies of a plan with nothing computed again, without a limit or under it, or
  /// any. Those of a plan make a small problem.
  enum class Of { FreePlan, PlainPlan, AnyPlan };
  Of of = Of::AnyPlan;
  bool repeatsNecks = false, choosesBirths = true; ///< as ModelOptions
};

/// The door to the program, of which forms are derived and planned.
class FormSource {
public:
  virtual ~FormSource() = default;
  /// An error if no plan of the form fits.
  virtual Expected<FormedStep> formed(const StepForm &form) = 0;
  virtual Expected<FreeStep> unlimited(int64_t microBatches) = 0;
  /// Asks proposeRecompute with so many bytes, once `unlimited` was asked for that
  /// number, and `formed` for a plain plan that fits. Absent, too, where the strategies
  /// of that plan are not known.
  virtual Expected<std::optional<RecomputeChoice>>
  propose(int64_t microBatches, int64_t bytes, ProposalSpace space) = 0;
};

/// Numbers that steer the fitter, each with what it trades.
struct FitterLimits {
  /// Choices that are planned for each number of micro-batches: up to a second each for
  /// GPT-2, ten for GPT-3.
  int proposals = 6;
  /// Likewise, of those with two kinds of layers.
  int between = 6;
  /// Parts of the limit that are freed beside a plain plan's strategies: a small
  /// problem, and a plan of what it proposes, each.
  std::array<double, 2> freed = {0.25, 0.125};
  /// Rooms that are asked for each number of micro-batches: a bound each.
  int rooms = 8;
  /// Numbers of micro-batches, the fastest without a limit first, of which choices are
  /// tried once one fits.
  int counts = 2;
};

/// A plan is as good as one that is less than this fraction faster.
inline constexpr double goodEnough = 0.005;

/// Numbers that divide so many rows, ascending.
std::vector<int64_t> divisorsOf(int64_t rows);

/// "12 nodes are computed again, which takes 62.0 µs (1.4% of a step)", of a step of so
/// many seconds.
std::string textOf(const RecomputeChoice &choice, double seconds);

/// "accumulation: 4 micro-batches of 2 rows", of a batch of so many rows.
std::string textOf(int64_t microBatches, int64_t rows);

/// Looks for the fastest form of a step that fits.
class StepFitter {
public:
  struct Wanted {
    bool choosesMicroBatches = false, choosesRecompute = false;
    int64_t limit = 0; ///< bytes of a device
    FitterLimits most = {};
    StopFlag enough = {}; ///< raised: no more forms are tried
    /// Seconds after which no more are tried, but for what frees a part of the limit.
    double timeLimit = std::numeric_limits<double>::infinity();
    std::function<void(const std::string &)> progress = [](const std::string &) {};
    /// Hears a line about each form that is planned.
    std::function<void(const std::string &)> log = {};
  };
  struct Outcome {
    StepForm form;
    FormedStep step;
    double seconds = 0; ///< of one run
  };

  StepFitter(FormSource &source, Wanted wanted)
      : source(source), wanted(std::move(wanted)) {}

  /// Looks through the list, those first that promise most, for as long as they promise
  /// to be faster than what is known, `best` or `known`.
  Expected<void> run(std::optional<double> known);

  std::optional<Outcome> best;     ///< the fastest that fits
  std::optional<Outcome> tightest; ///< that needs least
  std::string lastError;           ///< why there was no plan
  std::optional<int64_t> rows;     ///< as FreeStep::rows
  /// Why the model cannot be imported with some number of micro-batches.
  std::string refused;
  /// Time of a step without a limit, with nothing computed again, in one micro-batch.
  double freeSeconds = 0;
  /// Likewise under the limit, if it fits and a search says it.
  std::optional<double> plainSeconds;
  /// Bound of steps with any number of micro-batches, if that is chosen; absent: unknown.
  std::optional<Bound> bound;
  /// Bytes that steps need with nothing computed again, by number of micro-batches, if
  /// planned, and that the search expects without a limit.
  std::map<int64_t, int64_t> without, withoutLimit;

private:
  /// A choice, and by how many bytes it is above the limit.
  struct Tried {
    RecomputeChoice choice;
    int64_t excess = 0;
  };

  /// Plans one of so many micro-batches with nothing computed again; false if no other
  /// one can be better.
  Expected<bool> tryPlain(int64_t count);
  Expected<void> tryRecompute(int64_t count, ProposalSpace space);
  /// Tries proposals of several spaces, one after the other.
  Expected<void> tryProposals(int64_t count);
  /// Tries what frees a part of what the plain step needs, with its strategies.
  Expected<void> tryFreeing(int64_t count);
  /// The first one's in the first layers, the second one's in the rest.
  void tryBetween(int64_t count, const Tried &fits, const Tried &exceeds);
  bool isGoodEnough(double seconds) const;
  bool isLate() const;
  /// A larger number takes no less time, as each op then runs oftener on less.
  bool isBehind(int64_t count) const;
  double fastest() const;
  /// Bytes beyond the limit, of a choice that is planned once.
  int64_t excess(int64_t count, const RecomputeChoice &choice);
  void keep(Outcome outcome);
  /// Plans a form, and logs what it needs and takes.
  Expected<FormedStep> plan(const StepForm &form, double expected);

  FormSource &source;
  const Wanted wanted;
  const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  std::optional<double> known;
  std::map<int64_t, double> freeSecondsOf; ///< by number of micro-batches
  std::map<std::pair<int64_t, std::vector<std::string>>, int64_t> excessOf;
  int measured = 0; ///< of the choices of one number of micro-batches
};

} // namespace partita::search

#endif // PARTITA_SEARCH_STEPFITTER_H
