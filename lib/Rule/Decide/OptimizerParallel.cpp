//===- OptimizerParallel.cpp - Where a replicated parameter is kept -------===//
#include "partita/Rule/Decide/OptimizerParallel.h"

#include "partita/Rule/Decide/Kept.h"
#include "partita/Rule/Sharding/OperandForm.h"

#include <algorithm>

using namespace partita;

static const FlowOp &opAt(const FlowGraph &graph, int32_t op) {
  return graph.ops[static_cast<size_t>(op)];
}

/// The axes over which all ranks hold the same elements.
static AxisList replicating(const Mesh &mesh, const Layout &layout) {
  AxisList used, free;
  for (const DimLayout &dim : layout.dims)
    for (const DimFactor &factor : dim.factors)
      used.insert(used.end(), factor.axes.begin(), factor.axes.end());
  for (const AxisRef &digit : primes(mesh.all()))
    if (!overlap(used, {digit}))
      free.push_back(digit);
  return free;
}

/// The innermost digits whose product is `size`; all of them where that is -1; none
/// where no digits make it.
static AxisList sharing(const AxisList &digits, int64_t size) {
  if (size < 0)
    return canonical(digits);
  AxisList some;
  for (size_t i = digits.size(); i-- > 0 && product(some) < size;)
    some.insert(some.begin(), digits[i]);
  return product(some) == size ? canonical(some) : AxisList{};
}

std::map<int32_t, Layout> partita::optimizerHomes(
    const FlowGraph &graph, const Decision &decision, const OptimizerParallel &knobs,
    const std::vector<ParameterOps> &parameters, std::vector<std::string> &notes) {
  std::map<int32_t, Layout> homes;
  int64_t small = 0, undivided = 0, unfit = 0;
  for (const ParameterOps &p : parameters) {
    const FlowOp &weight = opAt(graph, p.weight);
    Layout now =
        resultLayout(weight.rule, decision.strategies[static_cast<size_t>(p.weight)], 0);
    AxisList digits = replicating(graph.mesh, now);
    if (digits.empty())
      continue;
    if (graph.values[static_cast<size_t>(weight.results[0])].bytes() <
        knobs.thresholdBytes) {
      ++small;
      continue;
    }
    AxisList axes = sharing(digits, knobs.shardSize);
    unfit += axes.empty();
    auto home = axes.empty() ? std::nullopt : inParts(now, axes);
    if (!home) {
      undivided += !axes.empty();
      continue;
    }
    for (int32_t moment : p.moments)
      homes.emplace(moment, *home);
    if (knobs.level >= 2)
      for (int32_t end : p.gradients)
        homes.emplace(end, *home);
    if (knobs.level >= 3)
      homes.emplace(p.weight, *home);
  }
  auto tell = [&](int64_t count, const std::string &why) {
    if (count != 0)
      notes.push_back("optimizer parallel: " + std::to_string(count) + " of " +
                      std::to_string(parameters.size()) + " parameters are not split, " +
                      why);
  };
  tell(small,
       "being below the threshold of " + std::to_string(knobs.thresholdBytes) + " bytes");
  tell(undivided, "as no dim divides");
  tell(unfit, "as no axes have " + std::to_string(knobs.shardSize) + " ranks");
  return homes;
}

namespace {
class Placer {
public:
  Placer(const FlowGraph &graph, Decision &decision) : graph(graph), decision(decision) {}

  void placeEnd(int32_t end, const Layout &layout) {
    const FlowOp &op = opAt(graph, end);
    const TensorFactors &tensor =
        op.kind == FlowKind::Sink ? op.rule.operands[0] : op.rule.results[0];
    decision.strategies[static_cast<size_t>(end)] =
        strategyForLayout(op.rule, tensor, layout);
    decision.servings.erase(op.kind == FlowKind::Sink ? op.operands[0] : op.results[0]);
    if (op.tied >= 0 && op.kind == FlowKind::State)
      placeEnd(op.tied, layout);
  }

  /// The op runs where its result lies, or, of a sum over the parameter, its operand.
  void placeOp(int32_t number, const Layout &layout) {
    const FlowOp &op = opAt(graph, number);
    std::vector<int64_t> shape = layout.globalShape();
    auto isParameter = [&](const std::vector<int32_t> &values, size_t i) {
      return graph.values[static_cast<size_t>(values[i])].shape == shape;
    };
    const TensorFactors *tensor = nullptr;
    for (size_t i = 0; i < op.operands.size() && !tensor; ++i)
      if (isParameter(op.operands, i))
        tensor = &op.rule.operands[i];
    for (size_t i = 0; i < op.results.size(); ++i)
      if (isParameter(op.results, i))
        tensor = &op.rule.results[i];
    if (tensor)
      decision.strategies[static_cast<size_t>(number)] =
          strategyForLayout(op.rule, *tensor, layout);
  }

private:
  const FlowGraph &graph;
  Decision &decision;
};
} // namespace

void partita::placeOptimizer(const FlowGraph &graph,
                             const std::map<int32_t, Layout> &homes,
                             const std::vector<ParameterOps> &parameters,
                             Decision &decision) {
  Placer placer(graph, decision);
  for (const auto &[end, layout] : homes)
    placer.placeEnd(end, layout);
  for (const ParameterOps &p : parameters) {
    auto moment = p.moments.empty() ? homes.end() : homes.find(p.moments[0]);
    auto weight = homes.find(p.weight);
    if (auto home = moment != homes.end() ? moment : weight; home != homes.end())
      for (int32_t op : p.updates)
        placer.placeOp(op, home->second);
    auto gradient = p.gradients.empty() ? homes.end() : homes.find(p.gradients[0]);
    if (gradient != homes.end())
      for (int32_t op : p.adders)
        placer.placeOp(op, gradient->second);
  }
  decision.price = price(graph, decision.strategies, decision.servings);
}
