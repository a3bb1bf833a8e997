//===- Nesting.h - Loops and skipped parts of a segment ---------*- C++ -*-===//
#ifndef PARTITA_LIB_BASE_BUNDLE_NESTING_H
#define PARTITA_LIB_BASE_BUNDLE_NESTING_H

#include "InFlight.h"

namespace partita {

/// Follows the ranges of tasks that repeat or may be skipped, task by task: they nest,
/// stay in their segment, and leave in flight what they found in flight.
class Nesting {
public:
  explicit Nesting(size_t numTasks) : numTasks(numTasks) {}

  /// Before the task at this place of the segment is looked at; at the end with the
  /// number of tasks. What is wrong with the ranges that end here.
  Expected<void> arrive(size_t place, const InFlight &flights);
  /// Behind the task: a range that begins with it.
  Expected<void> enter(size_t place, const TaskView &task, const InFlight &flights);

  /// Whether the next task is in one of them, or behind the last task of one that has not
  /// been left.
  bool isOpen() const { return !open.empty(); }

  /// How far behind the beginning of its buffer each operand of the task comes, in bytes;
  /// an error if a move is none.
  Expected<std::vector<uint64_t>> reach(const TaskView &task) const;

private:
  struct Range {
    size_t end;
    int64_t trips; ///< 0: it is skipped or not
    std::vector<uint32_t> flying;
  };
  Expected<void> checkMove(const TaskView &task, const task::Move &move,
                           const std::vector<int64_t> &loops) const;

  size_t numTasks;
  std::vector<Range> open; ///< the innermost last
};

} // namespace partita

#endif // PARTITA_LIB_BASE_BUNDLE_NESTING_H
