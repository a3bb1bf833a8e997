//===- Peak.cpp - What lies in the arena, by kind -------------------------===//
//
// A storage's kind follows from the tasks that touch it: which part of a training step
// makes it, and which reads it for the last time.
//
//===----------------------------------------------------------------------===//
#include "partita/Base/Files/JsonWriter.h"
#include "passes/Codegen/Common/Memory.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace partita;
using namespace partita::codegen;

namespace {
/// Of every storage what tasks do with it.
class Kinds {
public:
  Kinds(const Program &program, const std::vector<Interval> &lives)
      : program(program), lives(lives), touched(program.storages.size(), 0),
        maker(program.storages.size(), -1), isSum(program.storages.size(), false),
        isUpdated(program.storages.size(), false),
        isAdded(program.storages.size(), false),
        turn(static_cast<int64_t>(program.tasks.size())) {
    for (size_t t = program.tasks.size(); t-- > 0;)
      look(program.tasks[t], static_cast<int64_t>(t));
  }

  /// Whether the program is a training step.
  bool trains() const { return turn < static_cast<int64_t>(program.tasks.size()); }
  int64_t makerOf(size_t storage) const { return maker[storage]; }

  MemoryKind of(size_t s) const {
    const Storage &storage = program.storages[s];
    if (storage.input || storage.output || (storage.shared && !trains()))
      return MemoryKind::Other;
    // Between segments lie sums of gradients, and what the backward pass or another stage
    // reads.
    if (storage.shared)
      return isSum[s] || isUpdated[s] ? MemoryKind::Gradients : MemoryKind::Activations;
    if (touched[s] == 1)
      return MemoryKind::Workspace;
    const Task &first = program.tasks[static_cast<size_t>(maker[s])];
    // Engines add in place, too: no other value is read by gradients and by updates.
    bool isCarriedSum = isUpdated[s] && isAdded[s] && lives[s].first < turn;
    if (isSum[s] || isCarriedSum || first.phase == Phase::Weight)
      return MemoryKind::Gradients;
    if (isCollective(first.kind()) && isOfState(first))
      return MemoryKind::Communication;
    if (trains() && lives[s].first < turn && lives[s].last >= turn)
      return MemoryKind::Activations;
    return isCollective(first.kind()) ? MemoryKind::Communication
                                      : MemoryKind::Temporaries;
  }

private:
  void look(const Task &task, int64_t t) {
    if (task.phase == Phase::Backward || task.phase == Phase::Weight)
      turn = t;
    auto *kernel = std::get_if<task::Kernel>(&task.params);
    size_t reads = kernel ? program.kernels[kernel->kernel].operands.size() : 0;
    std::vector<size_t> seen;
    for (size_t i = 0; i < task.operands.size(); ++i) {
      int storage = task.operands[i].storage;
      if (storage < 0)
        continue;
      while (program.storages[static_cast<size_t>(storage)].isWindow())
        storage = program.storages[static_cast<size_t>(storage)].window.of;
      auto s = static_cast<size_t>(storage);
      maker[s] = t;
      if (std::find(seen.begin(), seen.end(), s) == seen.end())
        ++touched[s];
      seen.push_back(s);
      isUpdated[s] = isUpdated[s] || task.phase == Phase::Update;
      isAdded[s] = isAdded[s] || task.phase == Phase::Weight;
      // A sum over micro-batches begins as zeros, before the loop.
      if (kernel && task.phase == Phase::Weight && i >= reads &&
          i < reads + program.kernels[kernel->kernel].outputs.size())
        isSum[s] = true;
    }
  }

  bool isOfState(const Task &task) const {
    return !task.operands.empty() && task.operands[0].storage >= 0 &&
           program.storages[static_cast<size_t>(task.operands[0].storage)].space ==
               Space::State;
  }

  const Program &program;
  const std::vector<Interval> &lives;
  std::vector<int> touched;             ///< by how many tasks
  std::vector<int64_t> maker;           ///< the first of them
  std::vector<bool> isSum;              ///< a kernel of weight gradients writes it
  std::vector<bool> isUpdated, isAdded; ///< updates, weight gradients touch it
  int64_t turn;                         ///< the first task of the backward pass
};
} // namespace

static constexpr int64_t alignment = PARTITA_BUFFER_ALIGNMENT;

static int64_t aligned(uint64_t bytes) {
  return (static_cast<int64_t>(bytes) + alignment - 1) / alignment * alignment;
}

std::vector<ArenaValue> codegen::arenaValues(const Program &program,
                                             const Memory &memory) {
  std::vector<Interval> lives = livesOf(program);
  Kinds kinds(program, lives);
  std::vector<ArenaValue> values;
  for (size_t s = 0; s < program.storages.size(); ++s) {
    const Storage &storage = program.storages[s];
    if (storage.space != Space::Arena || storage.isWindow() ||
        lives[s].first > lives[s].last)
      continue;
    int64_t maker = kinds.makerOf(s);
    values.push_back({maker < 0 ? "" : program.tasks[static_cast<size_t>(maker)].source,
                      {kinds.of(s), aligned(storage.allBytes()), lives[s].first + 1,
                       lives[s].last + 1},
                      memory.offsets[s]});
  }
  return values;
}

static std::vector<LiveValue> livesIn(const std::vector<ArenaValue> &values) {
  std::vector<LiveValue> lives;
  for (const ArenaValue &value : values)
    lives.push_back(value.live);
  return lives;
}

/// Equal layers say the same. Largest first.
static std::vector<PlanPeak::Value> byClass(const std::vector<ArenaValue> &values) {
  std::map<std::pair<std::string, MemoryKind>, PlanPeak::Value> classes;
  for (const ArenaValue &value : values) {
    std::string name = layerClass(value.node);
    PlanPeak::Value &all = classes[{name, value.live.kind}];
    all = {name, std::string(memoryKindName(value.live.kind)),
           all.bytes + value.live.bytes, all.node.empty() ? 1 : all.count + 1};
  }
  std::vector<PlanPeak::Value> result;
  for (const auto &entry : classes)
    result.push_back(entry.second);
  std::ranges::sort(result, {}, [](const PlanPeak::Value &value) {
    return std::tuple(-value.bytes, value.node, value.kind);
  });
  return result;
}

PlanPeak codegen::peakOf(const Program &program, const Memory &memory,
                         const PlanMemory &resident, size_t shares) {
  std::vector<ArenaValue> values = arenaValues(program, memory);
  MemoryPeak most = memoryPeak(livesIn(values));
  auto bytesOf = [&](MemoryKind kind) -> int64_t & {
    return most.byKind[static_cast<size_t>(kind)];
  };
  bytesOf(MemoryKind::Weights) += resident.weights + resident.packed;
  bytesOf(MemoryKind::Other) += resident.regions;
  std::vector<Interval> lives = livesOf(program);
  bool trains = Kinds(program, lives).trains();
  for (const TensorEntry &entry : program.tensors)
    if (entry.spec.role == Role::State)
      bytesOf(!entry.initial.empty() ? MemoryKind::Weights
              : trains               ? MemoryKind::Optimizer
                                     : MemoryKind::Other) +=
          aligned(program.storages[static_cast<size_t>(entry.storage)].allBytes());
  PlanPeak peak;
  for (int k = 0; k < memoryKinds; ++k)
    peak.kinds.emplace_back(memoryKindName(static_cast<MemoryKind>(k)), most.byKind[k]);
  peak.kinds.emplace_back("unused", resident.arena - most.bytes);
  if (most.moment > 0 && most.moment <= static_cast<int64_t>(program.tasks.size()))
    peak.node = program.tasks[static_cast<size_t>(most.moment - 1)].source;
  std::erase_if(values, [&](const ArenaValue &value) {
    return value.live.first > most.moment || value.live.last < most.moment;
  });
  peak.largest = byClass(values);
  if (peak.largest.size() > shares)
    peak.largest.resize(shares);
  return peak;
}

std::string codegen::arenaJson(const Program &program, const Memory &memory) {
  JsonWriter out(JsonWriter::Style::Lines);
  out.beginObject();
  out.member("arena", static_cast<int64_t>(memory.arenaBytes));
  out.key("tasks");
  out.beginArray();
  for (const Task &task : program.tasks)
    out.value(std::string_view(task.source));
  out.endArray();
  out.key("values");
  out.beginArray();
  for (const ArenaValue &value : arenaValues(program, memory)) {
    out.beginObject();
    out.member("node", std::string_view(value.node));
    out.member("kind", memoryKindName(value.live.kind));
    out.member("bytes", value.live.bytes);
    out.member("first", value.live.first - 1);
    out.member("last", value.live.last - 1);
    out.member("offset", static_cast<int64_t>(value.offset));
    out.endObject();
  }
  out.endArray();
  out.endObject();
  return out.take() + "\n";
}
