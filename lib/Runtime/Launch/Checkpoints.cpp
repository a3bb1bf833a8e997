//===- Checkpoints.cpp - Generations of a run on data ---------------------===//
#include "Checkpoints.h"

#include "MpiRun.h"
#include "RunLogs.h"
#include "StopSignal.h"
#include "partita/Base/Units.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

using namespace partita;
using namespace partita::runtime;

void Checkpoints::tell(std::string_view text) const {
  if (parts.session.isRoot())
    print(text);
}

Expected<std::unique_ptr<Checkpoints>>
Checkpoints::open(RunParts &parts, const DataFeed &feed, std::string evaluatedOn,
                  const Print &print, RunPlace &place) {
  const std::string &path = parts.options.data.checkpoints.folder;
  if (parts.session.states().empty())
    return makeError("the bundle has no states for '" + path +
                     "'; compile it with --state or --train");
  const char *given = std::getenv(mpi::incarnationVariable);
  auto folder = CheckpointFolder::open(parts.session, path,
                                       given ? parseIncarnation(given).value_or(0) : 0);
  if (!folder)
    return tl::unexpected(folder.error());
  parts.logs.line("writes as incarnation " + incarnationText(folder->number()));
  std::unique_ptr<Checkpoints> made(new Checkpoints(parts, print, std::move(*folder)));
  made->evaluatedOn = std::move(evaluatedOn);
  if (auto ok = made->begin(feed, place); !ok)
    return tl::unexpected(ok.error());
  return made;
}

/// A run that is not to go on takes an empty folder only: it would overwrite another's.
Expected<void> Checkpoints::begin(const DataFeed &feed, RunPlace &place) {
  std::string problem;
  if (parts.session.isRoot()) {
    auto own = identityOf(parts, feed);
    auto there = generationsOf(folder.path());
    if (!own)
      problem = own.error().message;
    else if (!there)
      problem = there.error().message;
    else if (!options.resume && !there->empty())
      problem = "'" + folder.path() +
                "' has generations already, the newest behind step " +
                std::to_string(there->front().step) +
                "; --resume goes on with it, or give another folder";
    else if (auto ok = there->empty() ? checkNoBest() : Expected<void>(); !ok)
      problem = ok.error().message;
    else
      identity = std::move(*own);
  }
  auto agreed = agreeOnText(parts.session, std::move(problem));
  if (!agreed)
    return tl::unexpected(agreed.error());
  if (!agreed->empty())
    return makeError(*agreed);
  if (options.resume)
    if (auto ok = restore(place); !ok)
      return ok;
  if (restoredStep < 0 && !options.weightsFrom.empty()) {
    if (auto ok = loadWeights(parts.session, options.weightsFrom, print); !ok)
      return ok;
    tell("begins with the weights of '" + options.weightsFrom + "'");
  }
  return makeSaver();
}

Expected<void> Checkpoints::restore(RunPlace &place) {
  auto fits = [&](const Restored &found) -> Expected<void> {
    auto differences = changesOf(found.manifest, found.path, identity, options.allowed);
    if (!differences)
      return tl::unexpected(differences.error());
    if (auto ok = fitBest(found); !ok)
      return ok;
    changes = found.manifest.changes;
    for (AllowedChange &change : *differences) {
      tell("goes on with another " + change.name + ": " + change.was + " becomes " +
           change.is);
      changes.push_back(std::move(change));
    }
    return {};
  };
  auto explain = [&](const Manifest &was) { return differenceText(was, identity); };
  auto restored = restoreNewest(parts.session, folder.path(), print, fits, explain);
  if (!restored)
    return tl::unexpected(restored.error());
  if (!*restored) {
    tell("'" + folder.path() + "' has no generation yet: begins at step 0");
    return {};
  }
  const Restored &found = **restored;
  place = {found.manifest.step, found.manifest.cursor};
  owes = found.manifest.owesEvaluation;
  restoredStep = place.step;
  tell("goes on behind step " + std::to_string(place.step) + " of '" + found.path +
       "': " + bytesText(static_cast<double>(found.bytes)) + " read by " +
       std::to_string(parts.session.numRanks()) + " ranks, at most " +
       bytesText(static_cast<double>(found.mostBytes)) + " by one");
  // Whatever becomes of its folder, the root alone sees to it.
  auto ok = parts.session.isRoot() ? findBest(found.manifest.best) : Expected<void>();
  auto agreed = agreeOnText(parts.session, ok ? std::string() : ok.error().message);
  if (!agreed)
    return tl::unexpected(agreed.error());
  return agreed->empty() ? Expected<void>() : makeError(*agreed);
}

//===----------------------------------------------------------------------===//
// The generation with the least loss
//===----------------------------------------------------------------------===//

std::string Checkpoints::bestPath() const {
  return runtime::bestPath(folder.path(), parts.options.data.evaluation.best);
}

/// Losses on other rows say nothing about which step was better.
Expected<void> Checkpoints::fitBest(const Restored &found) const {
  const std::optional<BestStep> &told = found.manifest.best;
  const std::string &name = parts.options.data.evaluation.best;
  if (!told || name != told->name || told->data == evaluatedOn ||
      std::ranges::find(options.allowed, "data") != options.allowed.end())
    return {};
  return makeError("'" + found.path +
                   "' has a least loss on other rows to evaluate on (" + told->data +
                   ") than this run has (" + evaluatedOn +
                   "); --allow-change data goes on, and looks for the least one anew");
}

/// A folder of this name without generations is of another run, which has lost them.
Expected<void> Checkpoints::checkNoBest() const {
  std::error_code failed;
  if (parts.options.data.evaluation.best.empty() ||
      !std::filesystem::exists(bestPath(), failed))
    return {};
  return makeError("'" + bestPath() +
                   "' is there, and no generation beside it with which "
                   "a run could go on; remove it, or give --keep-best another name");
}

/// Finds the least loss so far where a run goes on: that which the generation tells, or
/// the one of the folder, which may be of a later step that was damaged. A run that was
/// killed between the two names of a generation has left the second one to be given.
Expected<void> Checkpoints::findBest(const std::optional<BestStep> &told) {
  const std::string &name = parts.options.data.evaluation.best;
  if (name.empty()) {
    best = told; // for a run that keeps it again
    return {};
  }
  auto fits = [&](const std::optional<BestStep> &it) {
    return it && it->name == name && it->data == evaluatedOn;
  };
  auto there = readManifest(bestPath());
  if (there && fits(there->best) && there->step == there->best->step)
    best = there->best;
  if (!fits(told) || (best && best->loss <= told->loss))
    return {};
  const std::string generation = generationPath(folder.path(), told->step);
  if (auto whole = readManifest(generation); whole && fits(whole->best)) {
    best = told;
    return nameGeneration(generation, bestPath());
  }
  tell("'" + bestPath() + "' is not the generation of step " +
       std::to_string(told->step) + ", which had the least loss and is gone");
  return {};
}

/// Tells if the root keeps the step for its loss.
bool Checkpoints::isBest(std::optional<double> evaluated) const {
  return evaluated && std::isfinite(*evaluated) &&
         !parts.options.data.evaluation.best.empty() &&
         (!best || best->name != parts.options.data.evaluation.best ||
          *evaluated < best->loss);
}

/// The save that follows is for its loss. One before it, which may be too, is over then.
Expected<void> Checkpoints::keepBest(const RunPlace &place,
                                     std::optional<double> evaluated) {
  if (auto ok = finishSaving(); !ok)
    return ok;
  bestBefore = best;
  if (parts.session.isRoot())
    best =
        BestStep{parts.options.data.evaluation.best, place.step, *evaluated, evaluatedOn};
  return {};
}

Expected<void> Checkpoints::makeSaver() {
  auto made = CheckpointSaver::create(parts.session, folder,
                                      {options.keep, parts.options.timeout});
  if (!made)
    return tl::unexpected(made.error());
  saver = std::move(*made);
  begun = Clock::now();
  int64_t most[] = {static_cast<int64_t>(saver->bufferBytes())};
  if (auto ok = parts.session.agree(most); !ok)
    return ok;
  tell("checkpoints: " + bytesText(static_cast<double>(most[0])) +
       " of memory per process for snapshots");
  return {};
}

Expected<void> Checkpoints::tellFailure(bool isLast) {
  if (saver->takeLostName())
    best = bestBefore; // what was not written is not kept
  auto sentence = saver->takeFailure();
  if (!sentence)
    return {};
  if (options.stopsOnError || isLast)
    return makeError("no checkpoint was written: " + *sentence);
  tell("no checkpoint was written, training goes on: " + *sentence);
  return {};
}

Expected<void> Checkpoints::save(const RunPlace &place, int log) {
  Manifest head;
  head.step = place.step, head.cursor = place.cursor;
  head.run = identity, head.changes = changes;
  head.best = best;
  head.owesEvaluation = owes;
  begun = Clock::now();
  return saver->save(std::move(head), log, isBestStep ? bestPath() : "");
}

/// States behind such a step are lost, and would drive out those that are not.
void Checkpoints::tellInfinite(const RunPlace &place) const {
  tell("no checkpoint is written of step " + std::to_string(place.step) +
       ", which gave an infinity or no number");
}

bool Checkpoints::isTime() const {
  std::chrono::duration<double> since = Clock::now() - begun;
  return parts.session.isRoot() && options.everySeconds > 0 &&
         since.count() >= options.everySeconds;
}

Expected<int> Checkpoints::behind(const StepOutcome &done, int log) {
  return saveIf(done, /*mustSave=*/false, log);
}

Expected<int> Checkpoints::settle(const RunPlace &place, std::optional<double> evaluated,
                                  int log) {
  return saveIf({.place = place, .evaluated = evaluated}, /*mustSave=*/true, log);
}

Expected<int> Checkpoints::saveIf(const StepOutcome &done, bool mustSave, int log) {
  const RunPlace &place = done.place;
  owes = done.owesEvaluation;
  int64_t every = parts.options.data.saveEvery;
  int64_t votes[] = {keptStopSignal(), isTime(), !done.isFinite, isBest(done.evaluated)};
  if (auto ok = saver->exchange(votes); !ok)
    return tl::unexpected(ok.error());
  if (auto ok = tellFailure(false); !ok)
    return tl::unexpected(ok.error());
  isFinite = votes[2] == 0;
  isBestStep = votes[3] != 0 && isFinite;
  if (auto ok = isBestStep ? keepBest(place, done.evaluated) : Expected<void>(); !ok)
    return tl::unexpected(ok.error());
  bool isDue =
      mustSave || votes[1] != 0 || isBestStep || (every > 0 && place.step % every == 0);
  if (isDue && !isFinite && votes[0] == 0) {
    begun = Clock::now();
    tellInfinite(place);
  } else if (isDue && (votes[0] == 0 || mustSave)) {
    if (auto ok = save(place, log); !ok)
      return tl::unexpected(ok.error());
    if (auto ok = tellFailure(false); !ok)
      return tl::unexpected(ok.error());
  }
  return static_cast<int>(votes[0]);
}

Expected<void> Checkpoints::finishSaving() {
  auto ok = saver->finish();
  return ok ? tellFailure(false) : ok;
}

Expected<void> Checkpoints::close(const RunPlace &place, int log) {
  // A save of the last step that failed is tried once more.
  if (auto ok = finishSaving(); !ok)
    return ok;
  bool isSaved = place.step == std::max(restoredStep, saver->savedStep());
  if (!isSaved && !isFinite)
    tellInfinite(place);
  if (!isSaved && isFinite && place.step > 0) {
    if (auto ok = save(place, log); !ok)
      return ok;
    if (auto ok = saver->finish(); !ok)
      return ok;
    if (auto ok = tellFailure(true); !ok)
      return ok;
  }
  CheckpointSaver::Cost cost = saver->cost();
  if (cost.saves > 0)
    tell(std::to_string(cost.saves) +
         (cost.saves == 1 ? " generation was" : " generations were") + " written to '" +
         folder.path() + "', the newest behind step " +
         std::to_string(saver->savedStep()) + "; training waited " +
         durationText(cost.seconds) + " for them, at most " +
         durationText(cost.mostSeconds) + " for one");
  return {};
}
