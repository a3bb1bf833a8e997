//===- StateCopies.cpp - States copied while requests run -----------------===//
#include "partita/Runtime/StateCopies.h"

#include "ExecutorOp.h"

#include <algorithm>
#include <map>

using namespace partita;
using namespace partita::runtime;

void StateCopy::make() {
  uint32_t seen = Open;
  if (stage.compare_exchange_strong(seen, UnderWay, std::memory_order_acquire)) {
    copy();
    // Their memory may go.
    copy = nullptr, place = nullptr;
    stage.store(Made, std::memory_order_release);
    stage.notify_all();
    return;
  }
  for (; seen != Made; seen = stage.load(std::memory_order_acquire))
    stage.wait(seen, std::memory_order_acquire);
}

void StateCopy::await() {
  if (stage.load(std::memory_order_acquire) == Made)
    return;
  double begin = now();
  make();
  seconds.store(waited() + now() - begin, std::memory_order_relaxed);
}

void StateCopies::add(int rank, uint32_t order, std::shared_ptr<StateCopy> copy) {
  auto behind = std::ranges::upper_bound(entries, order, {}, &Entry::order);
  entries.insert(behind, {rank, order, std::move(copy)});
}

void StateCopies::make() const {
  for (const Entry &entry : entries)
    entry.copy->make();
}

double StateCopies::waited() const {
  std::map<int, double> byRank;
  double most = 0;
  for (const Entry &entry : entries)
    most = std::max(most, byRank[entry.rank] += entry.copy->waited());
  return most;
}

//===----------------------------------------------------------------------===//
// The rank's side
//===----------------------------------------------------------------------===//

/// The state at an operand; null: it lies in none.
RankMemory::State *Executor::stateAt(int64_t buffer) const {
  return buffer < 0 ? nullptr : stateOf[static_cast<size_t>(buffer)];
}

void Executor::findWrites(Op &op, const TaskView &task) {
  auto [begin, end] = task::writtenOperands(task.params, task.operands.size());
  for (size_t k = begin; k < end; ++k)
    if (RankMemory::State *state = stateAt(task.operands[k])) {
      op.writes.push_back(state);
      state->firstWriter = std::min(state->firstWriter, op.index);
    }
}

bool Executor::isReadableMeanwhile(size_t tensor) const {
  return device.isHost() && !program->table().tensor(tensor).roll;
}

void Executor::copyMeanwhile(size_t tensor, StateCopies &copies,
                             std::function<void(uint32_t, const std::byte *)> make) {
  uint32_t buffer = program->table().tensor(tensor).buffer;
  RankMemory::State *state = stateAt(buffer);
  if (!state) // without bytes
    return;
  auto all = [place = placeOf(tensor, 0), make = std::move(make),
              at = program->table().buffers()[buffer]] {
    for (uint32_t s = 0; s < at.slots; ++s)
      make(s, place + s * at.slotStride);
  };
  // Copies that nobody has waited for must not lose who sees to them.
  state->awaitCopy();
  state->copy = std::make_shared<StateCopy>(state->block, std::move(all));
  copies.add(transport.rank(), state->firstWriter, state->copy);
}

void Executor::awaitCopy(size_t tensor) {
  if (RankMemory::State *state = stateAt(program->table().tensor(tensor).buffer))
    state->awaitCopy();
}
