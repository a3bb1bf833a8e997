//===- Kept.h - Weights that ranks keep in parts ----------------*- C++ -*-===//
#ifndef PARTITA_RULE_DECIDE_KEPT_H
#define PARTITA_RULE_DECIDE_KEPT_H

#include "partita/Rule/Decide/Decide.h"

#include <functional>

namespace partita {

/// How a weight is served of which each rank keeps a part, split further than its user
/// reads it over `axes` along the first dim that divides: gathered before its user runs.
/// Nothing where several ops read it, it is read through windows or over these axes, or
/// no dim divides.
std::optional<std::vector<ServedLayout>>
keptInParts(const FlowGraph &graph, const std::vector<Strategy> &strategies,
            int32_t value, const AxisList &axes);

/// `layout` split further over `axes`, along the first dim whose blocks divide and with
/// which `isFit` agrees.
std::optional<Layout> inParts(
    const Layout &layout, const AxisList &axes,
    const std::function<bool(const Layout &)> &isFit = [](const Layout &) {
      return true;
    });

/// Does what `hints.kept` asks: fills `decision.servings`, and says in a note how many
/// weights it could not be done for. An error names a pattern that matches no weight.
Expected<void> keepWeights(const FlowGraph &graph, const Hints &hints,
                           Decision &decision);

} // namespace partita

#endif // PARTITA_RULE_DECIDE_KEPT_H
