//===- Memory.cpp - Bytes of a decided plan over its ops ------------------===//
#include "partita/Search/Memory.h"

#include <algorithm>
#include <numeric>
#include <tuple>

using namespace partita;
using namespace partita::search;

namespace {
struct Life {
  int32_t value;
  bool isWeight;
  int64_t bytes, first, last; ///< moments, last excluded
};

class Lives {
public:
  Lives(Timing &timing, const Decided &plan)
      : timing(timing), graph(timing.graph), plan(plan), end(timing.moments()) {}

  std::vector<Life> run() {
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
      for (const ServedLayout &entry : served)
        addReading(number, entry);
      return;
    }
    Layout produced =
        resultLayout(producer.rule, plan.strategies[static_cast<size_t>(value.producer)],
                     static_cast<size_t>(value.result))
            .canonicalized();
    int64_t made = Timing::runsAt(value.producer), lastProduced = made + 1;
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
      lives.push_back({number, false, elements * value.elementBytes, first, last});
    }
    if (converted || !timing.hasNoBytes(number))
      lives.push_back({number, false, produced.localElements() * value.elementBytes, made,
                       lastProduced});
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
    if (entry.from < 0) {
      lives.push_back({number, true, bytes, 0, end});
      return;
    }
    int64_t first = end, last = 0;
    for (const FlowUse &use : entry.uses) {
      first = std::min(first, std::max<int64_t>(1, Timing::runsAt(use.op)) - 1);
      last = std::max(last, timing.doneAt(use.op));
    }
    if (first < last)
      lives.push_back({number, false, bytes, first, last});
  }

  Timing &timing;
  const FlowGraph &graph;
  const Decided &plan;
  int64_t end;
  std::vector<Life> lives;
};
} // namespace

/// Bytes that come and go at each moment.
static std::vector<int64_t> changes(const Timing &timing,
                                    const std::vector<Life> &lives) {
  std::vector<int64_t> change(static_cast<size_t>(timing.moments()) + 3, 0);
  for (const Life &life : lives) {
    change[static_cast<size_t>(life.first)] += life.bytes;
    change[static_cast<size_t>(std::max(life.last, life.first + 1))] -= life.bytes;
  }
  return change;
}

std::vector<int64_t> search::memoryOverTime(Timing &timing, const Decided &plan) {
  std::vector<int64_t> bytes = changes(timing, Lives(timing, plan).run());
  std::partial_sum(bytes.begin(), bytes.end(), bytes.begin());
  bytes.resize(static_cast<size_t>(timing.moments()));
  return bytes;
}

MemoryUse search::memoryOf(Timing &timing, const Decided &plan, size_t shares) {
  std::vector<Life> lives = Lives(timing, plan).run();
  std::vector<int64_t> change = changes(timing, lives);
  MemoryUse use;
  for (const Life &life : lives)
    use.weights += life.isWeight ? life.bytes : 0;
  int64_t now = 0, most = -1, peak = 0;
  for (int64_t moment = 0; moment < timing.moments(); ++moment) {
    now += change[static_cast<size_t>(moment)];
    if (now <= most)
      continue;
    most = now;
    peak = moment;
  }
  use.op = static_cast<int32_t>(peak / 2);
  use.activations = std::max<int64_t>(most, use.weights) - use.weights;
  std::sort(lives.begin(), lives.end(), [](const Life &a, const Life &b) {
    return std::tie(b.bytes, a.value, a.last) < std::tie(a.bytes, b.value, b.last);
  });
  for (const Life &life : lives)
    if (use.largest.size() < shares && life.first <= peak &&
        peak < std::max(life.last, life.first + 1))
      use.largest.push_back({timing.graph.values[static_cast<size_t>(life.value)].name,
                             life.isWeight, life.bytes});
  return use;
}
