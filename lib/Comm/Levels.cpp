//===- Levels.cpp - A collective as several, level by level ---------------===//
#include "partita/Comm/Levels.h"

#include "Partial.h"

#include <algorithm>

using namespace partita;

Layout partita::withPartial(Layout layout, ReduceKind kind, AxisList axes) {
  std::erase_if(layout.partial,
                [&](const PartialAxes &partial) { return partial.kind == kind; });
  std::ranges::sort(axes);
  if (!axes.empty()) {
    layout.partial.push_back({kind, canonical(axes)});
    std::ranges::sort(layout.partial, {}, &PartialAxes::kind);
  }
  return layout;
}

AxisList partita::joined(AxisList first, const AxisList &second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

AxisList partita::partialAxesOf(const Layout &layout, ReduceKind kind) {
  for (const PartialAxes &partial : layout.partial)
    if (partial.kind == kind)
      return partial.axes;
  return {};
}

std::vector<Step> partita::stepsThrough(const Mesh &mesh,
                                        const std::vector<Layout> &layouts,
                                        const std::vector<StepKind> &kinds) {
  std::vector<Step> steps;
  for (size_t i = 0; i < kinds.size(); ++i) {
    auto step = stepBetween(mesh, kinds[i], layouts[i], layouts[i + 1]);
    if (!step)
      return {};
    steps.push_back(std::move(*step));
  }
  return steps;
}

static std::vector<Step> reducedByLevel(const Mesh &mesh, const Step &step,
                                        const GroupLevels &levels) {
  const int64_t parts = product(levels.within);
  const AxisList rest = partialAxesOf(step.after, step.reduce);
  for (size_t d = 0; d < step.before.dims.size(); ++d)
    for (size_t f = 0; f < step.before.dims[d].factors.size(); ++f) {
      const DimFactor &factor = step.before.dims[d].factors[f];
      if (!factor.blocks.empty() || factor.local() % parts != 0)
        continue;
      auto scattered = [&](Layout layout) {
        AxisList &axes = layout.dims[d].factors[f].axes;
        axes = canonical(joined(axes, levels.within));
        return layout;
      };
      std::vector<Step> steps = stepsThrough(
          mesh,
          {step.before,
           scattered(withPartial(step.before, step.reduce, joined(rest, levels.across))),
           scattered(step.after), step.after},
          {StepKind::ReduceScatter, StepKind::AllReduce, StepKind::AllGather});
      if (!steps.empty())
        return steps;
    }
  return {};
}

/// Between a dim that is whole in the group and one in parts.
static std::vector<Step> movedByLevel(const Mesh &mesh, const Step &step,
                                      const GroupLevels &levels) {
  const bool gathers = step.kind == StepKind::AllGather;
  const auto d = static_cast<size_t>(step.dim), f = static_cast<size_t>(step.factor);
  const Layout &whole = gathers ? step.after : step.before;
  const DimFactor &factor = whole.dims[d].factors[f];
  const int64_t kept = factor.shards(), units = product(levels.across),
                ranks = product(levels.within);
  if (canonical(joined(levels.across, levels.within)) != canonical(step.axes) ||
      !factor.blocks.empty() || factor.size != factor.padded ||
      factor.size % (kept * units * ranks) != 0)
    return {};
  auto cut = [&](Layout layout, const AxisList &across, const AxisList &within) {
    auto &factors = layout.dims[d].factors;
    const auto at = factors.erase(factors.begin() + static_cast<std::ptrdiff_t>(f));
    const int64_t inside = factor.size / (kept * units);
    factors.insert(
        at,
        {{kept, kept, factor.axes}, {units, units, across}, {inside, inside, within}});
    return layout;
  };
  if (gathers)
    return stepsThrough(mesh,
                        {cut(step.before, levels.across, levels.within),
                         cut(step.before, {}, levels.within), cut(step.before, {}, {})},
                        {StepKind::AllGather, StepKind::AllGather});
  const AxisList rest = partialAxesOf(step.after, step.reduce);
  return stepsThrough(
      mesh,
      {cut(step.before, {}, {}),
       cut(withPartial(step.before, step.reduce, joined(rest, levels.across)), {},
           levels.within),
       cut(step.after, levels.across, levels.within)},
      {StepKind::ReduceScatter, StepKind::ReduceScatter});
}

std::vector<Step> partita::stepsByLevel(const Mesh &mesh, const Step &step,
                                        const GroupLevels &levels) {
  if (levels.across.empty() || levels.within.empty())
    return {};
  if (step.kind == StepKind::AllReduce)
    return reducedByLevel(mesh, step, levels);
  if (step.kind == StepKind::AllGather || step.kind == StepKind::ReduceScatter)
    return movedByLevel(mesh, step, levels);
  return {};
}

std::optional<buckets::CallKind> partita::callKindOf(StepKind kind) {
  switch (kind) {
  case StepKind::AllReduce:
    return buckets::CallKind::AllReduce;
  case StepKind::AllGather:
    return buckets::CallKind::AllGather;
  case StepKind::ReduceScatter:
    return buckets::CallKind::ReduceScatter;
  default:
    return std::nullopt;
  }
}
