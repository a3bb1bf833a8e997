//===- CallTimeline.h - Calls in flight beside a rank's tasks ---*- C++ -*-===//
//
// How long a rank takes if its calls take so long at least, as on slower links. Tasks run
// one after the other. A call that is started goes on beside them, behind those that were
// started before it, and is waited for by its own task:
//
//   rank    start A  kernel  start B  kernel  wait A  wait B
//   links   AAAAAAAAAAAAAAAAAAAAAAAAA BBBBBBBBBBBBBB
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_COMM_CALLTIMELINE_H
#define PARTITA_COMM_CALLTIMELINE_H

#include <cstdint>
#include <vector>

namespace partita {

struct RankTask {
  enum class Kind : uint8_t {
    Compute,
    Call, ///< is over when the task is
    Start,
    Wait
  };
  Kind kind = Kind::Compute;
  double seconds = 0; ///< that the rank was busy with it or waited, measured
  int64_t handle = 0; ///< of Start and Wait: equal for the two
};

struct CallTimeline {
  double seconds = 0; ///< from the first task's begin to the last one's end
  double inCalls = 0; ///< that calls take at least, together
  int64_t calls = 0;  ///< Call and Start
};

/// The tasks of a rank in their order, where each call takes at least so many seconds: it
/// is over no earlier than that behind its start, and behind the one before it. A call
/// that took longer when it was measured takes as long as it did.
CallTimeline simulateCalls(const std::vector<RankTask> &tasks, double least);

} // namespace partita

#endif // PARTITA_COMM_CALLTIMELINE_H
