//===- RunnersUp.cpp - The best plans without a conversion ----------------===//
#include "Layers.h"
#include "Tables.h"
#include "UnderMemory.h"
#include "partita/Search/Compare.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

using namespace partita;
using namespace partita::search;

namespace {
/// A problem in which no value goes from one form to another.
class Without {
public:
  Without(Timing &timing, const Model &model, int32_t from, int32_t to)
      : timing(timing), graph(timing.graph), model(model), from(from), to(to),
        problem(model.problem) {}

  solver::Problem run() {
    for (const SharedValue &value : model.values)
      forbidStates(value);
    for (const auto &[value, edge] : model.directs)
      forbidDirect(value, edge);
    for (const SharedValue &value : model.values)
      forbidReadings(value);
    for (const HomeSource &home : model.homes)
      forbidHome(home);
    return std::move(problem);
  }

private:
  bool isMeant(int32_t produced, const Service &service) const {
    return std::any_of(
        service.entries.begin(), service.entries.end(), [&](const Service::Entry &entry) {
          int32_t at = entry.from < 0
                           ? produced
                           : service.entries[static_cast<size_t>(entry.from)].form;
          return at == from && entry.form == to;
        });
  }
  int64_t widthOf(int32_t value) const {
    return graph.values[static_cast<size_t>(value)].elementBytes;
  }

  void forbidStates(const SharedValue &value) {
    std::vector<int64_t> &costs = problem.variables[value.variable].costs;
    for (size_t s = 0; s < costs.size(); ++s) {
      const ValueState &state = (*value.states)[s];
      if (std::find(state.copies.begin(), state.copies.end(), to) != state.copies.end() &&
          isMeant(state.produced, bestService(timing, state.produced, state.copies,
                                              widthOf(value.value))))
        costs[s] = solver::forbidden;
    }
  }

  /// Of states that their users read anew.
  void forbidReadings(const SharedValue &value) {
    const std::vector<ValueState> &states = *value.states;
    if (std::none_of(states.begin(), states.end(),
                     [&](const ValueState &it) { return it.isReadAnew; }))
      return;
    for (size_t e = value.edge; e < value.edge + value.users.size(); ++e) {
      const FlowOp &user = graph.ops[static_cast<size_t>(value.users[e - value.edge])];
      const OpChoices &choices =
          *model.choices[static_cast<size_t>(value.users[e - value.edge])];
      End end{&choices, {}};
      for (size_t o = 0; o < user.operands.size(); ++o)
        if (user.operands[o] == value.value)
          end.places.push_back(static_cast<int32_t>(o));
      edit(e, choices.size(), [&](size_t row, size_t column) {
        return states[row].isReadAnew && states[row].produced == from &&
               wantedBy(end, column) == std::vector<int32_t>{to};
      });
    }
  }

  /// Equal tables stay shared.
  template <typename Fn> void edit(size_t edge, size_t columns, Fn isForbidden) {
    solver::CostTable &table = problem.edges[edge].costs;
    auto [place, added] = edited.try_emplace(table.id());
    if (added) {
      place->second = table;
      for (size_t i = 0; i < table.size(); ++i)
        if (table[i] < solver::forbidden && isForbidden(i / columns, i % columns))
          place->second.edit()[i] = solver::forbidden;
    }
    table = place->second;
  }

  void forbidDirect(int32_t number, size_t edge) {
    const FlowValue &value = graph.values[static_cast<size_t>(number)];
    const OpChoices &producer = *model.choices[static_cast<size_t>(value.producer)];
    const OpChoices &user = *model.choices[static_cast<size_t>(value.uses[0].op)];
    const auto &made = producer.results[static_cast<size_t>(value.result)];
    if (std::find(made.begin(), made.end(), from) == made.end())
      return;
    End end{&user, {}};
    for (const FlowUse &use : value.uses)
      end.places.push_back(use.operand);
    edit(edge, user.size(), [&](size_t row, size_t column) {
      std::vector<int32_t> wanted = wantedBy(end, column);
      return std::find(wanted.begin(), wanted.end(), to) != wanted.end() &&
             made[row] == from &&
             isMeant(from, bestServiceOfOp(timing, from, wanted, widthOf(number)));
    });
  }

  void forbidHome(const HomeSource &home) {
    const FlowUse &use = graph.values[static_cast<size_t>(home.value)].uses[0];
    const OpChoices &user = *model.choices[static_cast<size_t>(use.op)];
    const auto &wanted = user.operands[static_cast<size_t>(use.operand)];
    edit(home.edge, user.size(), [&](size_t row, size_t column) {
      return home.forms[row] == from && wanted[column] == to;
    });
  }

  Timing &timing;
  const FlowGraph &graph;
  const Model &model;
  int32_t from, to;
  solver::Problem problem;
  std::map<const void *, solver::CostTable> edited;
};
} // namespace

/// How a plan converts a value.
static std::vector<std::string> conversionsOf(Timing &timing, const Decided &plan,
                                              int32_t number) {
  std::vector<std::string> texts;
  for (const Reshard &it : costliestReshards(timing, plan, SIZE_MAX, number))
    texts.push_back("from " + it.from + " to " + it.to);
  return texts;
}

/// Runners-up are looked for in lanes, one thread each. What a lane may take does not
/// depend on the machine's cores.
static constexpr size_t lanes = 2;
/// Seconds of solving for a lane, and for one behind others that took them; the same in
/// work.
static constexpr double mostSecondsOfLane = 2, leastSeconds = 0.1;
static constexpr int64_t mostWorkOfLane = 200'000, leastWork = 10'000;

std::vector<std::optional<RunnerUp>>
search::runnersUp(Timing &timing, const Model &model, const SearchOptions &options,
                  const std::vector<Reshard> &reshards) {
  std::vector<std::optional<RunnerUp>> result(reshards.size());
  std::mutex ofTiming;
  // Nothing is decided by them. Under a tight limit none ends early: what all of a lane
  // may take is bounded, too.
  auto runLane = [&](size_t lane) {
    double left = mostSecondsOfLane;
    int64_t workLeft = mostWorkOfLane;
    for (size_t i = lane; i < reshards.size(); i += lanes) {
      std::unique_lock lock(ofTiming);
      solver::Problem problem =
          Without(timing, model, reshards[i].fromForm, reshards[i].toForm).run();
      lock.unlock();
      solver::SolveOptions solve;
      solve.stop = options.stop | options.enough;
      solve.timeLimit = std::min({1.0, options.timeLimit, std::max(left, leastSeconds)});
      if (options.workLimit)
        solve.workLimit = std::min(
            {mostWorkOfLane / 2, *options.workLimit, std::max(workLeft, leastWork)});
      const auto begin = std::chrono::steady_clock::now();
      // Where no round finds a plan, what prices of memory lead to is far from the best.
      auto solution = MemoryRounds(problem, solve, {}, {}, 0)
                          .run(solve.timeLimit, solve.workLimit, {}, /*isLast=*/false);
      left -=
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (solution)
        workLeft -= solution->work;
      if (!solution || solution->choices.empty())
        continue;
      lock.lock();
      Decided plan = model.decide(timing, solution->choices);
      result[i] = {evaluate(timing, plan).total(),
                   static_cast<Picos>(solution->lowerBound),
                   conversionsOf(timing, plan, reshards[i].number)};
    }
  };
  std::vector<std::thread> others;
  for (size_t lane = 1; lane < lanes; ++lane)
    others.emplace_back(runLane, lane);
  runLane(0);
  for (std::thread &other : others)
    other.join();
  return result;
}
