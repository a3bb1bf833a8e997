//===- Conversions.cpp - Prices of conversions, planned once per kind -----===//
#include "Conversions.h"

#include <algorithm>
#include <cassert>
#include <numeric>

using namespace partita;
using namespace partita::search;

size_t ConversionPlans::Hash::operator()(const std::vector<int64_t> &key) const {
  uint64_t hash = key.size();
  for (int64_t number : key)
    hash = (hash ^ static_cast<uint64_t>(number)) * 0x9e3779b97f4a7c15 + (hash >> 29);
  return hash;
}

ConversionPlans::ConversionPlans(const Placement &placement,
                                 const ReshardOptions &options)
    : placement(placement), options(options) {
  auto isForeign = [&](int64_t prime) {
    return std::all_of(placement.mesh().axes().begin(), placement.mesh().axes().end(),
                       [&](const Mesh::Axis &axis) { return axis.size % prime != 0; });
  };
  // The least number above 1 that is coprime to all axes is a prime.
  while (std::gcd(foreignPrime, placement.mesh().numRanks()) != 1 ||
         !isForeign(foreignPrime))
    ++foreignPrime;
}

/// One factor whose blocks are equal and full.
static bool isEven(const DimLayout &dim) {
  return dim.factors.size() == 1 && dim.factors[0].size == dim.factors[0].padded;
}

static void addAxes(std::vector<int64_t> &key, const AxisList &axes) {
  key.push_back(static_cast<int64_t>(axes.size()));
  for (const AxisRef &axis : axes) {
    key.push_back(axis.axis);
    key.push_back(axis.pre);
    key.push_back(axis.size);
  }
}

std::optional<ConversionPlans::Scale> ConversionPlans::kindOf(const Layout &source,
                                                              const Layout &target) {
  const int64_t ranks = placement.mesh().numRanks();
  // What a reduction receives, and what it must receive at least, are parts of a block
  // and means over ranks, rounded: they grow in proportion only where they are whole, for
  // which extents keep more of their divisors.
  const int64_t kept = source.partial.empty() ? ranks : ranks * ranks;
  Scale scale;
  int64_t elements = 1; // modulo the ranks
  bool isPadded = false;
  key.clear();
  extents.clear();
  for (size_t d = 0; d < source.dims.size(); ++d) {
    const DimLayout &a = source.dims[d], &b = target.dims[d];
    const int64_t size = a.size();
    if (size == 0 || a.hasBlocks() || b.hasBlocks())
      return std::nullopt;
    int64_t extent = 0;
    if (isEven(a) && isEven(b)) {
      const int64_t shared = std::gcd(size, kept);
      const int64_t foreign = shared == size ? 1 : foreignPrime;
      extent = shared * foreign;
      scale.times *= size / shared;
      scale.over *= foreign;
    }
    extents.push_back(extent);
    elements = elements * (extent ? extent : size) % ranks;
    isPadded |= a.padded() != size || b.padded() != size;
    key.push_back(extent);
    for (const DimLayout *dim : {&a, &b}) {
      if (extent == 0)
        key.push_back(static_cast<int64_t>(dim->factors.size()));
      for (const DimFactor &factor : dim->factors) {
        if (extent == 0) {
          key.push_back(factor.size);
          key.push_back(factor.padded);
        }
        addAxes(key, factor.axes);
      }
    }
  }
  if (!source.partial.empty() && (elements != 0 || isPadded))
    return std::nullopt;
  for (const Layout *layout : {&source, &target}) {
    key.push_back(static_cast<int64_t>(layout->partial.size()));
    for (const PartialAxes &entry : layout->partial) {
      key.push_back(static_cast<int64_t>(entry.kind));
      addAxes(key, entry.axes);
    }
  }
  return scale;
}

Layout ConversionPlans::shrunk(Layout layout) const {
  for (size_t d = 0; d < extents.size(); ++d)
    if (extents[d]) {
      DimFactor &factor = layout.dims[d].factors[0];
      factor.size = factor.padded = extents[d];
    }
  return layout;
}

ConversionPlans::Plan ConversionPlans::planned(const Layout &source,
                                               const Layout &target) const {
  Plan result;
  auto plan = planReshard(placement.mesh(), source, target, options);
  if (!plan)
    return result;
  result.possible = true;
  for (const Step &step : plan->steps)
    if (step.kind != StepKind::View)
      result.steps.push_back(shapeOf(placement, step));
  result.receivedElements = plan->receivedElements;
  result.peakElements = plan->peakElements;
  return result;
}

ConversionPlans::Plan ConversionPlans::plan(const Layout &source, const Layout &target) {
  const std::optional<Scale> scale = kindOf(source, target);
  if (!scale)
    return planned(source, target);
  auto found = known.find(key);
  if (found == known.end())
    found = known.emplace(key, planned(shrunk(source), shrunk(target))).first;
  Plan plan = found->second;
  for (StepShape &step : plan.steps) {
    step.elements = scale->of(step.elements);
    step.receivedElements = scale->of(step.receivedElements);
  }
  plan.receivedElements = scale->of(plan.receivedElements);
  plan.peakElements = scale->of(plan.peakElements);
  return plan;
}
