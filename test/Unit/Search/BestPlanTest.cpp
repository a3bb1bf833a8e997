//===- BestPlanTest.cpp - The fastest plan over meshes and forms ----------===//
#include "TwoLayers.h"

#include "partita/Search/BestPlan.h"

#include <catch2/catch.hpp>

#include <cstdio>

using namespace partita;
using namespace partita::search;

TEST_CASE("bounds are combined by what they speak of") {
  const Bound a{10, Bound::WholeAxes, Bound::Memory},
      b{20, Bound::EqualLayersAlike, Bound::PartOfRecompute};
  const Bound least = leastOf(a, b), larger = largerOf(a, b);
  CHECK(least.time == 10);
  CHECK(least.within == (Bound::WholeAxes | Bound::EqualLayersAlike));
  CHECK(least.ignores == (Bound::Memory | Bound::PartOfRecompute));
  CHECK(larger.time == 20);
  CHECK(larger.within == least.within);
  CHECK(larger.ignores == Bound::PartOfRecompute);
  const Bound again = boundOf(least.time, withinTexts(least), ignoresTexts(least));
  CHECK(again.within == least.within);
  CHECK(again.ignores == least.ignores);
}

namespace {
struct OwnStep : StepProgram {
  OwnStep(std::unique_ptr<FlowGraph> own, Placement placement)
      : StepProgram(*own, std::move(placement)), own(std::move(own)) {}
  std::unique_ptr<FlowGraph> own;
};

/// Steps of two layers; each value that is repeated is one of theirs.
class TwoLayerSteps : public StepSource {
public:
  TwoLayerSteps(Shape sizes, const Topology &topology)
      : sizes(std::move(sizes)), topology(topology) {}

  Expected<std::shared_ptr<const StepProgram>> step(const Mesh &mesh,
                                                    const StepForm &form) override {
    std::set<std::string> repeated;
    for (const RecomputeChoice::Node &node : form.recompute.nodes)
      repeated.insert(node.name);
    auto graph =
        std::make_unique<FlowGraph>(test::TwoLayers(sizes, repeated).make().build(mesh));
    auto placement = Placement::create(graph->mesh, topology);
    if (!placement)
      return tl::unexpected(placement.error());
    return std::make_shared<OwnStep>(std::move(graph), std::move(*placement));
  }
  std::optional<Pins> statesInParts(const StepProgram &, const std::vector<Strategy> &,
                                    std::vector<std::string> &) override {
    return std::nullopt;
  }
  std::optional<int64_t> rows() const override { return std::nullopt; }

private:
  Shape sizes;
  const Topology &topology;
};

/// The fastest plan of all meshes and forms that fits, each searched by itself.
std::optional<Picos> fastestOfAll(TwoLayerSteps &steps, const Wanted &wanted) {
  std::optional<Picos> fastest;
  const std::vector<std::string> values{"y0", "h0", "y1"};
  for (const Mesh &mesh : wanted.meshes)
    for (size_t set = 0; set < 8; ++set) {
      StepForm form;
      for (size_t i = 0; i < values.size(); ++i)
        if (set >> i & 1)
          form.recompute.nodes.push_back({values[i]});
      auto step = steps.step(mesh, form);
      REQUIRE(step);
      auto found = search::search((*step)->graph, (*step)->placement, wanted.search);
      if (found)
        fastest = std::min(fastest.value_or(found->cost.total()), found->cost.total());
    }
  return fastest;
}
} // namespace

TEST_CASE("the best plan is as fast as all meshes and all that may be repeated") {
  int equal = 0, near = 0, slower = 0, repeated = 0, none = 0;
  double worst = 0;
  for (uint64_t seed = 0; seed < 14; ++seed) {
    INFO("seed " << seed);
    test::RandomProgram random(seed);
    // Many rows: what is kept of them is most of the memory.
    Shape sizes = test::randomSizes(random);
    sizes[0] *= 8;
    Wanted wanted;
    for (const char *mesh : {"a=4", "a=2,b=2"})
      wanted.meshes.push_back(*Mesh::parse(mesh));
    Topology topology = random.topology(wanted.meshes.back());
    TwoLayerSteps steps(sizes, topology);
    wanted.search.workLimit = 100'000;
    auto free = bestPlan(steps, wanted);
    REQUIRE(free);
    const int64_t peak = free->nodes[free->best].found->memory.peak();
    wanted.search.memoryLimit = peak * (15 + int64_t(seed) % 5) / 20;
    wanted.choosesRecompute = true;
    auto result = bestPlan(steps, wanted);
    auto fastest = fastestOfAll(steps, wanted);
    REQUIRE(result.has_value() == fastest.has_value());
    if (!fastest) {
      ++none;
      continue;
    }
    const Found &found = *result->nodes[result->best].found;
    CHECK(found.memory.peak() <= *wanted.search.memoryLimit);
    const Bound bound = boundOf(result->nodes);
    if ((bound.within & ~(Bound::FewCopies | Bound::WholeAxes)) == 0)
      CHECK(bound.time <= *fastest);
    const double ratio = double(found.cost.total()) / double(*fastest);
    // Searches end by work, so that either may be the faster one by a little.
    CHECK(ratio > 0.995);
    CHECK(ratio < 1.1);
    worst = std::max(worst, ratio);
    repeated += !result->form.recompute.nodes.empty();
    (ratio <= 1 ? equal : ratio <= 1 + goodEnough ? near : slower) += 1;
  }
  CHECK(repeated > 2);
  CHECK(equal > slower);
  std::printf("best plans: %d as fast as all forms, %d within %.1f%%, %d slower, at most "
              "%.4f; %d repeat something, %d have none\n",
              equal, near, 100 * goodEnough, slower, worst, repeated, none);
}
