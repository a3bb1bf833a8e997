//===- Regather.cpp - How long what is gathered stays in memory -----------===//
#include "passes/Shard/Regather.h"

#include "dialects/Interfaces/ValueNames.h"
#include "partita/Rule/Sharding/OperandForm.h"

#include "mlir/IR/BuiltinOps.h"

#include <algorithm>
#include <tuple>

using namespace mlir;
using namespace partita;

bool partita::isReadLate(func::FuncOp function, const FlowOp &producer) {
  return producer.kind == FlowKind::State ||
         (producer.kind == FlowKind::Argument &&
          isRun(function->getParentOfType<ModuleOp>(), function));
}

namespace {
/// Where a state is read, gathered.
struct Reading {
  int32_t value = 0;
  size_t entry = 0; ///< of how the value is served
  int64_t bytes = 0;
  std::vector<std::pair<int32_t, FlowUse>> uses; ///< by place in the flow graph
};

class Regatherer {
public:
  Regatherer(func::FuncOp function, const dist::ProgramFlow &flow,
             const std::vector<Strategy> &strategies, Servings &servings)
      : flow(flow), strategies(strategies), servings(servings) {
    for (size_t v = 0; v < flow.graph.values.size(); ++v)
      if (isReadLate(function, producerOf(static_cast<int32_t>(v))))
        addReadings(static_cast<int32_t>(v));
  }

  void run() {
    for (const Reading &reading : readings)
      split(reading);
  }

private:
  const FlowOp &producerOf(int32_t value) const {
    const FlowValue &it = flow.graph.values[static_cast<size_t>(value)];
    return flow.graph.ops[static_cast<size_t>(it.producer)];
  }

  void addReadings(int32_t value) {
    if (servings.count(value))
      return;
    const FlowValue &it = flow.graph.values[static_cast<size_t>(value)];
    const FlowOp &producer = producerOf(value);
    auto served = serveUses(flow.graph, strategies, value);
    auto elements = [](const Layout &layout) {
      return elementCount(layout.localShape());
    };
    const int64_t own =
        elements(resultLayout(producer.rule, strategies[static_cast<size_t>(it.producer)],
                              static_cast<size_t>(it.result)));
    for (size_t i = 0; i < served.size(); ++i) {
      // What others are made of stays as it is.
      bool isFinal = served[i].from < 0 && !served[i].halo &&
                     std::ranges::none_of(
                         served,
                         [&](const ServedLayout &other) {
                           return other.from == static_cast<int32_t>(i);
                         });
      if (!isFinal || elements(served[i].layout) <= own)
        continue;
      Reading reading{value, i, elements(served[i].layout) * it.elementBytes, {}};
      for (const FlowUse &use : served[i].uses)
        reading.uses.emplace_back(use.op, use);
      std::ranges::sort(reading.uses, {}, [](const auto &use) {
        return std::tuple(use.first, use.second.op, use.second.operand);
      });
      readings.push_back(std::move(reading));
    }
    servings.emplace(value, std::move(served));
  }

  /// Bytes of the other readings with a user between two places.
  int64_t bytesBetween(const Reading &reading, int32_t first, int32_t last) const {
    int64_t bytes = 0;
    for (const Reading &other : readings)
      if (&other != &reading && std::ranges::any_of(other.uses, [&](const auto &use) {
            return use.first > first && use.first < last;
          }))
        bytes += other.bytes;
    return bytes;
  }

  /// Whether the reading ends behind its use before number `i`.
  bool isGivenUp(const Reading &reading, size_t i) const {
    auto repeats = [&](size_t k) { return flow.isCopy(reading.uses[k].second.op); };
    auto gathers = [&](size_t k) {
      Operation *op = flow.operations[static_cast<size_t>(reading.uses[k].second.op)];
      return repeats(k) && dist::recomputeOf(op).getGathersAgain();
    };
    auto isForward = [&](size_t k) {
      return !repeats(k) && !flow.where(reading.uses[k].second.op)->hasAttr(phaseAttr);
    };
    // A copy adds no gathering but if it is asked to: its gradient reads what it reads.
    if (repeats(i - 1) && !gathers(i - 1))
      return false;
    bool isAsked = false, isReadBehind = !repeats(i);
    for (size_t k = 0; k < reading.uses.size(); ++k) {
      isAsked |= gathers(k);
      isReadBehind |= k > i && !repeats(k);
    }
    // Only the copy reads it, as of a bias: the step without it gathers it once.
    if (!isReadBehind && !isAsked)
      return false;
    bool isTurn = isForward(i - 1) && !isForward(i);
    return (isTurn && isAsked) || bytesBetween(reading, reading.uses[i - 1].first,
                                               reading.uses[i].first) > reading.bytes;
  }

  void split(const Reading &reading) {
    std::vector<ServedLayout> &served = servings.at(reading.value);
    const ServedLayout whole = served[reading.entry];
    size_t now = reading.entry;
    served[now].uses.clear();
    for (size_t i = 0; i < reading.uses.size(); ++i) {
      if (i > 0 && isGivenUp(reading, i)) {
        served.push_back(whole);
        served.back().uses.clear();
        now = served.size() - 1;
        for (size_t other = 0; other < now; ++other)
          if (served[other].layout == whole.layout)
            served[now].epoch = std::max(served[now].epoch, served[other].epoch + 1);
      }
      served[now].uses.push_back(reading.uses[i].second);
    }
  }

  const dist::ProgramFlow &flow;
  const std::vector<Strategy> &strategies;
  Servings &servings;
  std::vector<Reading> readings;
};
} // namespace

void partita::regather(func::FuncOp function, const dist::ProgramFlow &flow,
                       const std::vector<Strategy> &strategies, Servings &servings) {
  Regatherer(function, flow, strategies, servings).run();
}
