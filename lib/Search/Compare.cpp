//===- Compare.cpp - Plans that people write, and what ours costs ---------===//
#include "partita/Search/Compare.h"

#include "partita/Rule/Decide/Decide.h"
#include "partita/Rule/Decide/Hints.h"
#include "partita/Rule/Sharding/OperandForm.h"

#include <algorithm>
#include <tuple>

using namespace partita;
using namespace partita::search;

/// Whether the value comes from a normalization, whatever renames it on the way.
static bool isNormalized(const Timing &timing, int32_t value) {
  const FlowGraph &graph = timing.graph;
  for (;;) {
    int32_t producer = graph.values[static_cast<size_t>(value)].producer;
    const FlowOp &op = graph.ops[static_cast<size_t>(producer)];
    if (op.kind != FlowKind::Compute)
      return false;
    bool whole =
        std::any_of(op.rule.factors.begin(), op.rule.factors.end(), [](const Factor &f) {
          return f.kind() == FactorKind::Replicate && f.size > 1;
        });
    if (whole)
      return true;
    if (op.priority != 0 || op.operands.size() != 1)
      return false;
    value = op.operands[0];
  }
}

/// Seeds that split by columns the weights of products with what was normalized.
static std::vector<Seed> columnSeeds(const Timing &timing, const AxisList &axes) {
  const FlowGraph &graph = timing.graph;
  std::vector<Seed> seeds;
  for (size_t o = 0; o < graph.ops.size(); ++o) {
    const FlowOp &op = graph.ops[o];
    if (!isMatmul(op) || !isNormalized(timing, op.operands[0]))
      continue;
    int32_t weight = graph.values[static_cast<size_t>(op.operands[1])].producer;
    if (graph.ops[static_cast<size_t>(weight)].kind != FlowKind::Source)
      continue;
    for (const std::vector<int32_t> &dim : op.rule.operands[1]) {
      bool isColumn = std::find(op.rule.results[0].begin(), op.rule.results[0].end(),
                                dim) != op.rule.results[0].end();
      auto atoms = graph.dimAtoms(static_cast<int32_t>(o), dim);
      auto lists = isColumn && !atoms.empty() ? distribute(graph, atoms, axes)
                                              : Expected<std::vector<AxisList>>();
      if (!lists || lists->empty())
        continue;
      for (size_t i = 0; i < atoms.size(); ++i)
        if (!(*lists)[i].empty())
          seeds.push_back({atoms[i], (*lists)[i], "columns", 0});
      break;
    }
  }
  return seeds;
}

/// Batches over the axes that are left: the first dim of every argument.
static void addBatchSeeds(const FlowGraph &graph, const AxisList &axes,
                          std::vector<Seed> &seeds) {
  for (size_t o = 0; o < graph.ops.size(); ++o) {
    const FlowOp &op = graph.ops[o];
    if (op.kind != FlowKind::Argument || op.rule.results[0].empty() || axes.empty())
      continue;
    auto atoms = graph.dimAtoms(static_cast<int32_t>(o), op.rule.results[0][0]);
    if (!atoms.empty() &&
        canShard(graph, graph.atoms[static_cast<size_t>(atoms[0])], axes))
      seeds.push_back({atoms[0], axes, "batch", 1});
  }
}

static KnownPlan priced(Timing &timing, std::string name, const Decided &plan) {
  return {std::move(name), evaluate(timing, plan).total(),
          memoryOf(timing, plan, 0).peak()};
}

/// A layout split over all axes of the mesh, along the first dim that has as many rows.
static std::optional<Layout> inAllParts(const Mesh &mesh, const Layout &layout) {
  for (size_t d = 0; d < layout.dims.size(); ++d) {
    Layout parts = layout;
    if (parts.dims[d].factors.size() != 1 || parts.dims[d].size() % mesh.numRanks() != 0)
      continue;
    DimFactor &factor = parts.dims[d].factors[0];
    factor.padded = factor.size;
    factor.axes = canonical(mesh.all());
    return parts.canonicalized();
  }
  return std::nullopt;
}

/// Of every weight with one user that reads it whole each device keeps a part; the weight
/// is gathered before its user runs.
static Decided fullySharded(const FlowGraph &graph, std::vector<Strategy> strategies) {
  Decided plan{std::move(strategies), {}};
  for (const FlowOp &op : graph.ops) {
    if (op.kind != FlowKind::Source)
      continue;
    const FlowValue &value = graph.values[static_cast<size_t>(op.results[0])];
    Layout whole = Layout::replicated(value.shape);
    if (value.uses.size() != 1 || value.bytes() < ModelOptions().leastGathered)
      continue;
    const FlowUse &use = value.uses[0];
    OperandForm form = operandForm(graph.ops[static_cast<size_t>(use.op)].rule,
                                   plan.strategies[static_cast<size_t>(use.op)],
                                   static_cast<size_t>(use.operand));
    auto parts = inAllParts(graph.mesh, whole);
    if (parts && !form.window && form.layout == whole)
      plan.servings[op.results[0]] = {{*parts, -1, {}, std::nullopt},
                                      {whole, 0, value.uses, std::nullopt}};
  }
  return plan;
}

std::vector<KnownPlan> search::knownPlans(FlowGraph &graph, const Placement &placement) {
  Timing timing(graph, placement);
  std::vector<KnownPlan> plans;
  if (auto decision = decide(graph, ShardMode::DataParallel, {})) {
    plans.push_back(priced(timing, "data-parallel", {decision->strategies, {}}));
    plans.push_back(priced(timing, "fully sharded",
                           fullySharded(graph, std::move(decision->strategies))));
  }
  AxisList all;
  for (const AxisRef &axis : graph.mesh.all())
    if (axis.size > 1)
      all.push_back(axis);
  if (all.empty())
    return plans;
  std::vector<Seed> seeds = columnSeeds(timing, {all.back()});
  if (seeds.empty())
    return plans;
  addBatchSeeds(graph, {all.begin(), all.end() - 1}, seeds);
  if (auto spread = propagate(graph, seeds))
    plans.push_back(
        priced(timing, "Megatron-like", {strategiesOf(graph, spread->axes, seeds), {}}));
  return plans;
}

std::vector<Reshard> search::costliestReshards(Timing &timing, const Decided &plan,
                                               size_t count, int32_t only) {
  const FlowGraph &graph = timing.graph;
  std::map<std::tuple<int32_t, int32_t, int64_t>, Reshard> all;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const FlowValue &value = graph.values[v];
    auto number = static_cast<int32_t>(v);
    if (value.producer < 0 || value.uses.empty() || (only >= 0 && number != only))
      continue;
    auto producer = static_cast<size_t>(value.producer);
    bool isSource = graph.ops[producer].kind == FlowKind::Source;
    auto given = plan.servings.find(number);
    auto served = given != plan.servings.end()
                      ? given->second
                      : serveUses(graph, plan.strategies, number);
    Layout produced = resultLayout(graph.ops[producer].rule, plan.strategies[producer],
                                   static_cast<size_t>(value.result))
                          .canonicalized();
    for (const ServedLayout &entry : served) {
      if (isSource && entry.from < 0)
        continue;
      const Layout &at =
          entry.from < 0 ? produced : served[static_cast<size_t>(entry.from)].layout;
      int32_t from = timing.forms.add(at);
      Form form{entry.layout, entry.halo};
      if (form.halo)
        form.halo->before = entry.layout;
      int32_t to = timing.forms.add(std::move(form));
      Conversion way = timing.convert(from, to, value.elementBytes);
      if (way.time == 0)
        continue;
      auto [place, added] = all.try_emplace({from, to, value.elementBytes}, Reshard{});
      if (!added) {
        ++place->second.copies;
        continue;
      }
      int64_t bound = 0;
      if (!entry.halo)
        if (auto steps = planReshard(graph.mesh, at, entry.layout, graph.reshard))
          bound = steps->lowerBoundElements * value.elementBytes;
      place->second = {value.name,
                       graph.ops[producer].name,
                       at.str(graph.mesh),
                       (entry.halo ? "windows of " : "") + entry.layout.str(graph.mesh),
                       from,
                       to,
                       number,
                       way.time,
                       way.receivedBytes,
                       bound,
                       1};
    }
  }
  std::vector<Reshard> result;
  for (auto &[key, reshard] : all)
    result.push_back(std::move(reshard));
  std::sort(result.begin(), result.end(), [](const Reshard &a, const Reshard &b) {
    return std::make_tuple(-a.time * a.copies, a.value) <
           std::make_tuple(-b.time * b.copies, b.value);
  });
  result.resize(std::min(result.size(), count));
  return result;
}
