//===- Worker.h - One job at a time beside the caller -----------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_CHECKPOINT_WORKER_H
#define PARTITA_LIB_RUNTIME_CHECKPOINT_WORKER_H

#include "partita/Base/Error.h"

#include <functional>
#include <memory>

namespace partita::runtime {

/// Does one job after the other, each in a thread of its own. Where the object goes while
/// a job is stuck, the thread stays behind with what the job holds.
class Worker {
public:
  Worker();
  ~Worker();

  /// Not while a job is under way. The result is an error where the system has no more
  /// threads.
  void give(std::function<Expected<void>()> job);
  bool isBusy() const;
  /// Waits at most so long for the job.
  void waitFor(double seconds) const;
  /// Result of the last job; once.
  Expected<void> takeResult();
  /// Within a job: the rest of it leaves the processor to others who want it.
  static void stepBack();

private:
  struct Shared;
  static void *serve(void *given);
  std::shared_ptr<Shared> shared;
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_CHECKPOINT_WORKER_H
