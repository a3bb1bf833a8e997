//===- Repeats.cpp - Tables of values that may be computed again ----------===//
#include "Repeats.h"

#include "partita/Search/Memory.h"

#include <algorithm>

using namespace partita;
using namespace partita::search;
using namespace partita::solver;

Repeats::Repeats(const Timing &timing)
    : turn(turnOf(timing.graph)), timing(timing),
      needed(timing.graph.ops.size(), static_cast<int32_t>(timing.graph.ops.size())) {
  const FlowGraph &graph = timing.graph;
  std::vector<int32_t> open;
  for (auto reader = turn; reader < static_cast<int32_t>(needed.size()); ++reader) {
    open.assign(1, reader);
    while (!open.empty()) {
      const FlowOp &op = graph.ops[static_cast<size_t>(open.back())];
      open.pop_back();
      for (int32_t value : op.operands) {
        int32_t producer = graph.values[static_cast<size_t>(value)].producer;
        if (!isForwardOp(graph, producer, turn) || isNeeded(producer))
          continue;
        needed[static_cast<size_t>(producer)] = reader;
        open.push_back(producer);
      }
    }
  }
}

Picos Repeats::again(int32_t number,
                     const std::vector<std::shared_ptr<const OpChoices>> &choices) const {
  const FlowGraph &graph = timing.graph;
  const FlowOp &op = graph.ops[static_cast<size_t>(number)];
  if (isMatmul(op))
    return *std::ranges::min_element(choices[static_cast<size_t>(number)]->times);
  if (op.results.size() != 1 || (!timing.isView(number) && op.priority != 0))
    return 0;
  Picos time = 0;
  const int64_t bytes = graph.values[static_cast<size_t>(op.results[0])].bytes();
  for (int32_t operand : op.operands) {
    const FlowValue &value = graph.values[static_cast<size_t>(operand)];
    if (isForwardOp(graph, value.producer, turn) && value.uses.size() == 1 &&
        value.bytes() == bytes &&
        graph.ops[static_cast<size_t>(value.producer)].results.size() == 1)
      time += again(value.producer, choices);
  }
  return time;
}

bool Repeats::isFirstRepeated(const FlowOp &op, size_t result) const {
  return std::none_of(op.results.begin(),
                      op.results.begin() + static_cast<std::ptrdiff_t>(result),
                      [&](int32_t value) { return timing.mayBeRepeated(value); });
}

std::vector<int64_t> Repeats::times(const SharedTable &table, Picos again) {
  std::vector<int64_t> both = table.times;
  for (int64_t time : table.times)
    both.push_back(time + again);
  return both;
}

const CostTable &Repeats::producer(const CostTable &table, size_t states) {
  CostTable &both = made[{table.id(), 0}];
  if (!both.empty())
    return both;
  std::vector<int64_t> costs;
  costs.reserve(2 * table.size());
  for (auto row = table.begin(); row != table.end();
       row += static_cast<std::ptrdiff_t>(states))
    for (int half = 0; half < 2; ++half)
      costs.insert(costs.end(), row, row + static_cast<std::ptrdiff_t>(states));
  return both = CostTable(std::move(costs));
}

const CostTable &Repeats::user(const CostTable &table, bool isBackward) {
  CostTable &both = made[{table.id(), isBackward ? 2 : 1}];
  if (!both.empty())
    return both;
  std::vector<int64_t> costs(table.begin(), table.end());
  if (isBackward)
    costs.resize(2 * table.size(), 0);
  else
    costs.insert(costs.end(), table.begin(), table.end());
  return both = CostTable(std::move(costs));
}

std::vector<int64_t> search::leastBytes(const Timing &timing, const SharedTable &table,
                                        int64_t elementBytes) {
  std::vector<int64_t> least;
  for (const ValueState &state : *table.states) {
    least.push_back(timing.localBytes(state.produced, elementBytes));
    for (int32_t form : state.copies)
      least.back() = std::min(least.back(), timing.localBytes(form, elementBytes));
  }
  return least;
}
