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
  for (const auto &[handle, operands] : flying)
    for (size_t target = 1; target < operands.size(); target += 2)
      for (int32_t operand : task.operands)
        if (overlap(operand, operands[target]))
          return makeError("it touches what " + numbered(handle) +
                           ", which is in flight, fills");
  if (auto ok = checkWritten(task); !ok)
    return ok;
  const size_t items = std::max<size_t>(task::numItems(task.params), 1);
  if (auto ok = apart(task.operands, items); !ok || task.handle == 0)
    return ok;
  if (!mayFly(task.kind()))
    return makeError("it has a handle, but is neither a collective nor a copy");
  if (task.handle > numTasks)
    return makeError(numbered(task.handle) + " is more than there are tasks");
  // Values that a call reads, behind sources and targets, it has read when it is started.
  const auto own = task.operands.first(2 * items);
  if (!flying.emplace(task.handle, own).second)
    return makeError(numbered(task.handle) + " is in flight already");
  return {};
}

Expected<void> InFlight::checkWritten(const TaskView &task) const {
  if (flying.empty())
    return {};
  auto [begin, end] = task::writtenOperands(task.params, task.operands.size());
  if (task.kind() == TaskKind::Kernel) // behind its operands are values that it reads
    end -= std::min(table.numReadValues(task), end - begin);
  std::vector<int32_t> written;
  for (size_t i = begin; i < end; ++i)
    if (task::numItems(task.params) <= 1 || i % 2 == 1) // sources stand between targets
      written.push_back(task.operands[i]);
  if (isEngineCall(task.kind()))
    written.push_back(task.operands[scratchOperand(task.kind())]);
  for (const auto &[handle, operands] : flying)
    for (size_t source = 0; source < operands.size(); source += 2)
      for (int32_t operand : written)
        if (overlap(operand, operands[source]))
          return makeError("it fills what " + numbered(handle) +
                           ", which is in flight, reads");
  return {};
}

/// Items of one call are reduced and moved in any order.
Expected<void> InFlight::apart(std::span<const int32_t> operands, size_t items) const {
  for (size_t i = 0; i < items && items > 1; ++i)
    for (size_t k = 0; k < 2 * items; ++k)
      if (k / 2 != i && overlap(operands[2 * i + 1], operands[k]))
        return makeError("its item " + std::to_string(i) + " fills what item " +
                         std::to_string(k / 2) + " has");
  return {};
}

Expected<void> InFlight::wait(const TaskView &task, uint32_t handle) {
  auto found = flying.find(handle);
  if (found == flying.end())
    return makeError(numbered(handle) + " is not in flight");
  if (!std::ranges::equal(task.operands, found->second))
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
