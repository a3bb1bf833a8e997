//===- Reshard.cpp - Seconds of reshard steps and window exchanges --------===//
#include "partita/Cost/Reshard.h"

#include "partita/Cost/Local.h"

#include <algorithm>
#include <optional>

using namespace partita;

std::optional<Collective> partita::collectiveOf(StepKind kind) {
  switch (kind) {
  case StepKind::AllGather:
    return Collective::AllGather;
  case StepKind::ReduceScatter:
    return Collective::ReduceScatter;
  case StepKind::AllReduce:
    return Collective::AllReduce;
  case StepKind::AllToAll:
    return Collective::AllToAll;
  case StepKind::Permute:
    return Collective::Permute;
  default:
    return std::nullopt;
  }
}

/// Elements that a step without a collective reads and writes in local memory.
static int64_t localElements(const Step &step) {
  int64_t after = step.after.localElements();
  switch (step.kind) {
  case StepKind::Slice:
  case StepKind::Repad:
    return 2 * after;
  case StepKind::ToPartial:
    return after;
  default:
    return 0;
  }
}

/// Every rank receives `received` bytes from the others of its group, as in an all-to-all
/// of as much more as a rank keeps.
static CollectivePrice priceExchange(const Topology &topology, const Span &span,
                                     double received) {
  auto n = static_cast<double>(span.size());
  if (n == 1 || received == 0)
    return {};
  return priceCollective(topology, span, Collective::AllToAll, received * n / (n - 1));
}

/// Sorted, each once.
static AxisList distinct(AxisList axes) {
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

/// The axes along which a permute sends: those that leave a place and those that come to
/// one. Whole ones where their parts do not nest.
static AxisList permutedAxes(const Mesh &mesh, const Step &step) {
  AxisList axes;
  for (size_t d = 0; d < step.before.dims.size(); ++d)
    for (size_t f = 0; f < step.before.dims[d].factors.size(); ++f) {
      const AxisList &before = step.before.dims[d].factors[f].axes;
      const AxisList &after = step.after.dims[d].factors[f].axes;
      if (before == after)
        continue;
      axes.insert(axes.end(), before.begin(), before.end());
      axes.insert(axes.end(), after.begin(), after.end());
    }
  AxisList parts = distinct(primes(axes));
  for (size_t i = 1; i < parts.size(); ++i)
    if (overlap(parts[i - 1], parts[i])) {
      for (AxisRef &ref : axes)
        ref = mesh.whole(ref.axis);
      return distinct(std::move(axes));
    }
  return parts;
}

/// Whole mesh axes that either layout splits a dim by.
static AxisList axesOfBoth(const Mesh &mesh, const Layout &a, const Layout &b) {
  AxisList axes;
  for (const Layout *layout : {&a, &b})
    for (const AxisRef &ref : layout->shardingAxes())
      axes.push_back(mesh.whole(ref.axis));
  return distinct(std::move(axes));
}

/// Whether the pieces of the step's collective are apart in the local tensor.
static bool packs(const Step &step) {
  StepGeometry g = stepGeometry(step);
  if (step.kind == StepKind::AllToAll)
    return g.outer > 1 || g.middle > 1 || g.chunk > 1;
  return (step.kind == StepKind::AllGather || step.kind == StepKind::ReduceScatter) &&
         g.outer > 1;
}

StepShape partita::shapeOf(const Placement &placement, const Step &step) {
  StepShape shape;
  shape.receivedElements = step.receivedElements;
  if (step.kind == StepKind::Exchange) {
    shape.kind = StepShape::Kind::Exchange;
    shape.span = placement.span(axesOfBoth(placement.mesh(), step.before, step.after));
  } else if (std::optional<Collective> kind = collectiveOf(step.kind)) {
    shape.kind = StepShape::Kind::Collective;
    shape.collective = *kind;
    shape.elements = std::max(step.before.localElements(), step.after.localElements());
    shape.packs = packs(step);
    shape.span = placement.span(step.kind == StepKind::Permute
                                    ? permutedAxes(placement.mesh(), step)
                                    : step.axes);
  } else if (int64_t elements = localElements(step)) {
    shape.kind = StepShape::Kind::Local;
    shape.elements = elements;
  }
  return shape;
}

StepPrice partita::priceShape(const Topology &topology, const StepShape &shape,
                              int64_t elementBytes) {
  const Device &device = topology.device;
  auto width = static_cast<double>(elementBytes);
  double bytes = static_cast<double>(shape.elements) * width;
  StepPrice result;
  result.receivedBytes = static_cast<double>(shape.receivedElements) * width;
  CollectivePrice collective;
  switch (shape.kind) {
  case StepShape::Kind::Nothing:
    break;
  case StepShape::Kind::Local:
    result.price = onDevice(streamSeconds(device, bytes) + device.launch);
    break;
  case StepShape::Kind::Collective:
    collective = priceCollective(topology, shape.span, shape.collective, bytes);
    if (shape.packs)
      result.price += onDevice(copySeconds(device, bytes));
    break;
  case StepShape::Kind::Exchange:
    collective = priceExchange(topology, shape.span, result.receivedBytes);
    break;
  }
  result.price += collective.price;
  result.algorithm = collective.algorithm;
  return result;
}

StepPrice partita::priceStep(const Placement &placement, const Step &step,
                             int64_t elementBytes) {
  return priceShape(placement.topology(), shapeOf(placement, step), elementBytes);
}

TimeCost partita::pricePlan(const Placement &placement, const ReshardPlan &plan,
                            int64_t elementBytes) {
  TimeCost price;
  for (const Step &step : plan.steps)
    price += priceStep(placement, step, elementBytes).price;
  return price;
}

/// Whether what a rank holds is made inside its buffer, as code generation does with
/// images (batch, channels, spatial dims; channels last in memory) of which it is one
/// run.
static bool holdsOwnPart(const Halo &halo) {
  if (!ownBegin(halo))
    return false;
  std::vector<int64_t> shape = halo.before.localShape();
  for (int32_t d = 0; d < halo.windows[0].dim; ++d)
    if (d != 1 && shape[static_cast<size_t>(d)] != 1)
      return false;
  return true;
}

StepPrice partita::priceWindow(const Placement &placement, const Halo &halo,
                               int64_t elementBytes) {
  auto width = static_cast<double>(elementBytes);
  StepPrice result;
  result.receivedBytes =
      static_cast<double>(haloElements(placement.mesh(), halo)) * width;
  int64_t moved = elementCount(halo.shape());
  if (holdsOwnPart(halo))
    moved -= halo.before.localElements();
  double buffer = static_cast<double>(moved) * width;
  const Device &device = placement.topology().device;
  result.price = onDevice(copySeconds(device, buffer));
  CollectivePrice exchange =
      priceExchange(placement.topology(), placement.span(halo.axes(placement.mesh())),
                    result.receivedBytes);
  result.price += exchange.price;
  result.algorithm = exchange.algorithm;
  return result;
}
