//===- Restarts.cpp - Runs that lose a rank and go on ---------------------===//
#include "Internal.h"

#include "partita/Base/Units.h"
#include "partita/Runtime/Checkpoint.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <sys/stat.h>
#include <thread>

using namespace partita;
using namespace partita::runtime;
using Clock = std::chrono::steady_clock;

Expected<RunEnd> runtime::endedBy(int signal, const std::string &message, int asked) {
  for (int own : {SIGSEGV, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS, SIGPIPE})
    if (signal == own)
      return makeError(message);
  return RunEnd::lost(message, asked);
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

Expected<RunEnd> runtime::runAgain(RunOptions &options, const Print &print,
                                   const std::function<Expected<RunEnd>()> &run) {
  CheckpointOptions &checkpoints = options.data.checkpoints;
  if (checkpoints.restarts == 0)
    return run();
  int64_t tries = 0, newest = newestOf(checkpoints.folder).first;
  for (;;) {
    auto begin = Clock::now();
    auto end = run();
    if (!end || !end->isLost || end->signal != 0)
      return end;
    double ran = std::chrono::duration<double>(Clock::now() - begin).count();
    auto [step, since] = newestOf(checkpoints.folder);
    if (step > newest)
      tries = 0;
    newest = step;
    if (tries == checkpoints.restarts)
      return RunEnd::lost(end->problem + "; started again " + std::to_string(tries) +
                          (tries == 1 ? " time" : " times") +
                          " without a new generation (--restarts)");
    double pause = std::min(
        firstPause * static_cast<double>(int64_t(1) << std::min(tries, int64_t(20))),
        mostPause);
    ++tries;
    print("lost at " + timeText() + ": " + end->problem +
          formatted("; %.1f s behind the last start, of which %.1f s are lost since ",
                    ran, step < 0 ? ran : std::min(since, ran)) +
          (step < 0 ? std::string("the begin, as nothing is saved")
                    : "step " + std::to_string(step) + " was saved") +
          formatted("; starts again in %.0f s, %lld of %lld", pause,
                    static_cast<long long>(tries),
                    static_cast<long long>(checkpoints.restarts)));
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    checkpoints.resume = true;
  }
}
