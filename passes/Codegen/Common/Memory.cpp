//===- Memory.cpp - Places of a program's storages ------------------------===//
#include "passes/Codegen/Common/Memory.h"

#include "partita/Base/Layout/SliceCopy.h"
#include "passes/Codegen/Common/BufferPlan.h"
#include "passes/Codegen/Common/KernelFormula.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace partita;
using namespace partita::codegen;

/// The storage in which a window lies, or itself.
static size_t baseOf(const Program &program, int storage) {
  while (program.storages[static_cast<size_t>(storage)].isWindow())
    storage = program.storages[static_cast<size_t>(storage)].window.of;
  return static_cast<size_t>(storage);
}

std::vector<Interval> codegen::livesOf(const Program &program) {
  auto end = static_cast<int64_t>(program.tasks.size());
  std::vector<Interval> lives(program.storages.size(), {0, end, -1});
  for (size_t t = 0; t < program.tasks.size(); ++t)
    for (const Place &place : program.tasks[t].operands)
      if (place.storage >= 0) {
        Interval &life = lives[baseOf(program, place.storage)];
        life.first = std::min(life.first, static_cast<int64_t>(t));
        life.last = static_cast<int64_t>(t);
      }
  for (size_t s = 0; s < program.storages.size(); ++s) {
    const Storage &storage = program.storages[s];
    if (storage.input || storage.shared)
      lives[s].first = -1;
    if (storage.output || storage.shared)
      lives[s].last = end;
  }
  // Inner loops come behind their outer ones.
  for (auto t = static_cast<size_t>(end); t-- > 0;) {
    auto *repeat = std::get_if<task::Repeat>(&program.tasks[t].params);
    if (!repeat)
      continue;
    auto first = static_cast<int64_t>(t), last = first + repeat->tasks;
    for (Interval &life : lives)
      if (life.first <= last && life.last >= first &&
          (life.first <= first || life.last > last)) {
        life.first = std::min(life.first, first);
        life.last = std::max(life.last, last);
      }
  }
  return lives;
}

namespace {
/// Storages of a region that is used again and again.
struct Reused {
  std::vector<Interval> lives;
  std::vector<size_t> storages;

  uint64_t place(std::vector<uint64_t> &offsets) const {
    BufferPlan plan = planBuffers(lives, PARTITA_BUFFER_ALIGNMENT);
    for (size_t i = 0; i < storages.size(); ++i)
      offsets[storages[i]] = plan.offsets[i];
    return plan.total;
  }
};
} // namespace

Memory codegen::placeStorages(const Program &program) {
  Memory memory;
  memory.offsets.resize(program.storages.size());
  std::vector<Interval> lives = livesOf(program);
  Reused arena, host;
  for (size_t s = 0; s < program.storages.size(); ++s) {
    const Storage &storage = program.storages[s];
    if (storage.isWindow())
      continue;
    uint64_t bytes = storage.allBytes();
    uint64_t *behind = storage.space == Space::Weight  ? &memory.weightBytes
                       : storage.space == Space::State ? &memory.stateBytes
                       : storage.space == Space::Io    ? &memory.ioBytes
                                                       : nullptr;
    if (behind) { // one after the other
      memory.offsets[s] = *behind;
      *behind += (bytes + PARTITA_BUFFER_ALIGNMENT - 1) / PARTITA_BUFFER_ALIGNMENT *
                 PARTITA_BUFFER_ALIGNMENT;
      continue;
    }
    Interval life = lives[s];
    if (life.first > life.last)
      continue; // touched by no task
    life.bytes = bytes;
    Reused &region = storage.space == Space::Host ? host : arena;
    region.lives.push_back(life);
    region.storages.push_back(s);
  }
  memory.arenaBytes = arena.place(memory.offsets);
  memory.hostBytes = host.place(memory.offsets);
  memory.arenaLowerBound = lowerBound(arena.lives, PARTITA_BUFFER_ALIGNMENT);
  return memory;
}

/// Per storage: whether some task reads it other than in packed form.
static std::vector<bool> readAsStored(const Program &program) {
  std::vector<bool> read(program.storages.size(), false);
  for (const Task &task : program.tasks)
    for (size_t i = 0; i < task.operands.size(); ++i)
      if (int storage = task.operands[i].storage;
          storage >= 0 && static_cast<int>(i) != task.packedOperand)
        read[baseOf(program, storage)] = true;
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
/// that a rank reduces, of each item.
static int64_t stagingBytes(const Task &task) {
  auto of = [](const auto &p, int64_t blocks) {
    int64_t members = product(p.group), bytes = 0;
    for (size_t i = 0; i <= p.more.size(); ++i) {
      const task::Item item = task::itemOf(p, i);
      auto width = static_cast<int64_t>(byteWidth(static_cast<DType>(item.dtype)));
      int64_t part = (item.block * blocks + members - 1) / members;
      bytes += members > 1 ? members * ((item.outer * part * width + 63) / 64 * 64) : 0;
    }
    return bytes;
  };
  if (auto *p = std::get_if<task::AllReduce>(&task.params))
    return of(*p, 1);
  if (auto *p = std::get_if<task::ReduceScatter>(&task.params))
    return of(*p, product(p->group));
  return 0;
}

PlanMemory codegen::residentMemory(const Program &program, const Memory &memory) {
  PlanMemory plan;
  int64_t ranks = program.mesh.numRanks(), largestPart = 0;
  plan.arena = static_cast<int64_t>(memory.arenaBytes);
  plan.states = static_cast<int64_t>(memory.stateBytes);
  plan.stateWrites = stateBytesWritten(program);
  plan.stateMoves = stateBytesMoved(program);
  plan.regions = static_cast<int64_t>(memory.ioBytes + memory.hostBytes);
  plan.process = ranks * (plan.arena + plan.states + plan.regions);
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
              plan.states + plan.regions + plan.transport + (ranks > 1 ? largestPart : 0);
  plan.process += plan.inputs + plan.outputs;
  plan.peak = peakOf(program, memory, plan);
  return plan;
}

namespace {
class TableWriter {
public:
  TableWriter(const Program &program, const Memory &memory)
      : program(program), memory(memory), table(program.mesh) {}

  std::string run() {
    findNamed();
    table.setProgram(program.identity);
    for (const TensorEntry &entry : program.tensors) {
      TensorSpec spec = entry.spec;
      spec.buffer = whole(entry.storage);
      if (const auto &roll = program.storages[static_cast<size_t>(entry.storage)].roll)
        spec.roll = {static_cast<uint32_t>(roll->dim), roll->capacity, roll->advance};
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
      open.clear();
      size_t end = s + 1 < program.segments.size() ? program.segments[s + 1].firstTask
                                                   : program.tasks.size();
      for (size_t t = segment.firstTask; t < end; ++t)
        add(program.tasks[t], t);
    }
    for (const ProgramTransfer &transfer : program.transfers) {
      TransferSpec spec = transfer.spec;
      spec.buffer = whole(transfer.storage);
      table.addTransfer(std::move(spec));
    }
    for (const schedule::Schedule &schedule : program.schedules)
      table.addSchedule(schedule);
    table.setMemory(memory.arenaBytes, memory.weightBytes, program.packedBytes());
    table.setRegion(Space::State, memory.stateBytes);
    table.setRegion(Space::Io, memory.ioBytes);
    table.setRegion(Space::Host, memory.hostBytes);
    table.setFormulas(formulas.text());
    return table.finish();
  }

private:
  uint32_t whole(int storage) {
    return static_cast<uint32_t>(
        buffer({storage, 0, program.storages[static_cast<size_t>(storage)].slotBytes()}));
  }

  /// Storages that are nothing but values of a segment are one buffer where they lie in
  /// one place, so that tasks of equal layers are equal. Schedules know the others by
  /// number.
  int64_t buffer(const Place &place) {
    if (place.storage < 0)
      return -1;
    auto s = static_cast<size_t>(place.storage);
    const Storage &storage = program.storages[s];
    uint64_t offset = memory.offsets[s] + place.offset;
    BufferKey key{isNamed[s] ? place.storage : -1,
                  storage.space,
                  offset,
                  place.bytes,
                  storage.stride(),
                  storage.slots};
    auto [found, added] = buffers.try_emplace(key, 0);
    if (added)
      found->second = table.addBuffer(storage.space, offset, place.bytes,
                                      storage.stride(), storage.slots);
    return found->second;
  }

  /// Those of tensors, and what segments and transfers share.
  void findNamed() {
    isNamed.assign(program.storages.size(), false);
    auto add = [&](int storage) { isNamed[static_cast<size_t>(storage)] = true; };
    for (const TensorEntry &entry : program.tensors)
      add(entry.storage);
    for (const ProgramSegment &segment : program.segments) {
      std::ranges::for_each(segment.reads, add);
      std::ranges::for_each(segment.writes, add);
    }
    for (const ProgramTransfer &transfer : program.transfers)
      add(transfer.storage);
  }

  /// A window is the whole storage in which it lies, and moves.
  int64_t operand(const Place &place, uint32_t number, std::vector<task::Move> &moves) {
    if (place.storage < 0 ||
        !program.storages[static_cast<size_t>(place.storage)].isWindow())
      return buffer(place);
    auto begin = static_cast<int64_t>(place.offset);
    int at = place.storage;
    while (program.storages[static_cast<size_t>(at)].isWindow()) {
      const Storage::Window &window = program.storages[static_cast<size_t>(at)].window;
      auto loop = std::find_if(open.rbegin(), open.rend(),
                               [&](const auto &l) { return l.first == window.loop; });
      moves.push_back({number, static_cast<uint32_t>(loop - open.rbegin()),
                       window.begin + begin, window.step});
      begin = 0;
      at = window.of;
    }
    return buffer({at, 0, program.storages[static_cast<size_t>(at)].bytes()});
  }

  void add(const Task &task, size_t index) {
    while (!open.empty() && open.back().second <= index)
      open.pop_back();
    TaskSpec spec{task.source, {}, task.params, {}, task.handle, {}};
    for (const Place &place : task.operands)
      spec.operands.push_back(
          operand(place, static_cast<uint32_t>(spec.operands.size()), spec.moves));
    if (auto *repeat = std::get_if<task::Repeat>(&task.params))
      open.emplace_back(task.loop, index + 1 + repeat->tasks);
    if (auto *kernel = std::get_if<task::Kernel>(&spec.params)) {
      kernel->inputs =
          static_cast<uint32_t>(program.kernels[kernel->kernel].operands.size());
      const KernelSpec &made = program.kernels[kernel->kernel];
      kernel->kernel = table.addKernel(kernelSymbol(kernel->kernel));
      if (kernel->kernel == formulas.kernels.size())
        formulas.kernels.push_back(formulaOf(made));
    }
    const MadeName own{task.source, task.source};
    if (llvm::any_of(task.made, [&](const MadeName &n) { return !(n == own); }))
      formulas.names[table.numTasks()] = task.made;
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
  Formulas formulas;
  std::vector<bool> isNamed; ///< by storage
  /// Storage or −1, space, offset in it, bytes, stride and number of slots.
  using BufferKey = std::tuple<int, Space, uint64_t, uint64_t, uint64_t, uint32_t>;
  std::map<BufferKey, int64_t> buffers;
  std::vector<std::pair<int, size_t>> open; ///< loops around the task: number, end
};
} // namespace

std::string codegen::buildTable(const Program &program, const Memory &memory) {
  return TableWriter(program, memory).run();
}
