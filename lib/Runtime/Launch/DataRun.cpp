//===- DataRun.cpp - Steps on the rows of a file --------------------------===//
#include "Checkpoints.h"
#include "Evaluation.h"
#include "Metrics.h"
#include "RunLogs.h"
#include "StopSignal.h"

#include "partita/Base/Units.h"
#include "partita/Runtime/StateFile.h"

#include <algorithm>
#include <deque>

using namespace partita;
using namespace partita::runtime;

namespace {

/// A step that was begun, and is not ended.
struct BegunStep {
  RunPlace place;    ///< behind it
  int64_t epoch = 0; ///< of its rows, from 1 on
  std::shared_ptr<const std::vector<int64_t>> rows;
  std::chrono::steady_clock::time_point since;
  std::vector<HostTensor> outputs; ///< where they go, on the root
};

/// The steps of a process, one after the other. Ranks may begin some before those before
/// them are over. What must see the states behind a step waits until no later one was
/// begun: the step is settled then.
class StepLoop {
public:
  StepLoop(RunParts &parts, DataFeed &feed, const Print &print)
      : parts(parts), session(parts.session), data(parts.options.data), feed(feed),
        order(feed.order(data)),
        metrics(session.outputs(), session.info().flags, feed.batch(), print),
        print(print) {}
  StepLoop(const StepLoop &) = delete;
  StepLoop &operator=(const StepLoop &) = delete;
  /// Ranks write outputs of steps that were begun, behind an error, too.
  ~StepLoop() {
    while (session.begun() > 0)
      (void)session.end();
  }

  Expected<DataSteps> run(int64_t &steps) {
    if (auto ok = begin(steps); !ok)
      return tl::unexpected(ok.error());
    while (!isOver() && done.signal == 0)
      if (auto ok = mayBegin() ? beginStep() : endStep(); !ok)
        return tl::unexpected(ok.error());
    steps = place.step;
    if (auto ok = end(); !ok)
      return tl::unexpected(ok.error());
    return std::move(done);
  }

private:
  Expected<void> begin(int64_t steps);
  void prepareAhead();
  bool mayBegin() const;
  bool mustSettle(const RunPlace &behind) const;
  Expected<void> beginStep();
  Expected<void> endStep();
  Expected<void> limitAhead();
  Expected<void> evaluate();
  Expected<void> makeOwed();
  Expected<void> tell(int64_t epoch,
                      const std::shared_ptr<const std::vector<int64_t>> &rows);
  Expected<void> save();
  Expected<void> stopped(const std::string &what);
  Expected<void> end();
  void tellOverlap() const;
  bool isOver() const { return isOver(place); }
  bool isOver(const RunPlace &at) const {
    return at.step >= last || (lastEpoch && at.cursor.epoch >= *lastEpoch);
  }

  RunParts &parts;
  Session &session;
  const DataOptions &data;
  DataFeed &feed;
  DataOrder order;
  Metrics metrics;
  const Print &print;
  std::unique_ptr<Checkpoints> checkpoints; ///< null: none are asked for
  std::optional<Evaluation> evaluation;
  std::optional<double> evaluated; ///< behind the last step, on the root
  bool owesEvaluation = false;     ///< the last step, since a signal has come
  RunPlace place;
  int64_t last = 0;                 ///< no step behind this one
  std::optional<int64_t> lastEpoch; ///< none of it
  int64_t ahead = 0; ///< steps that are begun before the one before them is over
  std::deque<BegunStep> begun;
  /// Room for outputs of a step, where that of the last one that was told is not enough.
  std::vector<std::vector<HostTensor>> room;
  bool settles = false; ///< no step is begun before the last one is settled
  std::chrono::steady_clock::time_point ended; ///< the last one that was
  DataSteps done;
};

} // namespace

Expected<void> StepLoop::begin(int64_t steps) {
  if (session.isRoot())
    if (auto ok = metrics.serve(data.metrics); !ok)
      return ok;
  if (!data.evaluation.files.empty()) {
    auto made = Evaluation::open(session, parts.options, parts.entry);
    if (!made)
      return tl::unexpected(made.error());
    evaluation.emplace(std::move(*made));
  }
  place = {steps, order.cursorOf(steps)};
  if (data.checkpoints.folder.empty()) {
    last = steps + *data.steps;
    prepareAhead();
    return session.isRoot() ? metrics.log.open(data.log, steps > 0) : Expected<void>();
  }
  auto opened =
      Checkpoints::open(parts, feed, evaluation ? evaluation->data() : "", print, place);
  if (!opened)
    return tl::unexpected(opened.error());
  checkpoints = std::move(*opened);
  place.cursor = order.at(place.cursor);
  last = data.steps.value_or(INT64_MAX), lastEpoch = data.epochs;
  prepareAhead();
  if (isOver() && session.isRoot())
    print("all " + std::to_string(place.step) + " steps are done");
  if (session.isRoot())
    if (auto ok = metrics.log.openBehind(data.log, place.step, print); !ok)
      return ok;
  if (!data.checkpoints.stopsOnError)
    metrics.log.waitForRoom(print);
  return checkpoints->owesEvaluation() && evaluation ? makeOwed() : Expected<void>();
}

/// The evaluation of the step behind which the run goes on: a signal had come meanwhile.
Expected<void> StepLoop::makeOwed() {
  if (auto ok = evaluate(); !ok)
    return ok;
  if (owesEvaluation)
    return {}; // another signal; the generation stays as it is
  if (session.isRoot())
    if (auto ok = metrics.evaluatedBehind(place.step, *evaluated); !ok)
      return ok;
  auto signal = checkpoints->settle(place, evaluated, metrics.log.descriptor());
  if (!signal)
    return tl::unexpected(signal.error());
  done.signal = *signal;
  return {};
}

/// How many steps ranks may be ahead, and room for them.
void StepLoop::prepareAhead() {
  const bool isPipeline = session.info().stages.size() > 1;
  ahead = data.ahead.value_or(isPipeline ? 1 : 0);
  // Such a run ends with a step, of which the states tell.
  if (parts.options.findNan || metrics.stopsWhereNotFinite())
    ahead = 0;
  room.assign(static_cast<size_t>(ahead), parts.outputs);
  session.follow(room.size() + 1, [this] {
    return checkpoints && (keptStopSignal() != 0 || checkpoints->isTime());
  });
  ended = std::chrono::steady_clock::now();
}

/// Tells if something is due behind a step that has to see its states. What is due by
/// signals and clocks is agreed upon when steps end.
bool StepLoop::mustSettle(const RunPlace &behind) const {
  const bool isLast = isOver(behind);
  const bool isFirst = done.seconds.empty() && checkpoints; // see limitAhead
  const bool isSaving = checkpoints && checkpoints->isSaving();
  return isLast || isFirst || isSaving ||
         (data.saveEvery > 0 && behind.step % data.saveEvery == 0) ||
         (evaluation && evaluation->isDue(behind.step, isLast));
}

bool StepLoop::mayBegin() const {
  if (begun.empty())
    return true;
  return static_cast<int64_t>(begun.size()) <= ahead && !settles &&
         !mustSettle(begun.back().place);
}

Expected<void> StepLoop::beginStep() {
  const RunPlace &from = begun.empty() ? place : begun.back().place;
  BegunStep step;
  step.since = std::chrono::steady_clock::now();
  step.rows = order.rowsAt(from.cursor);
  step.epoch = from.cursor.epoch + 1;
  step.place = {from.step + 1, order.behind(from.cursor)};
  step.outputs = std::move(room.empty() ? parts.outputs : room.back());
  if (!room.empty())
    room.pop_back();
  std::vector<std::byte *> to;
  for (HostTensor &tensor : step.outputs)
    to.push_back(tensor.bytes.data());
  auto ok = session.begin(feed.inputs(step.rows), to);
  if (ok) {
    begun.push_back(std::move(step));
    return {};
  }
  if (begun.empty())
    return ok;
  // A step that was begun has failed, and says so where it ends.
  room.push_back(std::move(step.outputs));
  settles = true;
  return {};
}

/// Ends the oldest step that was begun, and does what is due behind it.
Expected<void> StepLoop::endStep() {
  auto wish = session.end();
  if (!wish)
    return tl::unexpected(wish.error());
  BegunStep step = std::move(begun.front());
  begun.pop_front();
  const auto before = std::max(step.since, ended);
  ended = std::chrono::steady_clock::now();
  done.seconds.push_back(std::chrono::duration<double>(ended - before).count());
  place = step.place;
  settles = settles || *wish;
  parts.outputs.swap(step.outputs);
  if (!step.outputs.empty())
    room.push_back(std::move(step.outputs));
  parts.logs.step(place.step, done.seconds.back());
  // Requests of an evaluation follow, and this is about the step's own.
  const bool isSettled = begun.empty();
  auto finite = isSettled ? checkFinite(session, parts.options,
                                        "step " + std::to_string(place.step))
                          : Expected<void>();
  evaluated.reset(), owesEvaluation = false;
  if (isSettled && finite && evaluation && evaluation->isDue(place.step, isOver()))
    finite = evaluate();
  if (session.isRoot())
    if (auto ok = tell(step.epoch, step.rows); !ok)
      return ok;
  if (!finite) {
    auto saved = checkpoints ? checkpoints->finishSaving() : Expected<void>();
    return saved ? finite : saved;
  }
  if (!isSettled)
    return {};
  settles = false;
  if (auto ok = limitAhead(); !ok)
    return ok;
  return save();
}

/// A signal is known to all behind the steps that were begun when it came. Where those
/// take too much of the time that it leaves, steps wait for each other.
Expected<void> StepLoop::limitAhead() {
  if (!checkpoints || ahead == 0 || done.seconds.size() != 1)
    return {};
  int64_t most[] = {static_cast<int64_t>(done.seconds.front() * 1e6)};
  if (auto ok = session.agree(most); !ok)
    return ok;
  const double seconds = static_cast<double>(most[0]) * 1e-6;
  const double grace = data.checkpoints.grace;
  if (seconds * static_cast<double>(ahead + 1) <= grace / 2)
    return {};
  ahead = 0;
  if (session.isRoot())
    print("steps take " + durationText(seconds) +
          ", so that none is begun before the "
          "one before it is over: a signal leaves " +
          formatted("%g s (--grace)", grace));
  return {};
}

Expected<void> StepLoop::evaluate() {
  auto end = evaluation->run();
  if (!end)
    return tl::unexpected(end.error());
  owesEvaluation = end->signal != 0;
  if (owesEvaluation)
    done.signal = end->signal;
  else if (session.isRoot())
    evaluated = end->loss;
  return {};
}

/// Says what the last step gave.
Expected<void> StepLoop::tell(int64_t epoch,
                              const std::shared_ptr<const std::vector<int64_t>> &rows) {
  auto labels = feed.countLabels(rows);
  if (!labels)
    return tl::unexpected(labels.error());
  return metrics.step(
      {place.step, epoch, done.seconds.back(), *labels, isOver(), evaluated},
      parts.outputs);
}

/// The end of a run whose last step is not finite, and which stops there.
Expected<void> StepLoop::stopped(const std::string &what) {
  if (auto ok = checkpoints ? checkpoints->finishSaving() : Expected<void>(); !ok)
    return ok;
  return makeError("step " + std::to_string(place.step) +
                   " has a loss or gradients that are not finite" +
                   (what.empty() ? "" : " (" + what + ")") +
                   ", where \"on_nan\" of the training file says stop");
}

Expected<void> StepLoop::save() {
  std::string what = session.isRoot() ? metrics.notFinite(parts.outputs) : "";
  bool isFinite = what.empty(); // as far as this process knows
  if (checkpoints) {
    auto signal = checkpoints->behind({place, isFinite, evaluated, owesEvaluation},
                                      metrics.log.descriptor());
    if (!signal)
      return tl::unexpected(signal.error());
    done.signal = *signal;
    isFinite = checkpoints->wasFinite();
  }
  if (!isFinite && metrics.stopsWhereNotFinite())
    return stopped(what);
  if (checkpoints)
    return {};
  bool isDue = data.saveEvery > 0 && place.step % data.saveEvery == 0;
  if (isDue && !isOver() && !parts.states.empty())
    return saveStates(session, parts.states, place.step);
  return {};
}

/// Says what it has brought that ranks were ahead.
void StepLoop::tellOverlap() const {
  const Session::Overlap overlap = session.overlap();
  if (session.isRoot() && overlap.requests > 0)
    print(std::to_string(overlap.requests) + " of " +
          std::to_string(done.seconds.size()) +
          " steps were under way while a rank began the next one, " +
          durationText(overlap.seconds) + " in all");
}

Expected<void> StepLoop::end() {
  tellOverlap();
  if (checkpoints)
    if (auto ok = checkpoints->close(place, metrics.log.descriptor()); !ok)
      return ok;
  auto closed = metrics.log.close();
  if (closed || done.signal == 0)
    return closed;
  print(closed.error().message); // the generation is there, and the run goes on with it
  return {};
}

Expected<DataSteps> runtime::runOnData(RunParts &parts, int64_t &steps,
                                       const Print &print) {
  Session &session = parts.session;
  auto feed = DataFeed::open(parts.options,
                             {session.info(), session.inputs(), session.outputs()});
  if (!feed)
    return tl::unexpected(feed.error());
  if (auto ok = feed->agree(session, "--data"); !ok)
    return tl::unexpected(ok.error());
  return StepLoop(parts, *feed, print).run(steps);
}
