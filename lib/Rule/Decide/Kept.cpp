//===- Kept.cpp - Weights that ranks keep in parts ------------------------===//
#include "partita/Rule/Decide/Kept.h"

#include "partita/Rule/Decide/ModuleNames.h"
#include "partita/Rule/Sharding/OperandForm.h"

#include <algorithm>

using namespace partita;

std::optional<Layout> partita::inParts(const Layout &layout, const AxisList &axes,
                                       const std::function<bool(const Layout &)> &isFit) {
  for (size_t d = 0; d < layout.dims.size(); ++d) {
    Layout parts = layout;
    if (parts.dims[d].factors.size() != 1)
      continue;
    DimFactor &factor = parts.dims[d].factors[0];
    if (factor.padded != factor.size || !factor.blocks.empty() ||
        factor.size % (product(factor.axes) * product(axes)) != 0)
      continue;
    factor.axes.insert(factor.axes.end(), axes.begin(), axes.end());
    factor.axes = canonical(factor.axes);
    if (parts = parts.canonicalized(); isFit(parts))
      return parts;
  }
  return std::nullopt;
}

std::optional<std::vector<ServedLayout>>
partita::keptInParts(const FlowGraph &graph, const std::vector<Strategy> &strategies,
                     int32_t value, const AxisList &axes) {
  const FlowValue &it = graph.values[value];
  if (it.uses.size() != 1 || it.shape.empty())
    return std::nullopt;
  const FlowUse &use = it.uses[0];
  OperandForm form = operandForm(graph.ops[use.op].rule, strategies[use.op],
                                 static_cast<size_t>(use.operand));
  AxisList used;
  for (const DimLayout &dim : form.layout.dims)
    for (const DimFactor &factor : dim.factors)
      used.insert(used.end(), factor.axes.begin(), factor.axes.end());
  if (form.window || !form.layout.partial.empty() || overlap(used, axes))
    return std::nullopt;
  auto parts = inParts(form.layout, axes);
  if (!parts)
    return std::nullopt;
  return std::vector<ServedLayout>{{*parts, -1, {}, std::nullopt},
                                   {form.layout, 0, it.uses, std::nullopt}};
}

Expected<void> partita::keepWeights(const FlowGraph &graph, const Hints &hints,
                                    Decision &decision) {
  for (const KeptHint &hint : hints.kept) {
    AxisList axes;
    for (const std::string &name : hint.axes) {
      auto axis = graph.mesh.parseAxis(name);
      if (!axis)
        return makeError(hints.file + ": kept '" + hint.glob +
                         "': " + axis.error().message);
      if (overlap(axes, {*axis}))
        return makeError(hints.file + ": kept '" + hint.glob + "': axis " + name +
                         " is used twice");
      axes.push_back(*axis);
    }
    size_t matching = 0, kept = 0;
    for (size_t v = 0; v < graph.values.size(); ++v) {
      const FlowValue &value = graph.values[v];
      auto isMeant = [&](const std::string &name) {
        return matchesGlob(hint.glob, name);
      };
      if (value.producer < 0 || graph.ops[value.producer].kind != FlowKind::Source ||
          elementCount(value.shape) < graph.mesh.numRanks() ||
          !(isMeant(value.name) ||
            std::any_of(value.otherNames.begin(), value.otherNames.end(), isMeant)))
        continue;
      ++matching;
      auto number = static_cast<int32_t>(v);
      if (auto served = keptInParts(graph, decision.strategies, number, axes)) {
        decision.servings[number] = std::move(*served);
        ++kept;
      }
    }
    if (matching == 0)
      return makeError(hints.file + ": no weight is named '" + hint.glob + "'" +
                       nearMisses(graph, hint.glob));
    if (kept < matching)
      decision.notes.push_back(std::to_string(matching - kept) + " of " +
                               std::to_string(matching) + " weights named '" + hint.glob +
                               "' are not kept in parts over " + graph.mesh.str(axes) +
                               ": several ops read them, or no dim divides");
  }
  if (!hints.kept.empty())
    decision.price = price(graph, decision.strategies, decision.servings);
  return {};
}
