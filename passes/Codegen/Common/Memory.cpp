//===- Memory.cpp - Places of a program's storages ------------------------===//
#include "passes/Codegen/Common/Memory.h"

#include "partita/Base/Layout/SliceCopy.h"
#include "passes/Codegen/Common/BufferPlan.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace partita;
using namespace partita::codegen;

Memory codegen::placeStorages(const Program &program) {
  Memory memory;
  memory.offsets.resize(program.storages.size());
  auto end = static_cast<int64_t>(program.tasks.size());
  std::vector<Interval> lives(program.storages.size(), {0, end, -1});
  for (size_t t = 0; t < program.tasks.size(); ++t)
    for (const Place &place : program.tasks[t].operands)
      if (place.storage >= 0) {
        Interval &life = lives[static_cast<size_t>(place.storage)];
        life.first = std::min(life.first, static_cast<int64_t>(t));
        life.last = static_cast<int64_t>(t);
      }
  std::vector<Interval> arena;
  std::vector<size_t> which;
  for (size_t s = 0; s < program.storages.size(); ++s) {
    const Storage &storage = program.storages[s];
    uint64_t bytes = storage.allBytes();
    if (storage.space == Space::Weight) {
      memory.offsets[s] = memory.weightBytes;
      memory.weightBytes += (bytes + PARTITA_BUFFER_ALIGNMENT - 1) /
                            PARTITA_BUFFER_ALIGNMENT * PARTITA_BUFFER_ALIGNMENT;
      continue;
    }
    Interval life = lives[s];
    if (storage.input)
      life.first = -1;
    if (storage.output)
      life.last = end;
    if (storage.shared)
      life.first = -1, life.last = end;
    if (life.first > life.last)
      continue; // touched by no task
    life.bytes = bytes;
    arena.push_back(life);
    which.push_back(s);
  }
  BufferPlan plan = planBuffers(arena, PARTITA_BUFFER_ALIGNMENT);
  for (size_t i = 0; i < which.size(); ++i)
    memory.offsets[which[i]] = plan.offsets[i];
  memory.arenaBytes = plan.total;
  memory.arenaLowerBound = lowerBound(arena, PARTITA_BUFFER_ALIGNMENT);
  return memory;
}

/// Per storage: whether some task reads it other than in packed form.
static std::vector<bool> readAsStored(const Program &program) {
  std::vector<bool> read(program.storages.size(), false);
  for (const Task &task : program.tasks)
    for (size_t i = 0; i < task.operands.size(); ++i)
      if (int storage = task.operands[i].storage;
          storage >= 0 && static_cast<int>(i) != task.packedOperand)
        read[static_cast<size_t>(storage)] = true;
  return read;
}

/// Whether ranks use the weight where its file is mapped, as the runtime does with
/// aligned runs. Looks at the first block: of an uneven dim the last ones are copies.
static bool isUsedInPlace(const TensorSpec &spec, const Layout &layout,
                          const Mesh &mesh) {
  SliceCopy slice(mesh, layout, 0, byteWidth(spec.type));
  auto blocks = static_cast<uint64_t>(product(layout.shardingAxes()));
  return slice.contiguous() && spec.fileOffset % PARTITA_BUFFER_ALIGNMENT == 0 &&
         (blocks == 1 || slice.localBytes() % PARTITA_BUFFER_ALIGNMENT == 0);
}

/// What the MPI transport collects in for one reduction: every member's copy of the part
/// that a rank reduces.
static int64_t stagingBytes(const Task &task) {
  auto of = [](const auto &p, int64_t outer, int64_t elements) {
    int64_t members = product(p.group);
    auto width = static_cast<int64_t>(byteWidth(static_cast<DType>(p.dtype)));
    int64_t part = (elements + members - 1) / members;
    return members > 1 ? members * ((outer * part * width + 63) / 64 * 64) : 0;
  };
  if (auto *p = std::get_if<task::AllReduce>(&task.params))
    return of(*p, 1, p->count);
  if (auto *p = std::get_if<task::ReduceScatter>(&task.params))
    return of(*p, p->outer, p->block * product(p->group));
  return 0;
}

PlanMemory codegen::residentMemory(const Program &program, const Memory &memory) {
  PlanMemory plan;
  int64_t ranks = program.mesh.numRanks(), largestPart = 0;
  plan.arena = static_cast<int64_t>(memory.arenaBytes);
  plan.process = ranks * plan.arena;
  std::vector<bool> read = readAsStored(program);
  std::vector<int64_t> blocks(program.storages.size(), 1);
  for (const TensorEntry &entry : program.tensors) {
    const TensorSpec &spec = entry.spec;
    const Layout &layout = spec.layout;
    auto whole =
        elementCount(layout.globalShape()) * static_cast<int64_t>(byteWidth(spec.type));
    auto storage = static_cast<size_t>(entry.storage);
    auto local = static_cast<int64_t>(program.storages[storage].bytes());
    whole *= program.storages[storage].slots;
    if (spec.role == Role::Input)
      plan.inputs += whole;
    if (spec.role == Role::Output) {
      plan.outputs += whole;
      largestPart = std::max(largestPart, local);
    }
    if (spec.role != Role::Weight)
      continue;
    blocks[storage] = product(layout.shardingAxes());
    if (!read[storage])
      continue;
    plan.weights += local;
    plan.process +=
        local * (isUsedInPlace(spec, layout, program.mesh) ? blocks[storage] : ranks);
  }
  for (auto [storage, bytes] : program.packed) {
    plan.packed += static_cast<int64_t>(bytes);
    plan.process += static_cast<int64_t>(bytes) * blocks[static_cast<size_t>(storage)];
  }
  std::map<uint32_t, int64_t> staging; // what is in flight together is staged apart
  for (const Task &task : program.tasks)
    staging[task.handle] = std::max(staging[task.handle], stagingBytes(task));
  for (auto [handle, bytes] : staging)
    plan.transport += bytes;
  plan.rank = plan.arena + plan.weights + plan.packed + plan.inputs + plan.outputs +
              plan.transport + (ranks > 1 ? largestPart : 0);
  plan.process += plan.inputs + plan.outputs;
  return plan;
}

namespace {
class TableWriter {
public:
  TableWriter(const Program &program, const Memory &memory)
      : program(program), memory(memory), table(program.mesh) {}

  std::string run() {
    table.setProgram(program.identity);
    for (const TensorEntry &entry : program.tensors) {
      TensorSpec spec = entry.spec;
      spec.buffer = whole(entry.storage);
      table.addTensor(spec);
    }
    for (size_t s = 0; s < program.segments.size(); ++s) {
      const ProgramSegment &segment = program.segments[s];
      SegmentSpec spec{segment.name, segment.once, {}, {}};
      for (int storage : segment.reads)
        spec.reads.push_back(whole(storage));
      for (int storage : segment.writes)
        spec.writes.push_back(whole(storage));
      table.addSegment(std::move(spec));
      size_t end = s + 1 < program.segments.size() ? program.segments[s + 1].firstTask
                                                   : program.tasks.size();
      for (size_t t = segment.firstTask; t < end; ++t)
        add(program.tasks[t]);
    }
    for (const ProgramTransfer &transfer : program.transfers) {
      TransferSpec spec = transfer.spec;
      spec.buffer = whole(transfer.storage);
      table.addTransfer(std::move(spec));
    }
    for (const schedule::Schedule &schedule : program.schedules)
      table.addSchedule(schedule);
    table.setMemory(memory.arenaBytes, memory.weightBytes, program.packedBytes());
    return table.finish();
  }

private:
  uint32_t whole(int storage) {
    return static_cast<uint32_t>(
        buffer({storage, 0, program.storages[static_cast<size_t>(storage)].bytes()}));
  }

  int64_t buffer(const Place &place) {
    if (place.storage < 0)
      return -1;
    auto key = std::tuple(place.storage, place.offset, place.bytes);
    auto [found, added] = buffers.try_emplace(key, 0);
    if (added) {
      auto s = static_cast<size_t>(place.storage);
      const Storage &storage = program.storages[s];
      found->second = table.addBuffer(storage.space, memory.offsets[s] + place.offset,
                                      place.bytes, storage.stride(), storage.slots);
    }
    return found->second;
  }

  void add(const Task &task) {
    TaskSpec spec{task.source, {}, task.params, {}, task.handle};
    for (const Place &place : task.operands)
      spec.operands.push_back(buffer(place));
    if (auto *kernel = std::get_if<task::Kernel>(&spec.params))
      kernel->kernel = table.addKernel(kernelSymbol(kernel->kernel));
    if (auto *exchange = std::get_if<task::Exchange>(&spec.params)) {
      exchange->before = table.addLayout(task.layouts[0]);
      exchange->after = table.addLayout(task.layouts[1]);
    }
    if (auto *halo = std::get_if<task::Halo>(&spec.params)) {
      halo->before = table.addLayout(task.layouts[0]);
      halo->positions = table.addLayout(task.layouts[1]);
    }
    for (const RankValueSpec &value : task.rankValues)
      spec.rankValues.push_back(table.addRankValue(value));
    table.addTask(std::move(spec));
  }

  const Program &program;
  const Memory &memory;
  TaskTableBuilder table;
  std::map<std::tuple<int, uint64_t, uint64_t>, int64_t> buffers;
};
} // namespace

std::string codegen::buildTable(const Program &program, const Memory &memory) {
  return TableWriter(program, memory).run();
}
