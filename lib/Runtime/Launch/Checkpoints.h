//===- Checkpoints.h - Generations of a run on data -------------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_CHECKPOINTS_H
#define PARTITA_LIB_RUNTIME_LAUNCH_CHECKPOINTS_H

#include "DataFeed.h"

#include "partita/Runtime/CheckpointSession.h"

#include <chrono>

namespace partita::runtime {

/// Identity of this run, on the root: see Manifest::run.
Expected<RunIdentity> identityOf(const RunParts &parts, const DataFeed &feed);

/// Differences of a run from the one that wrote a generation. An error, which names
/// both values, at the first difference that `allowed` does not name, or that may not be
/// allowed.
Expected<std::vector<AllowedChange>> changesOf(const Manifest &was,
                                               const std::string &path,
                                               const RunIdentity &is,
                                               const std::vector<std::string> &allowed);

/// The first difference of the specifications, on which the states depend, as a sentence;
/// "": there is none.
std::string differenceText(const Manifest &was, const RunIdentity &is);

/// Where a run is: behind so many steps, the next of which takes rows from there on.
struct RunPlace {
  int64_t step = 0;
  DataCursor cursor;
};

/// A step that is done, as far as generations ask.
struct StepOutcome {
  RunPlace place;
  /// Tells if the loss and all else that the step gives is finite, as the root sees it.
  bool isFinite = true;
  std::optional<double> evaluated; ///< loss of rows that are held out; of the root
  bool owesEvaluation = false;     ///< see Manifest
};

/// The generations of one run on data. All processes make the same calls.
class Checkpoints {
public:
  /// Locks the folder and loads the newest generation that is whole, if the run goes on;
  /// `place` becomes where that one is. `evaluatedOn` tells the rows of evaluations.
  static Expected<std::unique_ptr<Checkpoints>> open(RunParts &parts,
                                                     const DataFeed &feed,
                                                     std::string evaluatedOn,
                                                     const Print &print, RunPlace &place);
  /// To be called behind each step: saves if the step is finite, and a save is due or the
  /// evaluated loss is the least so far and asked to be kept. `log`: a file that a
  /// generation must not be ahead of; −1: none. The signal by which all are to stop, or
  /// 0.
  Expected<int> behind(const StepOutcome &done, int log);
  /// Tells if the generation that the run goes on with owes an evaluation.
  bool owesEvaluation() const { return owes; }
  /// Saves that step once more, whose evaluation has been made now. The result is that of
  /// `behind`.
  Expected<int> settle(const RunPlace &place, std::optional<double> evaluated, int log);
  /// Tells if this process wants a save since its time has come; the root's clock counts.
  bool isTime() const;
  /// Tells if a save is under way, for all processes alike.
  bool isSaving() const { return saver->isSaving(); }
  /// Whether the step of the last call of `behind` was finite, for all processes alike.
  bool wasFinite() const { return isFinite; }
  /// Waits for the save under way, of a run that ends with an error.
  Expected<void> finishSaving();
  /// Saves what is not saved and may be, and waits for it. Every failure is an error.
  Expected<void> close(const RunPlace &place, int log);

private:
  Checkpoints(RunParts &parts, const Print &print, CheckpointFolder folder)
      : parts(parts), options(parts.options.data.checkpoints), print(print),
        folder(std::move(folder)) {}
  Expected<void> begin(const DataFeed &feed, RunPlace &place);
  Expected<void> restore(RunPlace &place);
  Expected<void> fitBest(const Restored &found) const;
  Expected<void> checkNoBest() const;
  Expected<void> findBest(const std::optional<BestStep> &told);
  std::string bestPath() const;
  bool isBest(std::optional<double> evaluated) const;
  Expected<void> keepBest(const RunPlace &place, std::optional<double> evaluated);
  Expected<int> saveIf(const StepOutcome &done, bool mustSave, int log);
  Expected<void> makeSaver();
  Expected<void> save(const RunPlace &place, int log);
  Expected<void> tellFailure(bool isLast);
  void tell(std::string_view text) const;
  void tellInfinite(const RunPlace &place) const;

  using Clock = std::chrono::steady_clock;
  RunParts &parts;
  const CheckpointOptions &options;
  const Print &print;
  CheckpointFolder folder;
  RunIdentity identity; ///< of the root
  std::vector<AllowedChange> changes;
  std::string evaluatedOn;
  /// Least loss so far, and before the last save for its loss; of the root.
  std::optional<BestStep> best, bestBefore;
  bool isBestStep = false; ///< the last step, for all processes alike
  std::unique_ptr<CheckpointSaver> saver;
  Clock::time_point begun = Clock::now(); ///< the last save
  int64_t restoredStep = -1;              ///< −1: the run began at step 0
  bool isFinite = true;                   ///< the last step
  bool owes = false;                      ///< an evaluation, likewise
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_CHECKPOINTS_H
