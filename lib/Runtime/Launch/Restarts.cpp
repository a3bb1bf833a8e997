//===- Restarts.cpp - Runs that lose a rank and go on ---------------------===//
#include "Internal.h"
#include "StopSignal.h"

#include "partita/Base/Units.h"
#include "partita/Runtime/Checkpoint.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <sys/stat.h>

using namespace partita;
using namespace partita::runtime;
using Clock = std::chrono::steady_clock;

Expected<RunEnd> runtime::endedBy(int signal, const std::string &message, int asked,
                                  int rank) {
  for (int own : {SIGSEGV, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS, SIGPIPE})
    if (signal == own)
      return makeError(message);
  return RunEnd::lost(message, asked, rank);
}

/// Seconds from the first pause between runs; each is twice the one before.
static constexpr double firstPause = 1, mostPause = 30;

/// Newest generation of a folder that has a name, and the seconds since it got it.
static std::pair<int64_t, double> newestOf(const std::string &folder) {
  auto there = generationsOf(folder);
  struct stat facts{};
  if (!there || there->empty() || ::stat(there->front().path.c_str(), &facts) != 0)
    return {-1, 0};
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  double since = static_cast<double>(now.tv_sec - facts.st_ctim.tv_sec) +
                 static_cast<double>(now.tv_nsec - facts.st_ctim.tv_nsec) * 1e-9;
  return {there->front().step, std::max(since, 0.0)};
}

static std::string timeText() {
  std::time_t seconds = std::time(nullptr);
  std::tm parts{};
  char text[32] = {};
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", ::gmtime_r(&seconds, &parts));
  return text;
}

int64_t runtime::newestStep(const std::string &folder) { return newestOf(folder).first; }

Restarts::Restarts(std::string folder, int64_t most)
    : folder(std::move(folder)), most(most), newest(newestStep(this->folder)) {}

void Restarts::begin() { began = Clock::now(); }

double Restarts::nextPause() {
  double factor = static_cast<double>(int64_t(1) << std::min(tries, int64_t(20)));
  ++tries;
  return std::min(firstPause * factor, mostPause);
}

/// Tells why the run waits, and waits. Everything that can be saved is: a signal ends the
/// run at once, also one that comes as soon as the line is read.
static bool waitFor(double seconds, const std::string &why, RunEnd &end,
                    const Print &print) {
  StopSignals signals;
  print(why);
  const int signal = signals.await(seconds);
  if (signal != 0)
    end = RunEnd{signal};
  return signal == 0;
}

bool Restarts::again(RunEnd &end, const Print &print) {
  double ran = std::chrono::duration<double>(Clock::now() - began).count();
  auto [step, since] = newestOf(folder);
  if (step > newest)
    tries = 0;
  newest = step;
  if (tries == most) {
    end.problem += "; started again " + std::to_string(tries) +
                   (tries == 1 ? " time" : " times") +
                   " without a new generation (--restarts)";
    return false;
  }
  double seconds = nextPause();
  return waitFor(
      seconds,
      "lost at " + timeText() + ": " + end.problem +
          formatted("; %.1f s behind the last start, of which %.1f s are lost since ",
                    ran, step < 0 ? ran : std::min(since, ran)) +
          (step < 0 ? std::string("the begin, as nothing is saved")
                    : "step " + std::to_string(step) + " was saved") +
          formatted("; starts again in %.0f s, %lld of %lld", seconds,
                    static_cast<long long>(tries), static_cast<long long>(most)),
      end, print);
}

bool Restarts::wait(RunEnd &end, const Print &print) {
  if (tries == most)
    return false;
  double seconds = nextPause();
  const std::string why = end.problem + formatted("; looks again in %.0f s, %lld of %lld",
                                                  seconds, static_cast<long long>(tries),
                                                  static_cast<long long>(most));
  return waitFor(seconds, why, end, print);
}

Expected<RunEnd> runtime::runAgain(RunOptions &options, const Print &print,
                                   const std::function<Expected<RunEnd>()> &run) {
  CheckpointOptions &checkpoints = options.data.checkpoints;
  const int64_t most = checkpoints.restarts.value_or(0);
  if (most == 0)
    return run();
  Restarts restarts(checkpoints.folder, most);
  for (;;) {
    restarts.begin();
    auto end = run();
    if (!end || !end->isLost || end->signal != 0 || !restarts.again(*end, print))
      return end;
    checkpoints.resume = true;
  }
}
