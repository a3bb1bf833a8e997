//===- InFlight.cpp - Calls between their start and their wait ------------===//
#include "InFlight.h"

#include <algorithm>

using namespace partita;

static std::string numbered(uint32_t handle) {
  return "handle " + std::to_string(handle);
}

/// Of the same slot: two places with one stride are in one storage, or in two that lie
/// apart.
bool InFlight::overlap(int32_t a, int32_t b) const {
  if (a < 0 || b < 0)
    return false;
  const BufferView &x = buffers[static_cast<size_t>(a)];
  const BufferView &y = buffers[static_cast<size_t>(b)];
  auto end = [&](const BufferView &v) {
    return x.slotStride == y.slotStride ? v.offset + v.bytes : v.end();
  };
  return x.space == y.space && x.bytes != 0 && y.bytes != 0 && x.offset < end(y) &&
         y.offset < end(x);
}

Expected<void> InFlight::next(const TaskView &task) {
  if (auto *p = std::get_if<task::Wait>(&task.params)) {
    if (task.handle != 0)
      return makeError("a wait has no handle of its own");
    return wait(task, p->handle);
  }
  // By the second operand: the target of all collectives and copies.
  for (const auto &[handle, operands] : flying)
    for (int32_t operand : task.operands)
      if (overlap(operand, operands[1]))
        return makeError("it touches what " + numbered(handle) +
                         ", which is in flight, fills");
  if (task.handle == 0)
    return {};
  if (!mayFly(task.kind()))
    return makeError("it has a handle, but is neither a collective nor a copy");
  if (task.handle > numTasks)
    return makeError(numbered(task.handle) + " is more than there are tasks");
  for (const auto &[handle, operands] : flying)
    if (overlap(task.operands[1], operands[0]))
      return makeError("it fills what " + numbered(handle) +
                       ", which is in flight, reads");
  if (!flying.emplace(task.handle, task.operands).second)
    return makeError(numbered(task.handle) + " is in flight already");
  return {};
}

Expected<void> InFlight::wait(const TaskView &task, uint32_t handle) {
  auto found = flying.find(handle);
  if (found == flying.end())
    return makeError(numbered(handle) + " is not in flight");
  // Values that a call reads, behind its two operands, it has read when it is started.
  if (!std::ranges::equal(task.operands, found->second.first(2)))
    return makeError("its operands are not those of " + numbered(handle));
  flying.erase(found);
  return {};
}

std::vector<uint32_t> InFlight::handles() const {
  std::vector<uint32_t> list;
  for (const auto &entry : flying)
    list.push_back(entry.first);
  return list;
}

Expected<void> InFlight::end() const {
  if (flying.empty())
    return {};
  return makeError(numbered(flying.begin()->first) + " is never waited for");
}
