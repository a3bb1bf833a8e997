//===- InFlight.h - Calls between their start and their wait ----*- C++ -*-===//
#ifndef PARTITA_LIB_BASE_BUNDLE_INFLIGHT_H
#define PARTITA_LIB_BASE_BUNDLE_INFLIGHT_H

#include "partita/Base/Bundle/TaskTable.h"

#include <map>
#include <string>

namespace partita {

/// Follows the handles of one segment, task by task. A table that passes starts and waits
/// for each handle in turn, and no task touches what a call in flight fills, or writes
/// what one reads.
class InFlight {
public:
  /// `numTasks` bounds the handles: tables of handles stay as small as the table.
  InFlight(const TaskTable &table, size_t numTasks)
      : table(table), buffers(table.buffers()), numTasks(numTasks) {}

  /// What is wrong with the next task; its operands have been checked.
  Expected<void> next(const TaskView &task);
  bool isAny() const { return !flying.empty(); }
  /// Those that are in flight, ascending.
  std::vector<uint32_t> handles() const;
  /// What is wrong with the end of the segment.
  Expected<void> end() const;

private:
  Expected<void> checkWritten(const TaskView &task) const;
  Expected<void> apart(std::span<const int32_t> operands, size_t items) const;
  Expected<void> wait(const TaskView &task, uint32_t handle);
  bool overlap(int32_t a, int32_t b) const;

  const TaskTable &table;
  std::span<const BufferView> buffers;
  size_t numTasks;
  std::map<uint32_t, std::span<const int32_t>> flying; ///< source and target of
                                                       ///< each item, by handle
};

} // namespace partita

#endif // PARTITA_LIB_BASE_BUNDLE_INFLIGHT_H
