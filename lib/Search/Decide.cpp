//===- Decide.cpp - The plan that an answer stands for --------------------===//
#include "partita/Search/Model.h"

#include "partita/Rule/Decide/Decide.h"
#include "partita/Rule/Sharding/OperandForm.h"

#include <algorithm>

using namespace partita;
using namespace partita::search;

namespace {
class Reader {
public:
  Reader(Timing &timing, const Model &model, const std::vector<uint32_t> &answer)
      : timing(timing), graph(timing.graph), model(model), answer(answer) {}

  Decided run() {
    for (size_t op = 0; op < graph.ops.size(); ++op)
      plan.strategies.push_back(
          model.variables[op] < 0
              ? Strategy::replicated(graph.ops[op].rule)
              : model.choices[op]->strategies[choiceOf(static_cast<int32_t>(op))]);
    for (const SharedValue &value : model.values)
      serveShared(value);
    for (const HomeSource &home : model.homes)
      serveHome(home);
    for (size_t v = 0; v < graph.values.size(); ++v)
      serveDirect(static_cast<int32_t>(v));
    for (size_t op = 0; op < graph.ops.size(); ++op)
      if (graph.ops[op].kind == FlowKind::Source)
        settleSource(op);
    return std::move(plan);
  }

private:
  size_t choiceOf(int32_t op) const {
    return answer[static_cast<size_t>(model.variables[static_cast<size_t>(op)])];
  }
  int32_t producedForm(const FlowValue &value) const {
    const OpChoices &choices = *model.choices[static_cast<size_t>(value.producer)];
    return choices.results[static_cast<size_t>(value.result)][choiceOf(value.producer)];
  }
  int32_t wantedForm(const FlowUse &use) const {
    const OpChoices &choices = *model.choices[static_cast<size_t>(use.op)];
    return choices.operands[static_cast<size_t>(use.operand)][choiceOf(use.op)];
  }

  /// The entries of a service, each with its users. Those who want the value as it is
  /// produced are served by an entry of that layout.
  void record(int32_t number, const std::vector<Service::Entry> &entries) {
    const FlowValue &value = graph.values[static_cast<size_t>(number)];
    int32_t produced = producedForm(value);
    std::vector<ServedLayout> served;
    std::vector<int32_t> forms;
    auto add = [&](int32_t form, int32_t from) {
      const Form &it = timing.forms[form];
      ServedLayout entry{it.layout, from, {}, it.halo};
      if (entry.halo)
        entry.halo->before = from < 0 ? timing.forms[produced].layout
                                      : served[static_cast<size_t>(from)].layout;
      served.push_back(std::move(entry));
      forms.push_back(form);
    };
    for (const Service::Entry &entry : entries)
      add(entry.form, entry.from);
    for (const FlowUse &use : value.uses) {
      int32_t form = wantedForm(use);
      auto at = std::find(forms.begin(), forms.end(), form);
      if (at == forms.end()) {
        add(form, -1);
        at = forms.end() - 1;
      }
      served[static_cast<size_t>(at - forms.begin())].uses.push_back(use);
    }
    giveEpochs(graph, timing.forms[produced].layout, served);
    if (isSaid(value, timing.forms[produced].layout, served) ||
        !isDefault(number, served))
      plan.servings[number] = std::move(served);
  }

  /// Whether a state is read more than once in a form that it is converted to: where
  /// nothing is said such a reading may become several.
  bool isSaid(const FlowValue &value, const Layout &produced,
              const std::vector<ServedLayout> &served) const {
    return graph.ops[static_cast<size_t>(value.producer)].kind == FlowKind::State &&
           std::any_of(served.begin(), served.end(), [&](const ServedLayout &it) {
             return it.uses.size() > 1 && (it.halo || it.layout != produced);
           });
  }

  /// Every user has an entry of its own, but for those that want the value as it is.
  void serveAnew(int32_t number) {
    const FlowValue &value = graph.values[static_cast<size_t>(number)];
    int32_t produced = producedForm(value);
    std::vector<ServedLayout> served;
    std::map<std::pair<int32_t, int32_t>, size_t> entries; // by user and form
    for (const FlowUse &use : value.uses) {
      int32_t form = wantedForm(use);
      auto [place, added] =
          entries.try_emplace({form == produced ? -1 : use.op, form}, served.size());
      if (added)
        served.push_back({timing.forms[form].layout, -1, {}, std::nullopt});
      served[place->second].uses.push_back(use);
    }
    giveEpochs(graph, timing.forms[produced].layout, served);
    plan.servings[number] = std::move(served);
  }

  /// Whether serveUses would do the same.
  bool isDefault(int32_t number, const std::vector<ServedLayout> &served) const {
    auto usual = serveUses(graph, plan.strategies, number);
    if (usual.size() != served.size())
      return false;
    auto parentOf = [](const std::vector<ServedLayout> &list, const ServedLayout &it) {
      return it.from < 0 ? nullptr : &list[static_cast<size_t>(it.from)];
    };
    return std::all_of(served.begin(), served.end(), [&](const ServedLayout &mine) {
      const ServedLayout *from = parentOf(served, mine);
      return mine.epoch == 0 &&
             std::any_of(usual.begin(), usual.end(), [&](const ServedLayout &theirs) {
               const ServedLayout *other = parentOf(usual, theirs);
               return theirs.layout == mine.layout && theirs.halo == mine.halo &&
                      !from == !other && (!from || from->layout == other->layout);
             });
    });
  }

  void serveShared(const SharedValue &shared) {
    const FlowValue &value = graph.values[static_cast<size_t>(shared.value)];
    const ValueState &state = (*shared.states)[answer[shared.variable]];
    if (state.isReadAnew)
      return serveAnew(shared.value);
    record(shared.value,
           bestService(timing, state.produced, state.copies, value.elementBytes).entries);
  }

  void serveDirect(int32_t number) {
    const FlowValue &value = graph.values[static_cast<size_t>(number)];
    bool single = !value.uses.empty() &&
                  std::all_of(value.uses.begin(), value.uses.end(),
                              [&](const FlowUse &u) { return u.op == value.uses[0].op; });
    if (value.producer < 0 || !single ||
        model.variables[static_cast<size_t>(value.producer)] < 0)
      return;
    std::vector<int32_t> forms;
    for (const FlowUse &use : value.uses)
      if (int32_t form = wantedForm(use);
          std::find(forms.begin(), forms.end(), form) == forms.end())
        forms.push_back(form);
    record(
        number,
        bestServiceOfOp(timing, producedForm(value), forms, value.elementBytes).entries);
  }

  /// Kept in one layout, converted to what the user wants.
  void serveHome(const HomeSource &home) {
    const FlowValue &value = graph.values[static_cast<size_t>(home.value)];
    int32_t kept = home.forms[answer[home.variable]], wanted = wantedForm(value.uses[0]);
    if (kept == wanted)
      return;
    plan.servings[home.value] = {
        {timing.forms[kept].layout, -1, {}, std::nullopt},
        {timing.forms[wanted].layout, 0, value.uses, std::nullopt}};
  }

  /// For explanations: the layout in which a source is read, if it is one.
  void settleSource(size_t op) {
    const FlowOp &it = graph.ops[op];
    if (plan.servings.count(it.results[0]))
      return;
    auto served = serveUses(graph, plan.strategies, it.results[0]);
    if (served.size() == 1 && served[0].layout.partial.empty())
      plan.strategies[op] =
          strategyForLayout(it.rule, it.rule.results[0], served[0].layout);
  }

  Timing &timing;
  const FlowGraph &graph;
  const Model &model;
  const std::vector<uint32_t> &answer;
  Decided plan;
};
} // namespace

Decided Model::decide(Timing &timing, const std::vector<uint32_t> &answer) const {
  return Reader(timing, *this, answer).run();
}
