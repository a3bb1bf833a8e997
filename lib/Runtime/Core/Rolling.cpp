//===- Rolling.cpp - States whose rows stay where they are ----------------===//
//
// A request of a state that rolls writes its new rows behind the window and leaves the
// window some rows further on. At the end of its place the window moves to the front.
//
//===----------------------------------------------------------------------===//
#include "ExecutorOp.h"

#include <algorithm>
#include <utility>

using namespace partita;
using namespace partita::runtime;

/// Which addresses lie in which state. Behind prepareSchedule.
void Executor::prepareRolling() {
  const TaskTable &table = program->table();
  if (rolling.empty())
    return;
  std::vector<Rolling *> byTensor(table.numTensors());
  for (Rolling &it : rolling)
    byTensor[it.tensor] = &it;
  auto rollingOf = [&](int32_t buffer) -> Rolling * {
    int32_t tensor =
        buffer < 0 ? -1 : table.buffers()[static_cast<size_t>(buffer)].rolling;
    return tensor < 0 ? nullptr : byTensor[static_cast<size_t>(tensor)];
  };
  for (size_t i = 0; i < ops.size(); ++i) {
    const TaskView task = table.task(ops[i].index);
    for (size_t k = 0; k < ops[i].addresses.size(); ++k)
      if (Rolling *it = rollingOf(task.operands[ops[i].operandOf(k, task)]))
        it->operands.emplace_back(i, k);
  }
  for (size_t s = 0; s < slotted.size(); ++s)
    for (size_t n = 0; n < slotted[s].size(); ++n) {
      const Slotted &at = slotted[s][n];
      const TaskView task = table.task(ops[at.op].index);
      if (Rolling *it = rollingOf(task.operands[ops[at.op].operandOf(at.operand, task)]))
        it->slotted.emplace_back(s, n);
    }
}

/// Moves the window to the front of its place, in pieces that do not reach into their
/// targets.
bool Executor::moveToFront(Rolling &it) noexcept {
  const RollingRows &rows = it.rows;
  const TaskTable &table = program->table();
  auto rowBytes = static_cast<int64_t>(rows.rowBytes);
  auto stride = static_cast<int64_t>(rows.stride());
  int64_t base = std::exchange(it.state->base, 0);
  for (uint32_t s = 0; s < table.buffers()[table.tensor(it.tensor).buffer].slots; ++s)
    for (int64_t row = 0; row < rows.window; row += base) {
      int64_t bytes = std::min(base, rows.window - row) * rowBytes;
      RowsWork move{.outer = rows.outer, .skip = stride, .from = bytes, .to = bytes};
      move.targetSkip = stride;
      move.parts = partsOf(move);
      std::byte *to = placeOf(it.tensor, s) + row * rowBytes;
      if (!device.rows(*work, move, to + base * rowBytes, to))
        return false;
    }
  return true;
}

/// Makes room for the rows of a request, and addresses what the state is now.
bool Executor::beginRolling() noexcept {
  for (Rolling &it : rolling) {
    if (it.state->base > it.rows.mostBase() && !moveToFront(it))
      return false;
    int64_t way = (it.state->base - it.applied) * static_cast<int64_t>(it.rows.rowBytes);
    it.applied = it.state->base;
    if (way == 0)
      continue;
    for (auto [op, k] : it.operands) {
      void *&address = ops[op].addresses[k];
      address = static_cast<std::byte *>(address) + way;
    }
    for (auto [segment, n] : it.slotted)
      slotted[segment][n].first += way;
  }
  return true;
}

void Executor::endRolling() noexcept {
  for (Rolling &it : rolling)
    it.state->base += it.rows.advance;
}

/// The window of one slot, as a dense tensor of the host: out of the state, or into it.
bool Executor::copyRows(size_t tensor, uint32_t slot, std::byte *to,
                        const std::byte *from) {
  auto found = std::ranges::find(rolling, tensor, &Rolling::tensor);
  const RollingRows &rows = found->rows;
  // Rows that have no padding are one piece.
  bool isDense = rows.ownBytes == rows.rowBytes;
  int64_t pieces = isDense ? 1 : rows.window;
  uint64_t bytes =
      isDense ? static_cast<uint64_t>(rows.window) * rows.rowBytes : rows.ownBytes;
  std::byte *base =
      placeOf(tensor, slot) + static_cast<uint64_t>(found->state->base) * rows.rowBytes;
  uint64_t begin = 0;
  for (int64_t o = 0; o < rows.outer; ++o, base += rows.stride())
    for (int64_t row = 0; row < pieces; ++row, begin += bytes) {
      std::byte *at = base + static_cast<uint64_t>(row) * rows.rowBytes;
      if (!(to ? device.copy(*work, to + begin, at, bytes)
               : device.copy(*work, at, from + begin, bytes)))
        return false;
    }
  return true;
}
