//===- OptimizerStates.cpp - The parameters of a training step ------------===//
#include "passes/Shard/OptimizerStates.h"

#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"

#include <map>

using namespace mlir;
using namespace partita;

OptimizerParallel partita::optimizerParallelOf(FunctionOpInterface function) {
  OptimizerParallel knobs;
  auto asked = function->getAttrOfType<DictionaryAttr>(graph::optimizerParallelAttr);
  if (!asked)
    return knobs;
  auto number = [&](StringRef name) { return asked.getAs<IntegerAttr>(name).getInt(); };
  knobs.level = static_cast<int>(number("level"));
  knobs.thresholdBytes = number("threshold");
  knobs.shardSize = number("shard_size");
  return knobs;
}

/// The parameter that an argument of a function belongs to; null: to none.
static StringAttr parameterOf(FunctionOpInterface function, unsigned argument) {
  return function.getArgAttrOfType<StringAttr>(argument, parameterAttr);
}

/// Adds the ends by which loops read the weight: what goes in, and the body's argument.
static void addReadings(const dist::ProgramFlow &flow, ParameterOps &ops) {
  const FlowGraph &graph = flow.graph;
  const int32_t weight = graph.ops[static_cast<size_t>(ops.weight)].results[0];
  for (const FlowTie &tie : graph.ties) {
    const int32_t first = tie.members.front().op;
    const FlowOp &in = graph.ops[static_cast<size_t>(first)];
    if (flow.ends[static_cast<size_t>(first)].kind == dist::FlowEnd::CallOperand &&
        in.operands[0] == weight)
      for (const FlowTie::Member &member : tie.members)
        ops.readings.push_back(member.op);
  }
}

std::vector<ParameterOps> partita::parametersOf(FunctionOpInterface function,
                                                const dist::ProgramFlow &flow) {
  std::map<std::string, ParameterOps> byName;
  const FlowGraph &graph = flow.graph;
  std::map<int32_t, std::string> accumulated; // end -> parameter
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const dist::FlowEnd &end = flow.ends[i];
    auto number = static_cast<int32_t>(i);
    if (end.kind == dist::FlowEnd::Argument) {
      auto of = cast<FunctionOpInterface>(end.op);
      StringAttr parameter = parameterOf(of, end.number);
      if (!parameter)
        continue;
      ParameterOps &ops = byName[parameter.getValue().str()];
      dist::StateAttr state = dist::argumentState(of, end.number);
      if (!state)
        accumulated[number] = parameter.getValue().str();
      else if (state.getName() == parameter)
        ops.weight = number;
      else
        ops.moments.push_back(number);
    } else if (Operation *op = flow.operations[i]) {
      if (auto parameter = op->getAttrOfType<StringAttr>(parameterAttr))
        byName[parameter.getValue().str()].updates.push_back(number);
    }
  }
  // What a loop carries is one variable: where it goes in, in the body, and behind it.
  for (const FlowTie &tie : graph.ties)
    for (const FlowTie::Member &member : tie.members)
      if (auto it = accumulated.find(member.op); it != accumulated.end()) {
        ParameterOps &ops = byName[it->second];
        for (const FlowTie::Member &other : tie.members) {
          ops.gradients.push_back(other.op);
          const FlowOp &end = graph.ops[static_cast<size_t>(other.op)];
          if (flow.ends[static_cast<size_t>(other.op)].kind == dist::FlowEnd::Result)
            ops.adders.push_back(
                graph.values[static_cast<size_t>(end.operands[0])].producer);
        }
        break;
      }
  for (auto &[name, ops] : byName)
    if (ops.weight >= 0)
      addReadings(flow, ops);
  std::vector<ParameterOps> parameters;
  for (auto &[name, ops] : byName)
    if (ops.weight >= 0)
      parameters.push_back(std::move(ops));
  return parameters;
}

std::optional<KeptLayouts> partita::homesInParts(FunctionOpInterface function,
                                                 const dist::ProgramFlow &flow,
                                                 const std::vector<Strategy> &strategies,
                                                 const KeptLayouts &kept,
                                                 std::vector<std::string> &notes) {
  const OptimizerParallel knobs = optimizerParallelOf(function);
  if (knobs.level == 0 || flow.graph.mesh.numRanks() == 1)
    return std::nullopt;
  Decision decision;
  decision.strategies = strategies;
  KeptLayouts homes =
      optimizerHomes(flow.graph, decision, knobs, parametersOf(function, flow), notes);
  for (const auto &[end, layout] : kept)
    homes.insert_or_assign(end, layout);
  return homes;
}
