//===- Memory.cpp - Bytes of a decided plan over its ops ------------------===//
#include "partita/Search/Memory.h"

#include "partita/Base/Units.h"

#include <algorithm>
#include <set>
#include <tuple>

using namespace partita;
using namespace partita::search;

int32_t search::turnOf(const FlowGraph &graph) {
  auto isGradient = [](const FlowOp &op) { return orderOf(op.phase) == 1; };
  return static_cast<int32_t>(std::ranges::find_if(graph.ops, isGradient) -
                              graph.ops.begin());
}

bool search::isForwardOp(const FlowGraph &graph, int32_t op, int32_t turn) {
  const FlowOp &it = graph.ops[static_cast<size_t>(op)];
  return op < turn && it.kind == FlowKind::Compute && it.isForward();
}

bool search::isReadByBackward(const FlowGraph &graph, const FlowUse &use, int32_t turn) {
  return use.op >= turn &&
         graph.ops[static_cast<size_t>(use.op)].kind == FlowKind::Compute;
}

namespace {
class Lives {
public:
  Lives(Timing &timing, const Decided &plan)
      : timing(timing), graph(timing.graph), plan(plan), end(timing.moments()),
        turn(Timing::runsAt(turnOf(graph))) {}

  std::vector<ValueLife> run() {
    for (size_t v = 0; v < graph.values.size(); ++v)
      if (graph.values[v].producer >= 0 && !graph.values[v].uses.empty())
        add(static_cast<int32_t>(v));
    return std::move(lives);
  }

private:
  void add(int32_t number) {
    const FlowValue &value = graph.values[static_cast<size_t>(number)];
    const FlowOp &producer = graph.ops[static_cast<size_t>(value.producer)];
    auto given = plan.servings.find(number);
    auto served = given != plan.servings.end()
                      ? given->second
                      : serveUses(graph, plan.strategies, number);
    if (producer.kind == FlowKind::Source) {
      if (producer.isUniform())
        return;
      for (const ServedLayout &entry : served)
        addReading(number, entry);
      return;
    }
    Layout produced =
        resultLayout(producer.rule, plan.strategies[static_cast<size_t>(value.producer)],
                     static_cast<size_t>(value.result))
            .canonicalized();
    int64_t made = Timing::runsAt(value.producer), lastProduced = made + 1;
    const int64_t born = timing.bornAt(value.producer);
    bool converted = false;
    for (size_t i = 0; i < served.size(); ++i) {
      const ServedLayout &entry = served[i];
      int64_t last = made + 1;
      for (const FlowUse &use : entry.uses)
        last = std::max(last, timing.doneAt(use.op));
      if (!entry.halo && entry.from < 0 && entry.layout == produced) {
        lastProduced = std::max(last, lastProduced);
        continue;
      }
      converted = true;
      // Beside a user of a state is where it is converted.
      int64_t first = made + 1;
      if (producer.kind == FlowKind::State)
        first = std::max(first, firstUse(served, i) - 1);
      lastProduced = std::max(lastProduced, first + 1);
      last = std::max(last, first + 1);
      int64_t elements =
          entry.halo ? elementCount(entry.halo->shape()) : entry.layout.localElements();
      addLife(number, true, elements * value.elementBytes, first, last);
    }
    if (!timing.liesElsewhere(number) && (converted || !timing.hasNoBytes(number)))
      addLife(number, false, produced.localElements() * value.elementBytes, born,
              lastProduced);
  }

  /// When the first op runs that uses an entry, or what is made of it.
  int64_t firstUse(const std::vector<ServedLayout> &served, size_t entry) const {
    int64_t first = end;
    for (const FlowUse &use : served[entry].uses)
      first = std::min(first, Timing::runsAt(use.op));
    for (size_t i = entry + 1; i < served.size(); ++i)
      if (served[i].from == static_cast<int32_t>(entry))
        first = std::min(first, firstUse(served, i));
    return first;
  }

  /// What a source is kept in is there always; what is gathered of it from the moment
  /// before its first user runs to the last.
  void addReading(int32_t number, const ServedLayout &entry) {
    int64_t bytes = entry.layout.localElements() *
                    graph.values[static_cast<size_t>(number)].elementBytes;
    if (entry.from < 0)
      return addLife(number, false, bytes, 0, end);
    int64_t first = end, last = 0;
    for (const FlowUse &use : entry.uses) {
      first = std::min(first, std::max<int64_t>(1, Timing::runsAt(use.op)) - 1);
      last = std::max(last, timing.doneAt(use.op));
    }
    if (first < last)
      addLife(number, true, bytes, first, last);
  }

  /// `last` is excluded.
  void addLife(int32_t value, bool isConverted, int64_t bytes, int64_t first,
               int64_t last) {
    last = std::max(last, first + 1) - 1;
    const MemoryKind kind = kindOf(value, isConverted, first, last);
    lives.push_back({value, {kind, bytes, first, last}, isConverted});
    // Values of other micro-batches are there all the time.
    if (kind == MemoryKind::Activations && graph.keptMicroBatches > 1)
      lives.push_back(
          {value, {kind, (graph.keptMicroBatches - 1) * bytes, 0, end - 1}, isConverted});
  }

  bool trains() const { return turn < end; }

  MemoryKind kindOfState(const FlowOp &state) const {
    bool isOfLoop = state.tied < 0; // what is carried from trip to trip
    return state.isParameter ? MemoryKind::Weights
           : !trains()       ? MemoryKind::Other
           : isOfLoop        ? MemoryKind::Gradients
                             : MemoryKind::Optimizer;
  }

  MemoryKind kindOf(int32_t number, bool isConverted, int64_t first, int64_t last) const {
    const FlowValue &value = graph.values[static_cast<size_t>(number)];
    const FlowOp &producer = graph.ops[static_cast<size_t>(value.producer)];
    bool isThere = producer.kind == FlowKind::Source || producer.kind == FlowKind::State;
    if (isConverted && isThere)
      return MemoryKind::Communication;
    if (isThere)
      return producer.kind == FlowKind::Source ? MemoryKind::Weights
                                               : kindOfState(producer);
    for (const FlowUse &use : value.uses)
      if (int32_t state = graph.ops[static_cast<size_t>(use.op)].tied; state >= 0)
        return kindOfState(graph.ops[static_cast<size_t>(state)]);
    if (producer.kind == FlowKind::Argument)
      return MemoryKind::Other;
    if (producer.phase == Phase::Weight)
      return MemoryKind::Gradients;
    if (trains() && first < turn && last >= turn)
      return MemoryKind::Activations;
    return isConverted ? MemoryKind::Communication : MemoryKind::Temporaries;
  }

  Timing &timing;
  const FlowGraph &graph;
  const Decided &plan;
  int64_t end, turn;
  std::vector<ValueLife> lives;
};
} // namespace

static std::vector<LiveValue> liveIn(const std::vector<ValueLife> &lives) {
  std::vector<LiveValue> live;
  for (const ValueLife &life : lives)
    live.push_back(life.live);
  return live;
}

std::vector<ValueLife> search::livesOf(Timing &timing, const Decided &plan) {
  return Lives(timing, plan).run();
}

std::vector<int64_t> search::memoryOverTime(Timing &timing, const Decided &plan) {
  return partita::memoryOverTime(liveIn(livesOf(timing, plan)), timing.moments());
}

MemoryUse search::memoryOf(Timing &timing, const Decided &plan, size_t shares) {
  std::vector<ValueLife> lives = livesOf(timing, plan);
  MemoryPeak peak = memoryPeak(liveIn(lives));
  MemoryUse use;
  use.trains = turnOf(timing.graph) < static_cast<int32_t>(timing.graph.ops.size());
  auto isWeight = [&](const ValueLife &life) {
    int32_t producer = timing.graph.values[static_cast<size_t>(life.value)].producer;
    return !life.isConverted &&
           timing.graph.ops[static_cast<size_t>(producer)].kind == FlowKind::Source;
  };
  for (const ValueLife &life : lives)
    use.weights += isWeight(life) ? life.live.bytes : 0;
  std::copy(std::begin(peak.byKind), std::end(peak.byKind), std::begin(use.byKind));
  use.op = static_cast<int32_t>(peak.moment / 2);
  use.activations = std::max<int64_t>(peak.bytes, use.weights) - use.weights;
  std::sort(lives.begin(), lives.end(), [](const ValueLife &a, const ValueLife &b) {
    return std::tie(b.live.bytes, a.value, a.live.last) <
           std::tie(a.live.bytes, b.value, b.live.last);
  });
  auto isState = [&](const FlowOp &op) { return !op.isSource() && op.tied >= 0; };
  for (const ValueLife &life : lives) {
    const FlowValue &value = timing.graph.values[static_cast<size_t>(life.value)];
    auto opOf = [&](int32_t op) -> const FlowOp & {
      return timing.graph.ops[static_cast<size_t>(op)];
    };
    bool lasts = isState(opOf(value.producer)) ||
                 std::ranges::any_of(value.uses, [&](const FlowUse &use) {
                   return isState(opOf(use.op));
                 });
    if (!use.trains && lasts && !life.isConverted && life.live.first <= peak.moment &&
        peak.moment <= life.live.last)
      use.states += life.live.bytes;
  }
  for (const ValueLife &life : lives)
    if (use.largest.size() < shares && life.live.first <= peak.moment &&
        peak.moment <= life.live.last)
      use.largest.push_back({timing.graph.values[static_cast<size_t>(life.value)].name,
                             isWeight(life), life.live.bytes});
  return use;
}

NecessaryMemory search::necessaryMemory(const Timing &timing, int64_t devices,
                                        bool countsWork) {
  const FlowGraph &graph = timing.graph;
  NecessaryMemory needed;
  auto partOf = [&](const FlowValue &value) {
    return (elementCount(value.shape) + devices - 1) / devices * value.elementBytes;
  };
  auto valueOf = [&](int32_t v) -> const FlowValue & {
    return graph.values[static_cast<size_t>(v)];
  };
  // Values that are carried from trip to trip are there while their loop runs.
  auto lasts = [](const FlowOp &producer) {
    return producer.kind == FlowKind::Source ||
           (producer.kind == FlowKind::State && producer.tied >= 0);
  };
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const FlowValue &value = graph.values[v];
    if (value.producer < 0 || value.uses.empty())
      continue;
    const FlowOp &producer = graph.ops[static_cast<size_t>(value.producer)];
    if (lasts(producer) && !producer.isUniform() &&
        !timing.liesElsewhere(static_cast<int32_t>(v)))
      needed.lasting += partOf(value);
  }
  // A value larger than all of which it is made may be read in the place of that.
  auto hasPlace = [&](int32_t v) {
    const int32_t op = valueOf(v).producer;
    if (op < 0 || timing.isView(op) || timing.isStreamed(v) || timing.hasNoBytes(v))
      return false;
    const FlowOp &producer = graph.ops[static_cast<size_t>(op)];
    return producer.kind == FlowKind::Compute &&
           std::ranges::any_of(producer.operands, [&](int32_t operand) {
             return elementCount(valueOf(operand).shape) >=
                    elementCount(valueOf(v).shape);
           });
  };
  for (const FlowOp &op : graph.ops) {
    if (!countsWork || op.kind != FlowKind::Compute || !isMatmul(op))
      continue;
    const std::set<int32_t> read(op.operands.begin(), op.operands.begin() + 2);
    int64_t bytes = 0;
    for (int32_t v : read)
      bytes += hasPlace(v) ? partOf(valueOf(v)) : 0;
    if (bytes > needed.working) {
      needed.working = bytes;
      needed.product = op.name;
    }
  }
  return needed;
}

int64_t search::leastDevices(const Timing &timing, int64_t memoryLimit, bool countsWork) {
  int64_t low = 0, high = int64_t(1) << 20;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    const bool fits = necessaryMemory(timing, middle, countsWork).bytes() <= memoryLimit;
    (fits ? high : low) = middle;
  }
  return high;
}

/// "2.25 GiB or more, 1.84 GiB for weights and states in equal parts and …".
static std::string necessaryText(const NecessaryMemory &needed) {
  return bytesText(needed.bytes()) + " or more, " + bytesText(needed.lasting) +
         " for weights and states in equal parts" +
         (needed.working > 0 ? " and " + bytesText(needed.working) + " for what '" +
                                   needed.product + "' reads"
                             : "");
}

Expected<void> search::checkNecessary(const FlowGraph &graph, const Placement &placement,
                                      int64_t memoryLimit, bool countsWork) {
  const Timing timing(graph, placement, /*anyRecompute=*/true);
  const int64_t devices = graph.mesh.numRanks(),
                least = leastDevices(timing, memoryLimit, countsWork);
  if (least <= devices)
    return {};
  const std::string who =
      devices == 1 ? "the device" : "each of " + std::to_string(devices) + " devices";
  return makeError("no plan fits: whatever is chosen, " + who + " (" +
                   placement.topology().device.name + ") needs " +
                   necessaryText(necessaryMemory(timing, devices, countsWork)) +
                   "; the limit is " + bytesText(memoryLimit) + "; " +
                   std::to_string(least) + " devices or more are needed");
}

std::string search::kindsText(const MemoryUse &memory) {
  if (!memory.trains)
    return bytesText(memory.weights) + " of weights, " +
           (memory.states > 0 ? bytesText(memory.states) + " of states, " : "") +
           bytesText(memory.activations - memory.states) + " of activations";
  std::string text;
  for (int k = 0; k < memoryKinds; ++k)
    if (memory.byKind[k] != 0)
      text += (text.empty() ? "" : ", ") + bytesText(memory.byKind[k]) + " of " +
              std::string(memoryKindName(static_cast<MemoryKind>(k)));
  return text;
}
