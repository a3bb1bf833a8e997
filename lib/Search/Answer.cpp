//===- Answer.cpp - The answer that stands for a plan ---------------------===//
#include "Choices.h"
#include "Tables.h"

#include <algorithm>
#include <set>

using namespace partita;
using namespace partita::search;

namespace {
/// Reads a plan the other way round than Decide.cpp.
class Writer {
public:
  Writer(Timing &timing, const Model &model, const Decided &plan)
      : timing(timing), graph(timing.graph), model(model), plan(plan),
        answer(model.problem.variables.size(), 0) {}

  std::optional<std::vector<uint32_t>> run() {
    for (size_t op = 0; op < graph.ops.size(); ++op)
      if (model.variables[op] >= 0 && !chooseOp(op))
        return std::nullopt;
    for (const SharedValue &shared : model.values)
      if (!chooseState(shared))
        return std::nullopt;
    for (const SharedSource &shared : model.sources)
      chooseCopies(shared);
    for (const HomeSource &home : model.homes)
      if (!chooseHome(home))
        return std::nullopt;
    return std::move(answer);
  }

private:
  uint32_t &choiceOf(int32_t op) {
    return answer[static_cast<size_t>(model.variables[static_cast<size_t>(op)])];
  }
  int32_t wantedForm(const FlowUse &use) {
    return model.choices[static_cast<size_t>(use.op)]
        ->operands[static_cast<size_t>(use.operand)][choiceOf(use.op)];
  }
  std::set<int32_t> wantedForms(const FlowValue &value) {
    std::set<int32_t> forms;
    for (const FlowUse &use : value.uses)
      forms.insert(wantedForm(use));
    return forms;
  }
  std::vector<ServedLayout> servedOf(int32_t value) const {
    auto given = plan.servings.find(value);
    return given != plan.servings.end() ? given->second
                                        : serveUses(graph, plan.strategies, value);
  }

  /// Strategies that want and give the same forms are one choice.
  bool chooseOp(size_t op) {
    const OpChoices &choices = *model.choices[op];
    const std::vector<int32_t> forms =
        formsOf(timing.forms, graph.ops[op].rule, plan.strategies[op]);
    for (size_t choice = 0; choice < choices.size(); ++choice) {
      auto isSame = [&, at = forms.begin()](const std::vector<int32_t> &of) mutable {
        return of[choice] == *at++;
      };
      if (std::ranges::all_of(choices.operands, std::ref(isSame)) &&
          std::ranges::all_of(choices.results, std::ref(isSame))) {
        choiceOf(static_cast<int32_t>(op)) = static_cast<uint32_t>(choice);
        return true;
      }
    }
    return false;
  }

  bool chooseState(const SharedValue &shared) {
    const FlowValue &value = graph.values[static_cast<size_t>(shared.value)];
    const int32_t produced =
        model.choices[static_cast<size_t>(value.producer)]
            ->results[static_cast<size_t>(value.result)][choiceOf(value.producer)];
    std::set<int32_t> wanted = wantedForms(value), onTheWay;
    bool isReadAnew = false; // two readings of one form
    std::set<int32_t> seen;
    for (const ServedLayout &entry : servedOf(shared.value)) {
      if (entry.halo)
        continue;
      const int32_t form = timing.forms.add(entry.layout);
      isReadAnew |= form != produced && !seen.insert(form).second;
      if (entry.uses.empty())
        onTheWay.insert(form);
    }
    wanted.erase(produced);
    onTheWay.erase(produced);
    onTheWay.insert(wanted.begin(), wanted.end());
    return (!isReadAnew && (choose(shared, produced, onTheWay, false) ||
                            choose(shared, produced, wanted, false))) ||
           choose(shared, produced, {}, true);
  }
  bool choose(const SharedValue &shared, int32_t produced,
              const std::set<int32_t> &copies, bool isReadAnew) {
    const std::vector<ValueState> &states = *shared.states;
    auto state = std::ranges::find_if(states, [&](const ValueState &it) {
      return it.produced == produced && it.isReadAnew == isReadAnew &&
             std::set<int32_t>(it.copies.begin(), it.copies.end()) == copies;
    });
    if (state == states.end())
      return false;
    answer[shared.variable] = static_cast<uint32_t>(state - states.begin());
    return true;
  }

  void chooseCopies(const SharedSource &shared) {
    const std::set<int32_t> wanted =
        wantedForms(graph.values[static_cast<size_t>(shared.value)]);
    for (size_t i = 0; i < shared.forms.size(); ++i)
      answer[shared.copies[i]] = wanted.count(shared.forms[i]);
  }

  bool chooseHome(const HomeSource &home) {
    const FlowValue &value = graph.values[static_cast<size_t>(home.value)];
    const std::vector<ServedLayout> served = servedOf(home.value);
    const int32_t kept = !served.empty() && !served[0].halo && served[0].from < 0
                             ? timing.forms.add(served[0].layout)
                             : wantedForm(value.uses[0]);
    auto place = std::ranges::find(home.forms, kept);
    if (place == home.forms.end())
      return false;
    answer[home.variable] = static_cast<uint32_t>(place - home.forms.begin());
    return true;
  }

  Timing &timing;
  const FlowGraph &graph;
  const Model &model;
  const Decided &plan;
  std::vector<uint32_t> answer;
};
} // namespace

std::optional<std::vector<uint32_t>> Model::answerOf(Timing &timing,
                                                     const Decided &plan) const {
  return Writer(timing, *this, plan).run();
}
