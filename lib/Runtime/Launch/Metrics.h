//===- Metrics.h - What is told of the steps of a run -----------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_METRICS_H
#define PARTITA_LIB_RUNTIME_LAUNCH_METRICS_H

#include "Internal.h"

#include <chrono>
#include <cstdio>
#include <memory>

namespace partita::runtime {

/// The scalars among the outputs, as lines for people and as a log.
class Metrics {
public:
  Metrics(const std::vector<TensorInfo> &outputs, int64_t batch, const Print &print);
  /// Opens the log; `append` if the run goes on where another one has stopped.
  Expected<void> open(const std::string &log, bool append);
  /// Opens the log behind this step: lines of later steps, and a line that was not
  /// finished, go.
  Expected<void> openBehind(const std::string &log, int64_t step);
  /// Descriptor of the log; −1: there is none.
  int descriptor() const;
  /// A step, counted from 1, of an epoch, counted from 1. Lines for people come at most
  /// once a second, but for the first and the last.
  Expected<void> step(int64_t step, int64_t epoch, double seconds, bool isLast,
                      const std::vector<HostTensor> &outputs);
  /// Whether all scalars are numbers: no infinity, no NaN.
  bool areFinite(const std::vector<HostTensor> &outputs) const;
  /// An error if something of the log could not be written.
  Expected<void> close();

private:
  struct Scalar {
    size_t output;
    std::string name;
  };
  std::string line(int64_t step, int64_t epoch, const std::vector<HostTensor> &outputs);
  std::string json(int64_t step, int64_t epoch, double seconds,
                   const std::vector<HostTensor> &outputs) const;
  tl::unexpected<Error> cannotWrite() const;

  using Clock = std::chrono::steady_clock;
  std::vector<Scalar> scalars;
  int64_t batch;
  const Print &print;
  Clock::time_point printed = Clock::now();
  double secondsSince = 0; ///< of the steps since the last line
  int64_t stepsSince = 0;
  bool isFirst = true;
  std::string path;
  std::unique_ptr<std::FILE, int (*)(std::FILE *)> log{nullptr, std::fclose};
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_METRICS_H
