//===- OptimizerParallel.cpp - Where a replicated parameter is kept -------===//
#include "partita/Rule/Decide/OptimizerParallel.h"

#include "partita/Rule/Decide/Kept.h"
#include "partita/Rule/Sharding/OperandForm.h"
#include "partita/Rule/Sharding/Propagation.h"

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

static const TensorFactors &tensorOf(const FlowOp &end) {
  return end.kind == FlowKind::Sink ? end.rule.operands[0] : end.rule.results[0];
}

/// Whether the pieces into which the program cuts the tensor at this end have the layout:
/// a fused projection that is read as [3, 32] cannot be halves of 96.
static bool canHave(const FlowGraph &graph, int32_t end, const Layout &layout) {
  const TensorFactors &tensor = tensorOf(opAt(graph, end));
  for (size_t d = 0; d < tensor.size(); ++d) {
    const DimLayout &wanted = layout.dims[d];
    AxisList axes;
    for (const DimFactor &factor : wanted.factors)
      axes.insert(axes.end(), factor.axes.begin(), factor.axes.end());
    if (axes.empty())
      continue;
    std::vector<int32_t> atoms = graph.dimAtoms(end, tensor[d]);
    auto given = distribute(graph, atoms, axes);
    if (!given)
      return false;
    Layout one;
    one.dims.resize(1);
    for (size_t i = 0; i < atoms.size(); ++i) {
      int64_t size = graph.atoms[static_cast<size_t>(atoms[i])].size;
      const int64_t ways = product((*given)[i]);
      // A dim that is one piece may be padded at its end, as a vocabulary is.
      const int64_t padded = (size + ways - 1) / ways * ways;
      if (padded != size && atoms.size() > 1)
        return false;
      one.dims[0].factors.push_back({size, padded, (*given)[i]});
    }
    if (one.canonicalized().dims[0] != wanted)
      return false;
  }
  return true;
}

std::map<int32_t, Layout> partita::optimizerHomes(
    const FlowGraph &graph, const Decision &decision, const OptimizerParallel &knobs,
    const std::vector<ParameterOps> &parameters, std::vector<std::string> &notes) {
  std::map<int32_t, Layout> homes;
  int64_t small = 0, undivided = 0, unfit = 0, whole = 0;
  for (const ParameterOps &p : parameters) {
    const FlowOp &weight = opAt(graph, p.weight);
    // Pieces into which the program cuts a dim are one where they lie together.
    Layout now =
        resultLayout(weight.rule, decision.strategies[static_cast<size_t>(p.weight)], 0)
            .canonicalized();
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
    std::vector<int32_t> states = p.moments, gradients;
    if (knobs.level >= 3)
      states.push_back(p.weight);
    if (knobs.level >= 2)
      gradients = p.gradients;
    auto fitsAll = [&](const std::vector<int32_t> &ends) {
      return [&](const Layout &layout) {
        return std::all_of(ends.begin(), ends.end(),
                           [&](int32_t end) { return canHave(graph, end, layout); });
      };
    };
    std::optional<Layout> home;
    if (!axes.empty()) {
      std::vector<int32_t> all = states;
      all.insert(all.end(), gradients.begin(), gradients.end());
      home = inParts(now, axes, fitsAll(all));
      // What a loop adds up may be cut so that it has no such parts; states still may.
      if (!home && !states.empty()) {
        home = inParts(now, axes, fitsAll(states));
        whole += home.has_value() && !gradients.empty();
        gradients.clear();
      }
    }
    if (!home) {
      undivided += !axes.empty();
      continue;
    }
    // Loops gather a weight where they read it, in each trip: no rank holds it whole for
    // all of them.
    std::vector<int32_t> readings;
    if (knobs.level >= 3 && fitsAll(p.readings)(*home))
      readings = p.readings;
    for (const std::vector<int32_t> *ends : {&states, &gradients, &readings})
      for (int32_t end : *ends)
        homes.emplace(end, *home);
  }
  auto tell = [&](int64_t count, const std::string &why) {
    if (count != 0)
      notes.push_back("optimizer parallel: " + std::to_string(count) + " of " +
                      std::to_string(parameters.size()) + " parameters " + why);
  };
  tell(small, "are not split, being below the threshold of " +
                  std::to_string(knobs.thresholdBytes) + " bytes");
  tell(undivided, "are not split, as no dim divides");
  tell(unfit,
       "are not split, as no axes have " + std::to_string(knobs.shardSize) + " ranks");
  tell(whole, "have a whole sum of gradients over micro-batches, which reads them in "
              "pieces that do not divide");
  return homes;
}

namespace {
class Placer {
public:
  Placer(const FlowGraph &graph, Decision &decision) : graph(graph), decision(decision) {}

  void placeEnd(int32_t end, const Layout &layout) {
    const FlowOp &op = opAt(graph, end);
    decision.strategies[static_cast<size_t>(end)] =
        strategyForLayout(op.rule, tensorOf(op), layout);
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

  /// Narrowing of the weight runs where it lies: fewer bytes are gathered.
  void placeNarrowed(int32_t weight, const Layout &layout) {
    for (const FlowUse &use : valueAt(opAt(graph, weight).results[0]).uses)
      if (widenedBy(use.op) < 0)
        placeOp(use.op, layout);
  }

  /// Widening of the gradient for its updates runs where these do: the gradient is
  /// reduced to its parts before, in fewer bytes.
  void placeWidened(const std::vector<int32_t> &updates, const Layout &layout) {
    auto isUpdate = [&](const FlowUse &use) {
      return std::ranges::find(updates, use.op) != updates.end();
    };
    for (int32_t update : updates)
      for (int32_t operand : opAt(graph, update).operands) {
        const FlowValue &value = valueAt(operand);
        if (value.shape == layout.globalShape() && widenedBy(value.producer) > 0 &&
            opAt(graph, value.producer).phase == Phase::Weight &&
            std::ranges::all_of(value.uses, isUpdate))
          placeOp(value.producer, layout);
      }
  }

private:
  const FlowValue &valueAt(int32_t number) const {
    return graph.values[static_cast<size_t>(number)];
  }
  /// Bytes by which elements of an elementwise op's result are wider than those of its
  /// one operand; 0 of other ops.
  int64_t widenedBy(int32_t op) const {
    const FlowOp &it = opAt(graph, op);
    if (it.kind != FlowKind::Compute || it.operands.size() != 1 ||
        it.results.size() != 1 || it.facts.kind != kernels::OpKind::Pointwise)
      return 0;
    return valueAt(it.results[0]).elementBytes - valueAt(it.operands[0]).elementBytes;
  }

  const FlowGraph &graph;
  Decision &decision;
};
} // namespace

/// The axes over which all operands of the op are partial sums, but for those that every
/// rank has whole; none where they differ.
static AxisList partialAxes(const FlowGraph &graph, const Decision &decision,
                            const FlowOp &op) {
  AxisList axes;
  for (int32_t operand : op.operands) {
    const FlowValue &value = graph.values[static_cast<size_t>(operand)];
    const auto producer = static_cast<size_t>(value.producer);
    Layout layout = resultLayout(graph.ops[producer].rule, decision.strategies[producer],
                                 static_cast<size_t>(value.result))
                        .canonicalized();
    if (layout.partial.empty())
      continue;
    const PartialAxes &partial = layout.partial[0];
    if (layout.partial.size() != 1 || partial.kind != ReduceKind::Sum ||
        (!axes.empty() && axes != partial.axes))
      return {};
    axes = partial.axes;
  }
  return axes;
}

/// A number of the step that adds up parts of all parameters (the norm of gradients) is
/// reduced once, and not once for each of them.
static void passSums(const FlowGraph &graph, Decision &decision) {
  for (size_t o = 0; o < graph.ops.size(); ++o) {
    const FlowOp &op = graph.ops[o];
    if (op.kind != FlowKind::Compute || op.phase != Phase::Update ||
        op.results.size() != 1 ||
        !graph.values[static_cast<size_t>(op.results[0])].shape.empty())
      continue;
    for (size_t s = 0; s < op.rule.linear.size(); ++s) {
      const LinearSet &set = op.rule.linear[s];
      if (set.kind != ReduceKind::Sum || set.operands.size() != op.operands.size())
        continue;
      if (AxisList axes = partialAxes(graph, decision, op); !axes.empty())
        decision.strategies[o].passing = {{static_cast<int32_t>(s), axes}};
      break;
    }
  }
}

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
    if (auto home = moment != homes.end() ? moment : weight; home != homes.end()) {
      for (int32_t op : p.updates)
        placer.placeOp(op, home->second);
      placer.placeWidened(p.updates, home->second);
    }
    if (weight != homes.end())
      placer.placeNarrowed(p.weight, weight->second);
    auto gradient = p.gradients.empty() ? homes.end() : homes.find(p.gradients[0]);
    if (gradient != homes.end())
      for (int32_t op : p.adders)
        placer.placeOp(op, gradient->second);
  }
  passSums(graph, decision);
  decision.price = price(graph, decision.strategies, decision.servings);
}
