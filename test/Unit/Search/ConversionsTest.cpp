//===- ConversionsTest.cpp - Plans by kind against the planner ------------===//
//
// Random pairs of layouts of random shapes: even and padded dims, several factors,
// sub-axes, partial axes of two kinds. What is kept for a kind and scaled must be what
// the planner plans for the pair itself, step by step.
//
//===----------------------------------------------------------------------===//
#include "../../../lib/Search/Conversions.h"

#include "partita/Topology/Presets.h"

#include <catch2/catch.hpp>
#include <random>

using namespace partita;
using namespace partita::search;

namespace {
class RandomLayouts {
public:
  RandomLayouts(const Mesh &mesh, uint32_t seed) : mesh(mesh), random(seed) {}

  std::vector<int64_t> shape() {
    static constexpr int64_t sizes[] = {1,  2,  3,  4,  5,  6,  7,  8,   12,  14,
                                        16, 24, 28, 36, 48, 56, 64, 100, 256, 1000};
    std::vector<int64_t> result(1 + below(4));
    for (int64_t &size : result)
      size = sizes[below(std::size(sizes))];
    return result;
  }

  /// Each part of each axis goes to some dim, becomes partial, or is not used.
  Layout layout(const std::vector<int64_t> &shape) {
    for (;;) {
      Layout result = Layout::replicated(shape);
      for (DimLayout &dim : result.dims)
        if (int64_t size = dim.size(); size % 4 == 0 && below(8) == 0)
          dim.factors = {{4, 4, {}}, {size / 4, size / 4, {}}};
      for (size_t a = 0; a < mesh.axes().size(); ++a)
        for (const AxisRef &part : parts(mesh.whole(static_cast<int32_t>(a))))
          place(result, part);
      for (DimLayout &dim : result.dims) {
        DimFactor &major = dim.factors[0];
        major.padded =
            (major.size + major.shards() - 1) / major.shards() * major.shards();
      }
      result = result.canonicalized();
      if (result.verify(mesh))
        return result;
    }
  }

private:
  size_t below(size_t end) { return random() % end; }
  AxisList parts(AxisRef axis) {
    if (axis.size % 2 || axis.size == 2 || below(3))
      return {axis};
    return {{axis.axis, 1, 2}, {axis.axis, 2, axis.size / 2}};
  }
  void place(Layout &layout, const AxisRef &part) {
    size_t where = below(layout.dims.size() + 3);
    if (where < layout.dims.size()) {
      auto &factors = layout.dims[where].factors;
      DimFactor &factor = factors[below(factors.size())];
      if (&factor == &factors[0] || factor.local() % part.size == 0)
        factor.axes.push_back(part);
    } else if (where == layout.dims.size()) {
      layout.partial.push_back({below(4) ? ReduceKind::Sum : ReduceKind::Max, {part}});
    }
  }

  const Mesh &mesh;
  std::mt19937 random;
};
} // namespace

static bool equal(const StepShape &a, const StepShape &b) {
  return a.kind == b.kind && a.collective == b.collective && a.packs == b.packs &&
         a.span.members == b.span.members && a.elements == b.elements &&
         a.receivedElements == b.receivedElements;
}

static void checkPair(const Placement &placement, ConversionPlans &plans,
                      const Layout &source, const Layout &target,
                      const ReshardOptions &options) {
  const Mesh &mesh = placement.mesh();
  auto planned = planReshard(mesh, source, target, options);
  ConversionPlans::Plan kept = plans.plan(source, target);
  INFO(mesh.str() << " " << source.str(mesh) << " -> " << target.str(mesh));
  REQUIRE(kept.possible == planned.has_value());
  if (!planned)
    return;
  std::vector<StepShape> steps;
  for (const Step &step : planned->steps)
    if (step.kind != StepKind::View)
      steps.push_back(shapeOf(placement, step));
  REQUIRE(kept.steps.size() == steps.size());
  for (size_t i = 0; i < steps.size(); ++i)
    REQUIRE(equal(kept.steps[i], steps[i]));
  REQUIRE(kept.receivedElements == planned->receivedElements);
  REQUIRE(kept.peakElements == planned->peakElements);
}

TEST_CASE("plans that are kept by kind are the planner's", "[conversions]") {
  for (const char *text : {"a=2", "a=2,b=4", "a=4,b=2", "a=6", "a=2,b=3", "a=3,b=4",
                           "a=8", "a=2,b=2,c=2", "a=5,b=2"}) {
    Mesh mesh = *Mesh::parse(text);
    Topology topology = topologyOfMesh(mesh, *devicePreset("cpu-core"),
                                       *levelPreset("shared-memory"), {});
    Placement placement = *Placement::create(mesh, topology);
    for (bool allToAll : {true, false}) {
      ReshardOptions options{allToAll};
      ConversionPlans plans(placement, options);
      RandomLayouts random(mesh, static_cast<uint32_t>(mesh.numRanks()));
      for (int i = 0; i < 6000; ++i) {
        std::vector<int64_t> shape = random.shape();
        Layout source = random.layout(shape), target = random.layout(shape);
        checkPair(placement, plans, source, target, options);
      }
    }
  }
}
