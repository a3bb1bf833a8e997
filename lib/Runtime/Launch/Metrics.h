//===- Metrics.h - What is told of the steps of a run -----------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_METRICS_H
#define PARTITA_LIB_RUNTIME_LAUNCH_METRICS_H

#include "Internal.h"
#include "MetricsServer.h"
#include "StepLog.h"

#include <chrono>
#include <memory>

namespace partita::runtime {

/// A step that is done.
struct StepDone {
  int64_t step = 0, epoch = 0; ///< counted from 1
  double seconds = 0;
  std::optional<int64_t> labels; ///< that count; absent: it has no classes
  bool isLast = false;
  std::optional<double> evaluated; ///< loss of rows that are held out
};

/// The scalars among the outputs, as lines for people, as a log, and for who watches.
class Metrics {
public:
  /// `flags`: of the entry with these outputs.
  Metrics(const std::vector<TensorInfo> &outputs, const StepFlags &flags, int64_t batch,
          const Print &print);
  /// Tells whether the run must stop where something is not finite.
  bool stopsWhereNotFinite() const;
  /// Answers whoever asks at this address from now on (MetricsServer.h).
  Expected<void> serve(const std::string &address);
  /// Lines for people come at most once a second, but for the first, the last, and those
  /// that say what an evaluation gave.
  Expected<void> step(const StepDone &done, const std::vector<HostTensor> &outputs);
  /// The loss of an evaluation behind the last step of the log, which a stop had left
  /// out.
  Expected<void> evaluatedBehind(int64_t step, double loss);
  /// Names and values of the scalars that are infinite or no number, and of the one by
  /// which a step that must stop says that something was; empty: there are none, or the
  /// step was skipped, whose states are those before.
  std::string notFinite(const std::vector<HostTensor> &outputs) const;
  StepLog log;

private:
  struct Scalar {
    size_t output;
    std::string name;
    enum Role { Value, Skipped, Stop } role;
  };
  bool isSkipped(const std::vector<HostTensor> &outputs) const;
  void count(const StepDone &done, const std::vector<HostTensor> &outputs);
  std::string line(const StepDone &done, const std::vector<HostTensor> &outputs) const;
  std::string json(const StepDone &done, const std::vector<HostTensor> &outputs) const;
  std::string page(const StepDone &done, const std::vector<HostTensor> &outputs) const;

  using Clock = std::chrono::steady_clock;
  std::vector<Scalar> scalars;
  int64_t batch;
  const Print &print;
  Clock::time_point printed = Clock::now();
  /// Sums over steps.
  struct Sums {
    double seconds = 0;
    int64_t steps = 0, labels = 0, skipped = 0;
  };
  Sums since, all; ///< the last line; the begin of the run
  bool isFirst = true;
  std::optional<std::pair<int64_t, double>> evaluated; ///< the last one: step, loss
  std::unique_ptr<MetricsServer> server;
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_METRICS_H
