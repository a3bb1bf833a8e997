//===- Decided.h - What hints lead to, by names -----------------*- C++ -*-===//
#ifndef PARTITA_TEST_UNIT_RULE_DECIDED_H
#define PARTITA_TEST_UNIT_RULE_DECIDED_H

#include "FlowProgram.h"

#include "partita/Base/Layout/Reshard.h"
#include "partita/Rule/Decide/Decide.h"
#include "partita/Rule/Decide/Hints.h"

#include <catch2/catch.hpp>

#include <map>
#include <string>

namespace partita {

/// Every loop of a strategy in the rule's order, whole ones too.
inline std::string byNumber(const Mesh &mesh, const Strategy &strategy) {
  Layout layout;
  layout.dims = strategy.factors;
  std::string text = layout.str(mesh);
  for (const Passing &p : strategy.passing)
    text += " pass " + std::to_string(p.set) + " " + mesh.str(p.axes);
  return text;
}

using Named = std::map<std::string, std::string>;

/// Strategies by op name, of hints given as JSON.
inline Named decideByName(FlowGraph graph, const std::string &hints) {
  auto json = parseJson(hints, "hints");
  REQUIRE(json);
  auto parsed = Hints::parse(*json);
  INFO((parsed ? "" : parsed.error().message));
  REQUIRE(parsed);
  auto decision = decide(graph, ShardMode::SemiAuto, *parsed);
  INFO((decision ? "" : decision.error().message));
  REQUIRE(decision);
  Named result;
  for (size_t i = 0; i < graph.ops.size(); ++i)
    result[graph.ops[i].name] = byNumber(graph.mesh, decision->strategies[i]);
  return result;
}

/// How often each step kind occurs when all values are served.
inline std::map<StepKind, int> steps(FlowGraph graph, const std::string &hints) {
  auto decision =
      decide(graph, ShardMode::SemiAuto, *Hints::parse(*parseJson(hints, "hints")));
  REQUIRE(decision);
  std::map<StepKind, int> count;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const FlowValue &value = graph.values[v];
    if (graph.ops[value.producer].isSource())
      continue;
    Layout produced = resultLayout(graph.ops[value.producer].rule,
                                   decision->strategies[value.producer], 0);
    auto served = serveUses(graph, decision->strategies, static_cast<int32_t>(v));
    for (const ServedLayout &entry : served) {
      auto plan =
          planReshard(graph.mesh, entry.from < 0 ? produced : served[entry.from].layout,
                      entry.layout);
      REQUIRE(plan);
      for (const Step &step : plan->steps)
        ++count[step.kind];
    }
  }
  return count;
}

} // namespace partita

#endif // PARTITA_TEST_UNIT_RULE_DECIDED_H
