//===- DataRun.cpp - Steps on the rows of a file --------------------------===//
#include "Checkpoints.h"
#include "Evaluation.h"
#include "Metrics.h"
#include "RunLogs.h"

#include "partita/Runtime/StateFile.h"

#include <algorithm>

using namespace partita;
using namespace partita::runtime;

namespace {

/// The steps of a process, one after the other.
class StepLoop {
public:
  StepLoop(RunParts &parts, DataFeed &feed, const Print &print)
      : parts(parts), session(parts.session), data(parts.options.data), feed(feed),
        order(feed.order(data)),
        metrics(session.outputs(), session.info().flags, feed.batch(), print),
        print(print), from(session.inputs().size()) {
    for (HostTensor &tensor : parts.outputs)
      to.push_back(tensor.bytes.data());
  }

  Expected<DataSteps> run(int64_t &steps) {
    if (auto ok = begin(steps); !ok)
      return tl::unexpected(ok.error());
    while (!isOver() && done.signal == 0)
      if (auto ok = step(); !ok)
        return tl::unexpected(ok.error());
    steps = place.step;
    if (auto ok = end(); !ok)
      return tl::unexpected(ok.error());
    return std::move(done);
  }

private:
  Expected<void> begin(int64_t steps);
  Expected<void> step();
  Expected<void> evaluate();
  Expected<void> makeOwed();
  Expected<void> tell(int64_t epoch,
                      const std::shared_ptr<const std::vector<int64_t>> &rows);
  Expected<void> save();
  Expected<void> stopped(const std::string &what);
  Expected<void> end();
  bool isOver() const {
    return place.step >= last || (lastEpoch && place.cursor.epoch >= *lastEpoch);
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
  // Inputs that are read from files need no address.
  std::vector<const std::byte *> from;
  std::vector<std::byte *> to;
  DataSteps done;
};

} // namespace

Expected<void> StepLoop::begin(int64_t steps) {
  if (session.isRoot())
    if (auto ok = metrics.serve(data.metrics); !ok)
      return ok;
  if (!data.evaluation.file.empty()) {
    auto made = Evaluation::open(session, parts.options, parts.entry);
    if (!made)
      return tl::unexpected(made.error());
    evaluation.emplace(std::move(*made));
  }
  place = {steps, order.cursorOf(steps)};
  if (data.checkpoints.folder.empty()) {
    last = steps + *data.steps;
    return session.isRoot() ? metrics.open(data.log, steps > 0) : Expected<void>();
  }
  auto opened =
      Checkpoints::open(parts, feed, evaluation ? evaluation->data() : "", print, place);
  if (!opened)
    return tl::unexpected(opened.error());
  checkpoints = std::move(*opened);
  place.cursor = order.at(place.cursor);
  last = data.steps.value_or(INT64_MAX), lastEpoch = data.epochs;
  if (isOver() && session.isRoot())
    print("all " + std::to_string(place.step) + " steps are done");
  if (session.isRoot())
    if (auto ok = metrics.openBehind(data.log, place.step); !ok)
      return ok;
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
  auto signal = checkpoints->settle(place, evaluated, metrics.descriptor());
  if (!signal)
    return tl::unexpected(signal.error());
  done.signal = *signal;
  return {};
}

Expected<void> StepLoop::step() {
  auto start = std::chrono::steady_clock::now();
  auto rows = order.rowsAt(place.cursor);
  auto read = session.readInputs(feed.inputs(rows));
  if (!read)
    return tl::unexpected(read.error());
  if (auto ok = session.run(from, to); !ok)
    return ok;
  done.seconds.push_back(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  int64_t epoch = place.cursor.epoch + 1;
  place = {place.step + 1, order.behind(place.cursor)};
  parts.logs.step(place.step, done.seconds.back());
  // Requests of an evaluation follow, and this is about the step's own.
  auto finite = checkFinite(session, parts.options, "step " + std::to_string(place.step));
  evaluated.reset(), owesEvaluation = false;
  if (finite && evaluation && evaluation->isDue(place.step, isOver()))
    finite = evaluate();
  if (session.isRoot())
    if (auto ok = tell(epoch, rows); !ok)
      return ok;
  if (!finite) {
    auto saved = checkpoints ? checkpoints->finishSaving() : Expected<void>();
    return saved ? finite : saved;
  }
  return save();
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
                                      metrics.descriptor());
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

Expected<void> StepLoop::end() {
  if (checkpoints)
    if (auto ok = checkpoints->close(place, metrics.descriptor()); !ok)
      return ok;
  return metrics.close();
}

Expected<DataSteps> runtime::runOnData(RunParts &parts, int64_t &steps,
                                       const Print &print) {
  Session &session = parts.session;
  auto feed = DataFeed::open(parts.options,
                             {session.info(), session.inputs(), session.outputs()});
  if (!feed)
    return tl::unexpected(feed.error());
  return StepLoop(parts, *feed, print).run(steps);
}
