//===- Watched.cpp - Local ranks in a watched process ---------------------===//
//
// The child runs the ranks as threads and watches for one that stands still; the parent
// watches the child, which may die or be stopped, and a rank that is alone, whose
// requests run in the thread that would watch. They share one page with the progress of
// every rank, so that the parent can say where it happened.
//
//===----------------------------------------------------------------------===//
#include "Page.h"
#include "StopSignal.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;

[[noreturn]] static void childMain(const WatchedMain &main, std::shared_ptr<Page> page,
                                   pid_t parent) {
  // No orphan, whatever happens to the parent.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent)
    ::_exit(1);
  // Handlers of the program that forked would speak of the program itself.
  for (int crash : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    ::signal(crash, SIG_DFL);
  auto ok = startBeats(page, 0);
  if (ok) {
    auto end = main(page->progress());
    if (end && end->isLost)
      page->setError(end->problem);
    if (end)
      ::_exit(end->isLost ? againStatus : end->signal ? signalStatus + end->signal : 0);
    ok = tl::unexpected(end.error());
  }
  page->setError(ok.error().message);
  // Threads may hang: no destructors.
  ::_exit(1);
}

namespace {

class Watcher {
public:
  /// `signals`: those that ask for a checkpoint; null: none do.
  Watcher(const RunOptions &options, const Bundle &bundle, Page &page, pid_t child,
          const StopSignals *signals)
      : options(options), bundle(bundle), page(page), child(child), signals(signals) {}

  Expected<RunEnd> watch() {
    for (;;) {
      int status = 0;
      pid_t got = ::waitpid(child, &status, WNOHANG);
      if (got == child)
        return result(status);
      if (got < 0 && errno != EINTR)
        return makeError("the process of the ranks was lost");
      // The child ends a run in which a rank stands still; this catches a child that is
      // stopped whole. A busy machine may keep it from running for a moment.
      if (pulse.silence(page.process(0)) > options.timeout + 1) {
        int rank = likelyRank(page);
        end();
        return RunEnd::lost(at(rank) + ": no sign of life of the process for " +
                                secondsText(options.timeout),
                            stop.signal);
      }
      if (page.ranks() == 1 && stillness() > options.timeout + 1) {
        end();
        return RunEnd::lost(at(0) + ": no progress for " + secondsText(options.timeout),
                            stop.signal);
      }
      if (pause() && stop.mustEnd()) {
        end();
        return RunEnd{stop.signal, stop.problem(options.data.checkpoints.grace)};
      }
    }
  }

private:
  void end() {
    int status = 0;
    ::kill(child, SIGKILL);
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR)
      ;
  }

  /// Passes signals on meanwhile. Whether one came, now or before.
  bool pause() {
    if (!signals) {
      ::usleep(20'000);
      return false;
    }
    if (int signal = signals->await(0.02);
        signal != 0 && stop.take(signal, options.data.checkpoints.grace))
      ::kill(child, signal);
    return stop.signal != 0;
  }

  /// Seconds since the first rank began what it works on.
  double stillness() {
    const RankProgress &rank = page.progress()[0];
    if (rank.state.load() != RankProgress::Running)
      work = {};
    return work.silence(rank.heartbeat.load());
  }

  std::string at(int rank) { return placeOf(options, bundle, page, rank); }

  Expected<RunEnd> result(int status) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
      return RunEnd();
    if (WIFEXITED(status) && WEXITSTATUS(status) > signalStatus)
      return RunEnd{WEXITSTATUS(status) - signalStatus};
    if (WIFEXITED(status) && WEXITSTATUS(status) == againStatus)
      return RunEnd::lost(page.error(), stop.signal);
    if (std::string error = page.error(); !error.empty())
      return makeError(error);
    int rank = likelyRank(page);
    if (WIFSIGNALED(status))
      return endedBy(WTERMSIG(status),
                     at(rank) + ": the process was killed by signal " +
                         std::to_string(WTERMSIG(status)) + " (" +
                         ::strsignal(WTERMSIG(status)) + ")",
                     stop.signal);
    return makeError(at(rank) + ": the process ended with status " +
                     std::to_string(WEXITSTATUS(status)));
  }

  const RunOptions &options;
  const Bundle &bundle;
  Page &page;
  pid_t child;
  const StopSignals *signals;
  StopRequest stop;
  Pulse pulse, work;
};

} // namespace

Expected<RunEnd> runtime::watch(const RunOptions &options, const WatchedMain &main) {
  auto bundle = readBundle(options.bundle);
  if (!bundle)
    return tl::unexpected(bundle.error());
  auto made = Page::anonymous(bundle->numRanks());
  if (!made)
    return tl::unexpected(made.error());
  std::shared_ptr<Page> page = std::move(*made);
  std::optional<StopSignals> signals;
  if (!options.data.checkpoints.folder.empty())
    signals.emplace();
  pid_t parent = ::getpid();
  pid_t child = ::fork();
  if (child < 0)
    return makeError(std::string("cannot start a process: ") + std::strerror(errno));
  if (child == 0 && signals) {
    keepStopSignals({SIGTERM, SIGINT});
    signals->restore();
  }
  if (child == 0)
    childMain(main, page, parent);
  return Watcher(options, *bundle, *page, child, signals ? &*signals : nullptr).watch();
}

Expected<RunEnd> runtime::runWatched(const RunOptions &options, const Print &print) {
  return watch(options, [&](RankProgress *progress) {
    return runRanks(options, TransportKind::Local, progress, print);
  });
}
