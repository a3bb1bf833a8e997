//===- RankSchedule.cpp - Preparing the schedule of one rank --------------===//
#include "ExecutorOp.h"

#include <algorithm>

using namespace partita;
using namespace partita::runtime;

Expected<Executor::Moving> Executor::prepareMoving(schedule::Flight flight) {
  const TaskTable &table = program->table();
  auto index = static_cast<size_t>(flight.transfer);
  const TransferView &t = table.transfers()[index];
  // Others of its ranks may be at an earlier one.
  const auto number = static_cast<uint32_t>(table.numTasks() + index);
  options.progress->step(RankProgress::Waiting, number);
  auto call = transport.prepareTransfer(table, index, flight.microBatch);
  options.progress->step(RankProgress::Loading, number);
  if (!call)
    return makeError("transfer '" + std::string(t.name) + "': " + call.error().message);
  RankMemory::State *written = t.sends ? nullptr : stateAt(t.buffer);
  const BufferView &buffer = table.buffers()[t.buffer];
  auto slot = static_cast<uint64_t>(flight.microBatch) % buffer.slots;
  std::byte *place = address[t.buffer] + slot * buffer.slotStride;
  Moving moving{index, flight.microBatch, *call, {}};
  moving.written = written;
  moving.places[t.sends ? 0 : 1] = place;
  const uint64_t bytes[] = {buffer.bytes, buffer.bytes};
  moving.staged = stage(moving.places, bytes);
  return moving;
}

Expected<void> Executor::prepareSchedule() {
  for (const schedule::Entry &from : program->table().scheduleOf(meshPlace).entries) {
    Entry &entry = entries.emplace_back(Entry{from.segment, from.microBatch, {}, {}});
    for (auto [flights, to] :
         {std::pair(&from.waits, &entry.waits), std::pair(&from.starts, &entry.starts)})
      for (schedule::Flight flight : *flights) {
        auto moving = prepareMoving(flight);
        if (!moving)
          return makeError("rank " + std::to_string(transport.rank()) + ", " +
                           moving.error().message);
        to->push_back(*moving);
      }
  }
  const TaskTable &table = program->table();
  bool hasSlots = std::ranges::any_of(table.buffers(),
                                      [](const BufferView &b) { return b.slots > 1; });
  for (const SegmentView &segment : table.segments()) {
    auto &list = slotted.emplace_back();
    for (size_t i = segment.firstTask;
         hasSlots && i < segment.firstTask + segment.numTasks; ++i) {
      const TaskView task = table.task(i);
      const Op &op = ops[opOf[i]];
      for (size_t k = 0; k < op.addresses.size(); ++k) {
        int32_t buffer = task.operands[op.operandOf(k, task)];
        if (buffer < 0)
          continue;
        const BufferView &view = table.buffers()[static_cast<size_t>(buffer)];
        if (view.slots > 1)
          list.push_back({opOf[i], k, static_cast<std::byte *>(op.addresses[k]),
                          view.slotStride, view.slots});
      }
    }
  }
  return {};
}

/// What moves in which loop.
void Executor::prepareLoops() {
  const TaskTable &table = program->table();
  auto isLoop = [](const Op &op) { return std::holds_alternative<LoopWork>(op.work); };
  if (std::ranges::none_of(ops, isLoop))
    return;
  std::vector<std::pair<size_t, size_t>> open; // loops around a task: op, end
  for (size_t i = 0; i < opOf.size(); ++i) {
    while (!open.empty() && open.back().second <= i)
      open.pop_back();
    Op &op = ops[opOf[i]];
    const TaskView task = table.task(i);
    for (const task::Move &move : task.moves) {
      auto &loop = std::get<LoopWork>(ops[open[open.size() - 1 - move.loop].first].work);
      for (size_t k = 0; k < op.addresses.size(); ++k)
        if (op.operandOf(k, task) == move.operand)
          loop.moving.push_back({opOf[i], k, move.begin, move.stride});
    }
    if (auto *loop = std::get_if<LoopWork>(&op.work))
      open.emplace_back(opOf[i], i + 1 + loop->tasks);
  }
}

void Executor::setSlots(size_t segment, int64_t microBatch) {
  for (const Slotted &operand : slotted[segment])
    ops[operand.op].addresses[operand.operand] =
        operand.first +
        static_cast<uint64_t>(microBatch) % operand.slots * operand.stride;
}
