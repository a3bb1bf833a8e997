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
  CHECK(a.covers(Bound::WholeAxes | Bound::FewCopies));
  CHECK(!a.covers(Bound::FewCopies));
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

TEST_CASE("the best plan is the fastest of all meshes and of all that may be repeated") {
  int equal = 0, slower = 0, repeated = 0, none = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
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
    wanted.search.workLimit = 5'000;
    auto free = bestPlan(steps, wanted);
    REQUIRE(free);
    wanted.search.memoryLimit =
        free->nodes[free->best].found->memory.peak() * (5 + int64_t(seed) % 5) / 10;
    wanted.choosesRecompute = true;
    auto result = bestPlan(steps, wanted);
    auto fastest = fastestOfAll(steps, wanted);
    if (!fastest) {
      CHECK(!result);
      ++none;
      continue;
    }
    if (!result) {
      std::printf("seed %d: none found, %lld: %s\n", int(seed), (long long)*fastest,
                  result.error().message.c_str());
      continue;
    }
    const Found &found = *result->nodes[result->best].found;
    CHECK(found.cost.total() >= *fastest);
    CHECK(found.memory.peak() <= *wanted.search.memoryLimit);
    const Bound bound = boundOf(result->nodes);
    if (bound.covers(Bound::FewCopies | Bound::WholeAxes))
      CHECK(bound.time <= *fastest);
    (found.cost.total() == *fastest ? equal : slower) += 1;
    repeated += !result->form.recompute.nodes.empty();
    if (found.cost.total() != *fastest)
      std::printf("seed %d: %lld above %lld, %.4f\n", int(seed),
                  (long long)found.cost.total(), (long long)*fastest,
                  double(found.cost.total()) / double(*fastest));
  }
  std::printf("best plans: %d equal, %d slower, %d repeat something, %d have none\n",
              equal, slower, repeated, none);
}
