//===- StageOrder.cpp - In which order ranks run their stages -------------===//
#include "partita/Base/Bundle/StageOrder.h"

#include "partita/Base/Bundle/Plan.h"

#include <algorithm>
#include <map>

using namespace partita;

int64_t StageOrder::numGroups() const {
  return groupOf.empty() ? 0 : 1 + *std::ranges::max_element(groupOf);
}

int64_t StageOrder::slots() const {
  return std::min(microBatches, std::max<int64_t>(2, round));
}

StageOrder partita::orderOf(const PlanEntry &plan) {
  std::map<std::vector<int64_t>, int64_t> groups;
  auto keyOf = [&](size_t s) {
    auto number = static_cast<int64_t>(s);
    return plan.stages[s].ranks.empty() ? std::vector<int64_t>{number}
                                        : plan.stages[s].ranks;
  };
  for (size_t s = 0; s < plan.stages.size(); ++s)
    groups[keyOf(s)] = 0;
  int64_t count = 0;
  for (auto &[key, number] : groups)
    number = count++;
  StageOrder order{{}, plan.microBatches, plan.round};
  for (size_t s = 0; s < plan.stages.size(); ++s)
    order.groupOf.push_back(groups[keyOf(s)]);
  return order;
}

/// Calls `visit` for every turn of all groups, each behind those that it waits for.
template <typename Visit> static void visitTurns(const StageOrder &order, Visit visit) {
  for (int64_t first = 0; first < order.microBatches; first += order.round)
    for (size_t s = 0; s < order.groupOf.size(); ++s)
      for (int64_t m = first; m < std::min(first + order.round, order.microBatches); ++m)
        visit(StageTurn{static_cast<int64_t>(s), m});
}

std::vector<StageTurn> partita::turnsOf(const StageOrder &order, int64_t group) {
  std::vector<StageTurn> turns;
  visitTurns(order, [&](StageTurn turn) {
    if (order.groupOf[static_cast<size_t>(turn.stage)] == group)
      turns.push_back(turn);
  });
  return turns;
}

std::vector<std::vector<int64_t>> partita::beginsOf(const StageOrder &order) {
  std::vector<std::vector<int64_t>> begins(
      order.groupOf.size(),
      std::vector<int64_t>(static_cast<size_t>(order.microBatches)));
  std::vector<int64_t> freeAt(static_cast<size_t>(order.numGroups()), 0);
  visitTurns(order, [&](StageTurn turn) {
    auto s = static_cast<size_t>(turn.stage), m = static_cast<size_t>(turn.microBatch);
    int64_t &free = freeAt[static_cast<size_t>(order.groupOf[s])];
    begins[s][m] = s == 0 ? free : std::max(free, begins[s - 1][m] + 1);
    free = begins[s][m] + 1;
  });
  return begins;
}
