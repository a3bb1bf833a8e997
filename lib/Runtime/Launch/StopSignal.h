//===- StopSignal.h - A signal that asks a run to save and stop -*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_STOPSIGNAL_H
#define PARTITA_LIB_RUNTIME_LAUNCH_STOPSIGNAL_H

#include <chrono>
#include <csignal>
#include <initializer_list>
#include <string>

namespace partita::runtime {

/// From now on these signals end nothing: they are kept until somebody asks. SIGUSR1
/// means SIGTERM, for launchers that end a job at once by SIGTERM.
void keepStopSignals(std::initializer_list<int> signals);
/// The first signal that was kept; 0: none was.
int keptStopSignal();

/// While it lives, SIGTERM and SIGINT of this process wait to be asked for. For a process
/// that watches another one; children begin with the mask of before.
class StopSignals {
public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals &) = delete;
  StopSignals &operator=(const StopSignals &) = delete;
  /// A signal that came, waiting at most so long for one; 0: none came.
  int await(double seconds) const;
  /// In a child.
  void restore() const;

private:
  sigset_t stopping, before;
};

/// A signal that a watching process has passed on.
struct StopRequest {
  using Clock = std::chrono::steady_clock;
  int signal = 0; ///< 0: none came
  Clock::time_point since, endBy = Clock::time_point::max();

  /// Whether the given signal is the first one, which is passed on. A signal that comes
  /// half a second later or more means "at once". An earlier one is the first signal by
  /// another way: from the terminal, and from the parent.
  bool take(int given, double grace);
  bool mustEnd() const { return Clock::now() >= endBy; }
  /// Sentence for a run that was ended.
  std::string problem(double grace) const;
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_STOPSIGNAL_H
