//===- StateRoll.cpp - States that roll, in a table that is read ----------===//
#include "StateRoll.h"

#include "RecordReader.h"

using namespace partita;

RollingRows::RollingRows(const std::vector<int64_t> &localShape, DType type,
                         const StateRoll &roll)
    : window(localShape[roll.dim]), capacity(roll.capacity), advance(roll.advance),
      ownBytes(byteWidth(type)) {
  for (size_t d = 0; d < localShape.size(); ++d) {
    if (d < roll.dim)
      outer *= localShape[d];
    if (d > roll.dim)
      ownBytes *= static_cast<uint64_t>(localShape[d]);
  }
  constexpr uint64_t alignment = PARTITA_BUFFER_ALIGNMENT;
  rowBytes = (ownBytes + alignment - 1) / alignment * alignment;
}

Expected<void> partita::checkRoll(const TaskTable &table, const TensorView &t,
                                  const std::string &where) {
  if (!t.roll)
    return {};
  if (t.role != Role::State || t.fileBytes != 0)
    return damaged(where + ": it rolls, and is no state that begins as zeros");
  std::vector<int64_t> shape = table.layoutOf(t).localShape();
  if (t.roll->dim >= shape.size())
    return damaged(where + ": it rolls along dim " + std::to_string(t.roll->dim) +
                   " of " + std::to_string(shape.size()));
  RollingRows rows(shape, t.type, *t.roll);
  if (rows.outer == 0)
    return damaged(where + ": it rolls, and has no rows");
  constexpr int64_t most = int64_t(1) << 48;
  if (rows.advance < 0 || rows.capacity < 0 || rows.capacity > most ||
      rows.advance > rows.capacity || rows.window > rows.capacity - rows.advance)
    return damaged(where + ": it rolls by " + std::to_string(rows.advance) + " of " +
                   std::to_string(rows.capacity) + " rows, and has " +
                   std::to_string(rows.window));
  uint64_t bytes = rows.rowBytes;
  if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(rows.capacity), &bytes) ||
      __builtin_mul_overflow(bytes, static_cast<uint64_t>(rows.outer), &bytes) ||
      table.buffers()[t.buffer].bytes < bytes)
    return damaged(where + ": its buffer is too small to roll in");
  return {};
}

bool partita::staysInRoll(const TaskTable &table, const BufferView &buffer) {
  if (buffer.rolling < 0)
    return true;
  const TensorView &state = table.tensor(static_cast<size_t>(buffer.rolling));
  const BufferView &all = table.buffers()[state.buffer];
  RollingRows rows = table.rowsOf(state);
  // Each slot has the same place in its slot of the state.
  if (buffer.slots != all.slots || buffer.slotStride != all.slotStride)
    return false;
  uint64_t room = rows.bytes() - static_cast<uint64_t>(rows.mostBase()) * rows.rowBytes;
  return buffer.offset - all.offset <= room &&
         buffer.bytes <= room - (buffer.offset - all.offset);
}
