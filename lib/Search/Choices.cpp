//===- Choices.cpp - The choices of every op, shared by equal ops ---------===//
#include "Choices.h"

#include "partita/Rule/Sharding/OperandForm.h"

#include <algorithm>

using namespace partita;
using namespace partita::search;

std::vector<int32_t> search::formsOf(FormTable &forms, const ShardingRule &rule,
                                     const Strategy &strategy) {
  std::vector<int32_t> result;
  for (size_t o = 0; o < rule.operands.size(); ++o) {
    OperandForm form = operandForm(rule, strategy, o);
    result.push_back(forms.add(Form{std::move(form.layout), std::move(form.window)}));
  }
  for (size_t r = 0; r < rule.results.size(); ++r)
    result.push_back(forms.add(resultLayout(rule, strategy, r).canonicalized()));
  return result;
}

namespace {
class Lister {
public:
  Lister(Timing &timing, const Pins &pins, const std::vector<Strategy> *given)
      : timing(timing), graph(timing.graph), pins(pins), given(given),
        units(unitsOf(graph.mesh, pins)), partial(partialKinds(graph)) {}

  Expected<std::vector<std::shared_ptr<const OpChoices>>> run() {
    std::vector<std::shared_ptr<const OpChoices>> result;
    for (size_t op = 0; op < graph.ops.size(); ++op) {
      auto number = static_cast<int32_t>(op);
      if (graph.ops[op].kind == FlowKind::Source) {
        result.push_back(nullptr);
        continue;
      }
      std::shared_ptr<const OpChoices> &slot = known[signature(number)];
      if (!slot)
        slot = list(number);
      if (slot->size() == 0)
        return makeError("'" + graph.ops[op].name +
                         "' has no strategy that follows what is asked of it");
      result.push_back(slot);
    }
    return result;
  }

private:
  /// The strategies that the op may have.
  std::vector<Strategy> strategiesOf(int32_t op) const {
    if (given && graph.ops[static_cast<size_t>(op)].kind != FlowKind::Argument)
      return {(*given)[static_cast<size_t>(op)]};
    return legalStrategies(graph, op, units, partial, pins);
  }

  /// Equal for ops that have equal choices and times.
  std::string signature(int32_t op) const {
    const FlowOp &it = graph.ops[static_cast<size_t>(op)];
    std::string text = std::to_string(static_cast<int>(it.kind)) + " " +
                       std::to_string(it.priority) + " " + std::to_string(it.flops) +
                       " " + std::to_string(it.trips) + " " + it.rule.str();
    auto add = [&](int64_t number) { text += " " + std::to_string(number); };
    for (const std::vector<int32_t> *values : {&it.operands, &it.results})
      for (int32_t value : *values) {
        const FlowValue &v = graph.values[static_cast<size_t>(value)];
        add(static_cast<int64_t>(v.type));
        add(v.elementBytes);
        add(timing.isInternal(value));
        add(timing.isStreamed(value));
        add(timing.mayBeRepeated(value));
        add(timing.isFar(value));
        add(partial[static_cast<size_t>(value)]);
      }
    add(it.steps);
    add(timing.isJoined(op));
    if (timing.mayBeWinograd(op))
      text += timing.transformsFilter(it) ? " winograd made" : " winograd";
    for (int32_t a : graph.allAtoms(op)) {
      const Atom &atom = graph.atoms[static_cast<size_t>(a)];
      add(atom.factor);
      add(atom.size);
      add(atom.canPad);
      if (pins.count(a))
        text += " pinned " + std::to_string(a);
    }
    if (given && it.kind != FlowKind::Argument)
      for (int32_t form :
           formsOf(timing.forms, it.rule, (*given)[static_cast<size_t>(op)]))
        add(form);
    return text;
  }

  std::shared_ptr<OpChoices> list(int32_t op) {
    const FlowOp &it = graph.ops[static_cast<size_t>(op)];
    auto result = std::make_shared<OpChoices>();
    result->operands.resize(it.operands.size());
    result->results.resize(it.results.size());
    std::map<std::vector<int32_t>, size_t> seen;
    for (Strategy &strategy : strategiesOf(op)) {
      std::vector<int32_t> forms = formsOf(timing.forms, it.rule, strategy);
      Picos time = timing.op(op, strategy);
      auto [place, added] = seen.try_emplace(forms, result->size());
      if (!added) {
        if (time < result->times[place->second]) {
          result->times[place->second] = time;
          result->strategies[place->second] = std::move(strategy);
        }
        continue;
      }
      for (size_t o = 0; o < it.operands.size(); ++o)
        result->operands[o].push_back(forms[o]);
      for (size_t r = 0; r < it.results.size(); ++r)
        result->results[r].push_back(forms[it.operands.size() + r]);
      result->times.push_back(time);
      result->strategies.push_back(std::move(strategy));
    }
    return result;
  }

  Timing &timing;
  const FlowGraph &graph;
  const Pins &pins;
  const std::vector<Strategy> *given;
  AxisList units;
  std::vector<uint8_t> partial;
  std::map<std::string, std::shared_ptr<const OpChoices>> known;
};
} // namespace

Expected<std::vector<std::shared_ptr<const OpChoices>>>
search::choicesOf(Timing &timing, const Pins &pins, const std::vector<Strategy> *given) {
  return Lister(timing, pins, given).run();
}
