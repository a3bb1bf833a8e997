//===- StopSignal.cpp - A signal that asks a run to save and stop ---------===//
#include "StopSignal.h"

#include "partita/Base/Error.h"

#include <atomic>
#include <cstdio>
#include <ctime>
#include <pthread.h>

using namespace partita;
using namespace partita::runtime;

static std::atomic<int> kept{0};

static void keep(int signal) {
  int none = 0;
  kept.compare_exchange_strong(none, signal == SIGUSR1 ? SIGTERM : signal);
}

void runtime::keepStopSignals(std::initializer_list<int> signals) {
  struct sigaction action{};
  action.sa_handler = keep;
  action.sa_flags = SA_RESTART;
  for (int signal : signals)
    ::sigaction(signal, &action, nullptr);
}

int runtime::keptStopSignal() { return kept.load(); }

StopSignals::StopSignals() {
  sigemptyset(&stopping);
  for (int signal : {SIGTERM, SIGINT})
    sigaddset(&stopping, signal);
  ::pthread_sigmask(SIG_BLOCK, &stopping, &before);
}

StopSignals::~StopSignals() { restore(); }

void StopSignals::restore() const { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }

int StopSignals::await(double seconds) const {
  auto whole = static_cast<time_t>(seconds);
  timespec limit{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  int signal = ::sigtimedwait(&stopping, nullptr, &limit);
  return signal > 0 ? signal : 0;
}

bool StopRequest::take(int given, double grace) {
  constexpr auto sameSignal = std::chrono::milliseconds(500);
  auto now = Clock::now();
  if (signal != 0) {
    if (now - since > sameSignal)
      endBy = now;
    return false;
  }
  signal = given, since = now;
  endBy = now + std::chrono::duration_cast<Clock::duration>(
                    std::chrono::duration<double>(grace));
  return true;
}

std::string StopRequest::problem(double grace) const {
  std::string name = signal == SIGINT ? "SIGINT" : "SIGTERM";
  char text[32];
  std::snprintf(text, sizeof text, "%g s", grace);
  return endBy - since < std::chrono::duration<double>(grace)
             ? "ended at once, as a second signal came behind " + name
             : "ended, as the run did not stop within " + std::string(text) + " of " +
                   name + " (--grace)";
}
