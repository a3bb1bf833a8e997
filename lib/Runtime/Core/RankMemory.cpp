//===- RankMemory.cpp - What the executors of one rank share --------------===//
#include "ExecutorOp.h"

#include <algorithm>
#include <cstring>

using namespace partita;
using namespace partita::runtime;

void RankMemory::reserve(const TaskTable &table) {
  for (Space space : {Space::Arena, Space::Io, Space::Host}) {
    uint64_t &bytes = reserved[static_cast<size_t>(space)];
    bytes = std::max(bytes, table.bytesOf(space));
  }
}

Expected<Memory> runtime::callMemory(Transport &transport, Device &device, Space space,
                                     uint64_t bytes) {
  if (!device.isHost())
    return device.allocate(space, bytes);
  auto memory = transport.memory(bytes);
  return memory && !*memory ? device.allocate(space, bytes) : memory;
}

Expected<Memory> RankMemory::region(Space space, uint64_t bytes, Device &device,
                                    Transport &transport) {
  Memory &known = regions[static_cast<size_t>(space)];
  uint64_t &size = reserved[static_cast<size_t>(space)];
  if (known && bytes <= size)
    return known;
  size = std::max(size, bytes);
  auto made = callMemory(transport, device, space, size);
  if (made)
    known = *made;
  return made;
}

Expected<RankMemory::State *> RankMemory::state(const TaskTable &table,
                                                const TensorView &tensor, Device &device,
                                                Transport &transport) {
  const BufferView &buffer = table.buffers()[tensor.buffer];
  uint64_t bytes = buffer.end() - buffer.offset;
  std::string is = std::string(name(tensor.type)) + " " +
                   table.layoutOf(tensor).str(table.mesh()) + " on " +
                   table.mesh().str() + ", " + std::to_string(buffer.slots) + " × " +
                   std::to_string(buffer.slotStride);
  // By how much it moves on is the entry's.
  if (tensor.roll)
    is += ", rolls in " + std::to_string(tensor.roll->capacity) + " rows of dim " +
          std::to_string(tensor.roll->dim);
  auto found = states.find(tensor.name);
  if (found == states.end()) {
    auto block = callMemory(transport, device, Space::State, bytes);
    if (!block)
      return tl::unexpected(block.error());
    found = states.try_emplace(std::string(tensor.name), State{is, *block}).first;
  }
  if (found->second.is != is)
    return makeError("state '" + std::string(tensor.name) + "' is " + is +
                     " in one entry point and " + found->second.is + " in another");
  return &found->second;
}

/// A buffer of the region goes with the state in which it lies, wherever that is. One
/// without bytes has no address.
Expected<void> Executor::placeStates() {
  const TaskTable &table = program->table();
  auto buffers = table.buffers();
  std::map<uint64_t, RankMemory::State *> places; // by offset in the region
  for (size_t i = 0; i < table.numTensors(); ++i) {
    const TensorView &t = table.tensor(i);
    if (t.role != Role::State)
      continue;
    auto state = options.memory->state(table, t, device, transport);
    if (!state)
      return tl::unexpected(state.error());
    if (t.roll)
      rolling.push_back({i, *state, table.rowsOf(t)});
    if (const BufferView &own = buffers[t.buffer]; own.end() != own.offset)
      places[own.offset] = *state;
  }
  // The table's reader has seen that each lies in a state.
  stateOf.resize(buffers.size());
  for (size_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b].space != Space::State || buffers[b].end() == buffers[b].offset)
      continue;
    auto state = std::prev(places.upper_bound(buffers[b].offset));
    address[b] = state->second->block.get() + (buffers[b].offset - state->first);
    stateOf[b] = state->second;
  }
  return {};
}

Expected<void> Executor::resetStates() {
  const TaskTable &table = program->table();
  for (size_t i = 0; i < table.numTensors(); ++i) {
    const TensorView &t = table.tensor(i);
    if (t.role != Role::State)
      continue;
    const BufferView &buffer = table.buffers()[t.buffer];
    auto bytes = static_cast<int64_t>(buffer.end() - buffer.offset);
    awaitCopy(i);
    RowsWork zeros{.outer = 1, .to = bytes, .targetSkip = bytes};
    if (!device.rows(*work, zeros, nullptr, placeOf(i, 0)) || !device.finish(*work))
      return tl::unexpected(deviceFailure());
    for (Rolling &it : rolling)
      if (it.tensor == i)
        it.state->base = 0;
    if (t.fileBytes == 0)
      continue;
    if (auto ok = checkFile(t); !ok)
      return makeError("rank " + std::to_string(transport.rank()) + ", state '" +
                       std::string(t.name) + "': " + ok.error().message);
    // In every slot the same.
    for (uint32_t s = 0; s < buffer.slots; ++s)
      if (auto ok = fetch(i, placeOf(i, s)); !ok)
        return makeError("rank " + std::to_string(transport.rank()) + ", state '" +
                         std::string(t.name) + "': " + ok.error().message);
  }
  return {};
}
