//===- KeptStates.cpp - States whose layouts are decided already ----------===//
#include "passes/Shard/KeptStates.h"

#include "partita/Rule/Sharding/OperandForm.h"

using namespace mlir;
using namespace partita;

KeptStates partita::keptStates(FunctionOpInterface function,
                               const dist::ProgramFlow &flow) {
  KeptStates kept;
  for (int32_t i = 0; i < flow.numArguments; ++i)
    if (flow.graph.ops[static_cast<size_t>(i)].kind == FlowKind::State)
      if (dist::LayoutAttr layout =
              dist::argumentLayout(function, static_cast<unsigned>(i)))
        kept.emplace(i, layout.getLayout());
  return kept;
}

search::Pins partita::pinsFor(const FlowGraph &graph, const KeptStates &kept) {
  search::Pins pins;
  for (const auto &[op, layout] : kept) {
    const TensorFactors &tensor = graph.ops[static_cast<size_t>(op)].rule.results[0];
    for (size_t d = 0; d < tensor.size(); ++d) {
      std::vector<int32_t> atoms = graph.dimAtoms(op, tensor[d]);
      const std::vector<DimFactor> &factors = layout.dims[d].factors;
      if (atoms.size() == factors.size()) {
        for (size_t i = 0; i < atoms.size(); ++i)
          pins[atoms[i]] = factors[i].axes;
        continue;
      }
      // Cut otherwise than there: the axes go to the pieces that they reach.
      AxisList axes;
      for (const DimFactor &factor : factors)
        axes.insert(axes.end(), factor.axes.begin(), factor.axes.end());
      if (auto given = distribute(graph, atoms, axes))
        for (size_t i = 0; i < atoms.size(); ++i)
          pins[atoms[i]] = (*given)[i];
    }
  }
  return pins;
}

void partita::keepStates(const FlowGraph &graph, const KeptStates &kept,
                         Decision &decision) {
  bool isOther = false;
  for (const auto &[op, layout] : kept) {
    const FlowOp &state = graph.ops[static_cast<size_t>(op)];
    Strategy &decided = decision.strategies[static_cast<size_t>(op)];
    if (resultLayout(state.rule, decided, 0).canonicalized() == layout.canonicalized())
      continue;
    isOther = true;
    decided = strategyForLayout(state.rule, state.rule.results[0], layout);
    decision.servings.erase(state.results[0]);
    if (state.tied < 0)
      continue;
    const FlowOp &sink = graph.ops[static_cast<size_t>(state.tied)];
    decision.strategies[static_cast<size_t>(state.tied)] =
        strategyForLayout(sink.rule, sink.rule.operands[0], layout);
    decision.servings.erase(sink.operands[0]);
  }
  if (isOther)
    decision.price = price(graph, decision.strategies, decision.servings);
}
