//===- Worker.h - A thread with one job at a time ---------------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_CHECKPOINT_WORKER_H
#define PARTITA_LIB_RUNTIME_CHECKPOINT_WORKER_H

#include "partita/Base/Error.h"

#include <functional>
#include <memory>
#include <optional>

namespace partita::runtime {

/// A thread that does one job after the other. Where the object goes while a job is
/// stuck, the thread stays behind with what the job holds.
class Worker {
public:
  static Expected<Worker> start();
  Worker(Worker &&) noexcept = default;
  Worker &operator=(Worker &&) = delete;
  ~Worker();

  /// Not while a job is under way.
  void give(std::function<Expected<void>()> job);
  bool isBusy() const;
  /// Waits at most so long for the job.
  void waitFor(double seconds) const;
  /// Result of the last job; once.
  Expected<void> takeResult();

private:
  struct Shared;
  explicit Worker(std::shared_ptr<Shared> shared) : shared(std::move(shared)) {}
  static void *serve(void *given);
  std::shared_ptr<Shared> shared;
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_CHECKPOINT_WORKER_H
