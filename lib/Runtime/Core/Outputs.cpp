//===- Outputs.cpp - Outputs of all ranks come together -------------------===//
#include "Outputs.h"

#include <algorithm>
#include <utility>

using namespace partita;
using namespace partita::runtime;

Outputs::Outputs(const Stages &stages, std::string what,
                 std::span<const TensorInfo> tensors,
                 std::span<const Interface::Bound> givers, bool local)
    : stages(stages), what(std::move(what)), tensors(tensors), givers(givers),
      local(local) {
  for (size_t k = 0; k < givers.size() && !local; ++k) {
    const TaskTable &table = stages[givers[k].stage]->table();
    const TensorView &t = table.tensor(givers[k].tensor);
    const Layout &layout = table.layoutOf(t);
    std::vector<bool> given(static_cast<size_t>(product(layout.shardingAxes())), false);
    auto &list = parts.emplace_back();
    for (int64_t place = 0; place < table.mesh().numRanks(); ++place) {
      auto block =
          static_cast<size_t>(table.mesh().coordinate(place, layout.shardingAxes()));
      if (given[block])
        continue;
      given[block] = true;
      list.push_back({static_cast<int>(table.worldRank(place)),
                      SliceCopy(table.mesh(), layout, place, byteWidth(t.type))});
      staging.resize(std::max<size_t>(staging.size(), list.back().slice.localBytes()));
    }
  }
}

/// Every part is a step: whoever waits for one that does not come must be seen to.
void Outputs::step(RankProgress &progress, size_t stage, RankProgress::State state,
                   int rank) {
  const TaskTable &table = stages[stage]->table();
  from.store(rank);
  progress.step(state,
                static_cast<uint32_t>(table.numTasks() + table.transfers().size()));
}

/// Slot by slot, as they lie apart at the sender.
bool Outputs::receive(size_t output, const Part &part, Executor &executor,
                      Transport &transport, std::byte *to) {
  const Interface::Bound &giver = givers[output];
  const TaskTable &table = stages[giver.stage]->table();
  const TensorView &t = table.tensor(giver.tensor);
  uint32_t slots = table.buffers()[t.buffer].slots;
  uint64_t whole = tensors[output].bytes() / slots;
  for (uint32_t s = 0; s < slots; ++s) {
    const std::byte *data = staging.data();
    if (part.rank == 0)
      data = executor.local(giver.tensor, s);
    bool ok = part.rank == 0
                  ? data != nullptr
                  : transport.receiveFrom(part.rank, staging.data(),
                                          static_cast<int64_t>(part.slice.localBytes()));
    if (!ok)
      return false;
    part.slice.toGlobal(data, to + s * whole);
  }
  return true;
}

bool Outputs::gather(size_t output, Executor &executor, size_t stage,
                     Transport &transport, RankProgress &progress, std::byte *to) {
  const Interface::Bound &giver = givers[output];
  bool ok = true;
  step(progress, stage, RankProgress::Waiting, -1);
  if (transport.rank() != 0 && giver.stage == stage && executor.owns(giver.tensor)) {
    uint32_t buffer = stages[stage]->table().tensor(giver.tensor).buffer;
    for (uint32_t s = 0; s < stages[stage]->table().buffers()[buffer].slots; ++s) {
      const std::byte *part = executor.local(giver.tensor, s);
      ok &= part && transport.sendToRoot(
                        part, static_cast<int64_t>(executor.localBytes(giver.tensor)));
    }
  }
  for (const Part &part : parts[output]) {
    if (transport.rank() != 0)
      break;
    if (part.rank != 0)
      step(progress, stage, RankProgress::Waiting, part.rank);
    ok = ok && receive(output, part, executor, transport, to);
  }
  return ok;
}

Expected<void> Outputs::deliver(size_t k, Executor &executor, size_t stage,
                                Transport &transport, RankProgress &progress,
                                std::byte *to) {
  const Interface::Bound &giver = givers[k];
  if (!local && !gather(k, executor, stage, transport, progress, to))
    return makeError("rank " + std::to_string(transport.rank()) + ": sending " + what +
                     " '" + tensors[k].name + "' failed");
  if (local && giver.stage == stage && executor.owns(giver.tensor))
    return executor.getOutput(giver.tensor, to);
  return {};
}

Expected<void> Outputs::deliverAll(Executor &executor, size_t stage, Transport &transport,
                                   RankProgress &progress,
                                   std::span<std::byte *const> to) {
  for (size_t k = 0; k < givers.size(); ++k)
    if (auto ok = deliver(k, executor, stage, transport, progress, to[k]); !ok)
      return ok;
  if (local)
    return {};
  // Messages of a rank that is far ahead would pile up with one that is slow.
  constexpr uint64_t mostAhead = 4;
  step(progress, stage, RankProgress::Waiting, -1);
  bool ok = ++sent % mostAhead != 0 || transport.barrier();
  step(progress, stage, RankProgress::Idle, -1);
  if (!ok)
    return makeError("rank " + std::to_string(transport.rank()) +
                     ": the barrier with the other ranks failed");
  return {};
}

//===----------------------------------------------------------------------===//
// Requests that follow each other
//===----------------------------------------------------------------------===//

bool Outputs::eachPart(int rank, const PartVisit &visit) const {
  for (size_t k = 0; k < parts.size(); ++k) {
    const TaskTable &table = stages[givers[k].stage]->table();
    uint32_t slots = table.buffers()[table.tensor(givers[k].tensor).buffer].slots;
    for (const Part &part : parts[k])
      for (uint32_t s = 0; s < slots && (rank == 0 || part.rank == rank); ++s)
        if (!visit(k, part, s))
          return false;
  }
  return true;
}

/// The place of a slot in the whole tensor.
std::byte *Outputs::slotOf(size_t output, uint32_t slot, std::byte *to) const {
  const TaskTable &table = stages[givers[output].stage]->table();
  uint32_t slots = table.buffers()[table.tensor(givers[output].tensor).buffer].slots;
  return to + slot * (tensors[output].bytes() / slots);
}

void Outputs::reserve(size_t requests, int rank) {
  size_t bytes = 0;
  eachPart(rank, [&](size_t, const Part &part, uint32_t) {
    bytes += part.rank == 0 ? 0 : part.slice.localBytes();
    return true;
  });
  onTheWay.resize(requests);
  for (std::vector<std::byte> &room : onTheWay)
    room.resize(bytes);
}

Expected<void> Outputs::begin(size_t later, Executor &executor, size_t stage,
                              Transport &transport, RankProgress &progress,
                              std::span<std::byte *const> to) {
  if (local) {
    for (size_t k = 0; k < givers.size(); ++k)
      if (auto ok = deliver(k, executor, stage, transport, progress, to[k]); !ok)
        return ok;
    return {};
  }
  step(progress, stage, RankProgress::Waiting, -1);
  const int rank = transport.rank();
  std::byte *at = onTheWay[later].data();
  std::string_view failed;
  bool ok = eachPart(rank, [&](size_t k, const Part &part, uint32_t slot) {
    failed = tensors[k].name;
    const auto bytes = part.slice.localBytes();
    const std::byte *mine =
        part.rank == rank ? executor.local(givers[k].tensor, slot) : nullptr;
    if (part.rank == rank && !mine)
      return false;
    if (part.rank == 0) {
      part.slice.toGlobal(mine, slotOf(k, slot, to[k]));
      return true;
    }
    std::byte *own = std::exchange(at, at + bytes);
    if (rank == 0)
      return transport.beginReceiveFrom(part.rank, own, static_cast<int64_t>(bytes),
                                        later);
    std::copy_n(mine, bytes, own);
    return transport.beginSendToRoot(own, static_cast<int64_t>(bytes), later);
  });
  if (!ok)
    return makeError("rank " + std::to_string(rank) + ": sending " + what + " '" +
                     std::string(failed) + "' failed");
  return {};
}

void Outputs::take(size_t later, const Transport &transport,
                   std::span<std::byte *const> to) {
  if (local || transport.rank() != 0)
    return;
  const std::byte *at = onTheWay[later].data();
  eachPart(0, [&](size_t k, const Part &part, uint32_t slot) {
    if (part.rank != 0)
      part.slice.toGlobal(std::exchange(at, at + part.slice.localBytes()),
                          slotOf(k, slot, to[k]));
    return true;
  });
}
