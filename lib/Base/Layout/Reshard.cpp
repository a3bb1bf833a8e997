//===- Reshard.cpp - Planning the steps from one layout to another --------===//
#include "partita/Base/Layout/Reshard.h"

#include "ReshardRefine.h"

#include <algorithm>
#include <cassert>
#include <optional>

using namespace partita;
using namespace partita::reshard;

static constexpr std::string_view stepNames[] = {
    "view",       "slice",          "all-gather", "all-to-all", "permute",
    "all-reduce", "reduce-scatter", "to-partial", "repad",      "exchange"};

std::string_view partita::name(StepKind kind) {
  return stepNames[static_cast<int>(kind)];
}

void reshard::append(ReshardPlan &plan, Step step) {
  plan.receivedElements += step.receivedElements;
  int64_t in = step.before.localElements(), out = step.after.localElements();
  plan.peakElements =
      std::max(plan.peakElements, step.kind == StepKind::View ? out : in + out);
  plan.steps.push_back(std::move(step));
}

Step reshard::makeStep(StepKind kind, const Layout &before, const Layout &after) {
  Step step;
  step.kind = kind;
  step.before = before;
  step.after = after;
  return step;
}

void reshard::appendView(ReshardPlan &plan, const Layout &before, const Layout &after) {
  if (before != after)
    append(plan, makeStep(StepKind::View, before, after));
}

void reshard::appendExchange(ReshardPlan &plan, const Mesh &mesh, const Layout &before,
                             const Layout &after) {
  Step step = makeStep(StepKind::Exchange, before, after);
  step.receivedElements = exchangeElements(mesh, before, after);
  append(plan, std::move(step));
}

void reshard::appendAll(ReshardPlan &plan, ReshardPlan other) {
  for (Step &step : other.steps)
    append(plan, std::move(step));
}

//===----------------------------------------------------------------------===//
// Layouts that do not nest
//===----------------------------------------------------------------------===//

static ReshardPlan planCore(const Mesh &mesh, const Layout &source, const Layout &target,
                            const ReshardOptions &options);

/// `dim` as one unsharded factor.
static DimLayout unsharded(const DimLayout &dim) {
  return {{{dim.size(), dim.padded(), {}}}};
}

/// A stop on the way for layouts with equal partial axes: bad dims unsharded; other dims
/// that only need slicing sliced already, so that the gathers move less.
static Layout withBadDimsGathered(const Layout &source, const Layout &target,
                                  const Refinement &refinement) {
  Layout middle = source;
  AxisList used = source.shardingAxes(), partial = source.partialAxes();
  used.insert(used.end(), partial.begin(), partial.end());
  for (size_t d = 0; d < source.dims.size(); ++d) {
    AxisList wanted;
    for (const DimFactor &factor : target.dims[d].factors)
      wanted.insert(wanted.end(), factor.axes.begin(), factor.axes.end());
    if (refinement.badDim[d])
      middle.dims[d] = unsharded(source.dims[d]);
    else if (!source.dims[d].sharded() && !overlap(wanted, used))
      middle.dims[d] = target.dims[d];
  }
  return middle.canonicalized();
}

/// A repad of a dim whose major factor is unsharded in `layout`, to the padded extent of
/// `other`; nothing if that is not the case or not possible.
static std::optional<Layout> repadded(const Layout &layout, const Layout &other,
                                      size_t dim) {
  const DimFactor &major = layout.dims[dim].factors[0];
  int64_t below = layout.dims[dim].padded() / major.padded;
  int64_t padded = other.dims[dim].padded();
  if (!major.axes.empty() || padded % below || padded / below < major.size)
    return std::nullopt;
  Layout result = layout;
  result.dims[dim].factors[0].padded = padded / below;
  return result;
}

static Step repadStep(const Layout &before, const Layout &after, size_t dim) {
  Step step = makeStep(StepKind::Repad, before, after);
  step.dim = static_cast<int32_t>(dim);
  step.factor = 0;
  return step;
}

/// Cuts, padded extents or axes that do not agree: partial axes first (they then need
/// only plans whose cuts are those of one layout), then one exchange or gathers.
static ReshardPlan planBad(const Mesh &mesh, const Layout &source, const Layout &target,
                           const Refinement &refinement, const ReshardOptions &options) {
  ReshardPlan plan;
  if (source.partial != target.partial) {
    Layout reduced = source, made = target;
    reduced.partial = made.partial = commonPartials(source, target);
    appendAll(plan, planCore(mesh, source, reduced, options));
    appendAll(plan, planCore(mesh, reduced, made, options));
    appendAll(plan, planCore(mesh, made, target, options));
    return plan;
  }
  if (options.allToAll) {
    appendExchange(plan, mesh, source, target);
    return plan;
  }
  Layout gathered = withBadDimsGathered(source, target, refinement);
  appendAll(plan, planCore(mesh, source, gathered, options));
  appendAll(plan, planCore(mesh, gathered, target, options));
  return plan;
}

//===----------------------------------------------------------------------===//
// Given blocks
//===----------------------------------------------------------------------===//

/// Dims with given blocks stay as they are: planned as if their blocks were equal, of the
/// longest one's length, because no step looks inside them.
static ReshardPlan planBesideBlocks(const Mesh &mesh, const Layout &source,
                                    const Layout &target, const ReshardOptions &options) {
  Layout from = source, to = target;
  for (size_t d = 0; d < source.dims.size(); ++d)
    for (Layout *layout : {&from, &to})
      if (DimFactor &major = layout->dims[d].factors[0]; !major.blocks.empty()) {
        major.blocks.clear();
        major.size = major.padded;
      }
  ReshardPlan plan = planCore(mesh, from, to, options);
  for (Step &step : plan.steps)
    for (size_t d = 0; d < source.dims.size(); ++d)
      if (source.dims[d].hasBlocks())
        step.before.dims[d] = step.after.dims[d] = source.dims[d];
  return plan;
}

/// Equal partial axes. Exchanges where something has blocks, else plans as ever.
static ReshardPlan moveBlocks(const Mesh &mesh, const Layout &before, const Layout &after,
                              const ReshardOptions &options) {
  if (!before.hasBlocks() && !after.hasBlocks())
    return planCore(mesh, before, after, options);
  ReshardPlan plan;
  if (before != after)
    appendExchange(plan, mesh, before, after);
  return plan;
}

/// Where blocks change, what is lacking is exchanged, after reducing what has to be.
/// Without all-to-all the exchanges are a gather of differing lengths and a slice, with
/// the changing dims whole in between.
static ReshardPlan planBlocks(const Mesh &mesh, const Layout &source,
                              const Layout &target, const ReshardOptions &options) {
  Layout reduced = source, made = target;
  reduced.partial = made.partial = commonPartials(source, target);
  Layout wholeSource = reduced, wholeTarget = made;
  bool changes = false;
  for (size_t d = 0; d < source.dims.size(); ++d) {
    bool blocks = source.dims[d].hasBlocks() || target.dims[d].hasBlocks();
    if (!blocks || source.dims[d] == target.dims[d])
      continue;
    changes = true;
    int64_t size = source.dims[d].size();
    wholeSource.dims[d] = wholeTarget.dims[d] = {{{size, size, {}}}};
  }
  if (!changes)
    return planBesideBlocks(mesh, source, target, options);
  ReshardPlan plan = planCore(mesh, source, reduced, options);
  if (options.allToAll) {
    appendAll(plan, moveBlocks(mesh, reduced, made, options));
  } else {
    appendAll(plan, moveBlocks(mesh, reduced, wholeSource, options));
    appendAll(plan, planCore(mesh, wholeSource, wholeTarget, options));
    appendAll(plan, moveBlocks(mesh, wholeTarget, made, options));
  }
  appendAll(plan, planCore(mesh, made, target, options));
  return plan;
}

/// Both canonical.
static ReshardPlan planCore(const Mesh &mesh, const Layout &source, const Layout &target,
                            const ReshardOptions &options) {
  ReshardPlan plan;
  if (source == target)
    return plan;
  if (source.hasBlocks() || target.hasBlocks())
    return planBlocks(mesh, source, target, options);
  // Differing padded extents: repad where the dim is unsharded, at no communication.
  for (size_t d = 0; d < source.dims.size(); ++d) {
    if (source.dims[d].padded() == target.dims[d].padded())
      continue;
    if (std::optional<Layout> grown = repadded(source, target, d)) {
      append(plan, repadStep(source, *grown, d));
      appendAll(plan, planCore(mesh, *grown, target, options));
      return plan;
    }
    if (std::optional<Layout> cut = repadded(target, source, d)) {
      appendAll(plan, planCore(mesh, source, *cut, options));
      append(plan, repadStep(*cut, target, d));
      return plan;
    }
  }
  Refinement refinement = refine(mesh, source, target);
  if (!refinement.nested())
    return planBad(mesh, source, target, refinement, options);
  if (auto result = planDigits(mesh, refinement, source, target, options))
    return std::move(*result);
  // Only without all-to-all: gather the uneven dims altogether.
  Refinement all = refinement;
  for (size_t d = 0; d < source.dims.size(); ++d)
    all.badDim[d] = source.dims[d].padded() != source.dims[d].size();
  return planBad(mesh, source, target, all, options);
}

//===----------------------------------------------------------------------===//
// Alternatives, for pairs whose first plan moves too much
//===----------------------------------------------------------------------===//

/// Binds `axes` part by part to whatever factor has room, even ones first; what finds no
/// room is left out.
static AxisList bindAnywhere(Layout &layout, const AxisList &axes) {
  AxisList bound;
  for (const AxisRef &part : primes(axes)) {
    DimFactor *best = nullptr;
    for (DimLayout &dim : layout.dims)
      for (DimFactor &factor : dim.factors)
        if (factor.blocks.empty() && factor.local() % part.size == 0 &&
            (!best || (best->size != best->padded && factor.size == factor.padded)))
          best = &factor;
    if (!best)
      continue;
    best->axes.push_back(part);
    bound.push_back(part);
  }
  layout = layout.canonicalized();
  return bound;
}

/// Slices by every replicated axis and reduce-scatters, both wherever there is room, so
/// that each contribution travels once; then moves the reduced pieces to their places.
static ReshardPlan planThroughScatter(const Mesh &mesh, const Layout &source,
                                      const Layout &target,
                                      const ReshardOptions &options) {
  ReshardPlan plan;
  Layout at = source, next = source, made = target;
  std::vector<PartialAxes> kept = commonPartials(source, target);
  AxisList used = source.shardingAxes(), partial = source.partialAxes();
  used.insert(used.end(), partial.begin(), partial.end());
  bindAnywhere(next, without(mesh.all(), used));
  appendAll(plan, planCore(mesh, at, next, options));
  at = next;
  for (size_t i = source.partial.size(); i-- > 0;) {
    const PartialAxes &entry = source.partial[i];
    AxisList staying = i < kept.size() ? kept[i].axes : AxisList{};
    bindAnywhere(next, without(entry.axes, staying));
    next.partial.resize(i);
    if (!staying.empty())
      next.partial.push_back(kept[i]);
    next.partial.insert(next.partial.end(), at.partial.begin() + i + 1, at.partial.end());
    next = next.canonicalized();
    appendAll(plan, planCore(mesh, at, next, options));
    at = next;
  }
  made.partial = kept;
  appendAll(plan, planCore(mesh, at, made, options));
  appendAll(plan, planCore(mesh, made, target, options));
  return plan;
}

/// Takes the padding off dims that are sharded on neither side while data moves.
static std::optional<ReshardPlan> planWithoutPadding(const Mesh &mesh,
                                                     const Layout &source,
                                                     const Layout &target,
                                                     const ReshardOptions &options) {
  Layout from = source, to = target;
  for (size_t d = 0; d < source.dims.size(); ++d) {
    DimFactor &a = from.dims[d].factors[0], &b = to.dims[d].factors[0];
    if (!a.axes.empty() || !b.axes.empty() || a.size == a.padded)
      continue;
    if (a.padded != b.padded)
      continue;
    a.padded = a.size;
    b.padded = b.size;
  }
  if (from == source)
    return std::nullopt;
  ReshardPlan plan;
  appendAll(plan, planCore(mesh, source, from, options));
  appendAll(plan, planCore(mesh, from, to, options));
  appendAll(plan, planCore(mesh, to, target, options));
  return plan;
}

/// Whether a reduction to full copies is followed by moving what it gave.
static bool movesAfterAllReduce(const ReshardPlan &plan) {
  bool reduced = false;
  for (const Step &step : plan.steps) {
    if (reduced && (step.kind == StepKind::Permute || step.kind == StepKind::AllToAll ||
                    step.kind == StepKind::Exchange))
      return true;
    reduced |= step.kind == StepKind::AllReduce;
  }
  return false;
}

static ReshardPlan planBest(const Mesh &mesh, const Layout &source, const Layout &target,
                            const ReshardOptions &options, int64_t bound);

/// Contributions that lie in given blocks move to equal ones before they are reduced: an
/// all-reduce of the longest block is slow for all ranks.
static ReshardPlan planThroughEqualBlocks(const Mesh &mesh, const Layout &source,
                                          const Layout &target,
                                          const ReshardOptions &options, int64_t bound) {
  Layout even = source;
  for (DimLayout &dim : even.dims)
    if (DimFactor &major = dim.factors[0]; !major.blocks.empty()) {
      int64_t shards = major.shards();
      major.blocks.clear();
      major.padded = (major.size + shards - 1) / shards * shards;
    }
  even = even.canonicalized();
  ReshardPlan plan;
  appendExchange(plan, mesh, source, even);
  appendAll(plan, planBest(mesh, even, target, options, bound));
  return plan;
}

static ReshardPlan planBest(const Mesh &mesh, const Layout &source, const Layout &target,
                            const ReshardOptions &options, int64_t bound) {
  ReshardPlan best = planCore(mesh, source, target, options);
  auto consider = [&](ReshardPlan other) {
    if (other.receivedElements < best.receivedElements)
      best = std::move(other);
  };
  if (options.allToAll && !source.partial.empty() &&
      (best.receivedElements > 2 * bound || movesAfterAllReduce(best)))
    consider(planThroughScatter(mesh, source, target, options));
  if (options.allToAll && source.hasBlocks() && !source.partial.empty())
    consider(planThroughEqualBlocks(mesh, source, target, options, bound));
  if (options.allToAll && best.receivedElements > 2 * bound)
    if (auto plan = planWithoutPadding(mesh, source, target, options))
      consider(std::move(*plan));
  return best;
}

/// Nothing of a tensor without elements moves, but each kind of partial value is made
/// whole, or made, by a step of its own.
static ReshardPlan planEmpty(const Mesh &mesh, const Layout &source,
                             const Layout &target) {
  ReshardPlan plan;
  Layout at = source, moved = target;
  auto go = [&](StepKind kind, const Layout &next) {
    append(plan, kind == StepKind::Exchange ? makeStep(kind, at, next)
                                            : *stepBetween(mesh, kind, at, next));
    at = next;
  };
  const bool stays = source.partial == target.partial;
  while (!stays && !at.partial.empty()) {
    Layout next = at;
    next.partial.pop_back();
    go(StepKind::AllReduce, next);
  }
  moved.partial = at.partial;
  if (at != moved)
    go(StepKind::Exchange, moved);
  for (const PartialAxes &entry : target.partial) {
    Layout next = at;
    next.partial.push_back(entry);
    if (!stays)
      go(StepKind::ToPartial, next);
  }
  return plan;
}

Expected<ReshardPlan> partita::planReshard(const Mesh &mesh, const Layout &source,
                                           const Layout &target,
                                           const ReshardOptions &options) {
  if (auto ok = source.verify(mesh); !ok)
    return makeError("reshard source " + source.str(mesh) + ": " + ok.error().message);
  if (auto ok = target.verify(mesh); !ok)
    return makeError("reshard target " + target.str(mesh) + ": " + ok.error().message);
  if (source.globalShape() != target.globalShape())
    return makeError("reshard from " + source.str(mesh) + " to " + target.str(mesh) +
                     ": the shapes differ");
  ReshardPlan plan;
  plan.peakElements = source.localElements();
  if (source == target)
    return plan;
  if (elementCount(source.globalShape()) == 0)
    return planEmpty(mesh, source, target);
  Layout from = source.canonicalized(), to = target.canonicalized();
  plan.lowerBoundElements = lowerBound(mesh, from, to);
  ReshardPlan core = planBest(mesh, from, to, options, plan.lowerBoundElements);
  appendView(plan, source, from);
  appendAll(plan, std::move(core));
  appendView(plan, to, target);
  return plan;
}
