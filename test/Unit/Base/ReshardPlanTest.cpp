//===- ReshardPlanTest.cpp - Chosen plans, mutations, errors --------------===//
#include "partita/Base/Layout/Reshard.h"

#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <numeric>

using namespace partita;

namespace {
Layout parsed(const Mesh &mesh, const std::string &text) {
  auto layout = Layout::parse(text, mesh);
  INFO(text << ": " << (layout ? "" : layout.error().message));
  REQUIRE(layout);
  return *layout;
}

ReshardPlan planned(const Mesh &mesh, const std::string &source,
                    const std::string &target, bool allToAll = true) {
  auto plan = planReshard(mesh, parsed(mesh, source), parsed(mesh, target), {allToAll});
  INFO((plan ? "" : plan.error().message));
  REQUIRE(plan);
  return *plan;
}

/// "slice{tp} all-gather{dp}", views left out.
std::string summary(const Mesh &mesh, const ReshardPlan &plan) {
  std::string text;
  for (const Step &step : plan.steps)
    if (step.kind != StepKind::View)
      text +=
          (text.empty() ? "" : " ") + std::string(name(step.kind)) + mesh.str(step.axes);
  return text;
}

/// 0, 1, 2, … so that every misplaced element shows.
HostTensor iota(const std::vector<int64_t> &shape) {
  HostTensor tensor = HostTensor::zeros(DType::I64, shape);
  std::iota(tensor.data<int64_t>(), tensor.data<int64_t>() + tensor.size(), 1);
  return tensor;
}

/// Executes the plan on an iota tensor and compares with direct extraction.
bool correct(const Mesh &mesh, const ReshardPlan &plan, const Layout &source,
             const Layout &target) {
  HostTensor global = iota(source.globalShape());
  std::vector<HostTensor> locals;
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank)
    locals.push_back(extractLocal(mesh, source, rank, global));
  std::vector<HostTensor> results = executeReshard(mesh, plan, locals);
  for (int64_t rank = 0; rank < mesh.numRanks(); ++rank)
    if (results[rank].bytes != extractLocal(mesh, target, rank, global).bytes)
      return false;
  return true;
}

bool correct(const Mesh &mesh, const ReshardPlan &plan, const std::string &source,
             const std::string &target) {
  return correct(mesh, plan, parsed(mesh, source), parsed(mesh, target));
}
} // namespace

// Grid 2x4 and tensor 16x32, axes 0 and 1: the pairs on which an existing partitioner
// was found wrong, crashing or refusing, and those it got right.
TEST_CASE("reshard: twenty named pairs") {
  Mesh mesh = *Mesh::parse("x=2,y=4");
  struct Case {
    const char *source, *target, *steps;
  };
  const Case cases[] = {
      {"[{16: x}, {32}]", "[{16}, {32}]", "all-gather{x}"},
      {"[{16}, {32}]", "[{16: x}, {32}]", "slice{x}"},
      {"[{16: x}, {32}]", "[{16: x, y}, {32}]", "slice{y}"},
      {"[{16: x, y}, {32}]", "[{16: x}, {32}]", "all-gather{y}"},
      {"[{16: x}, {32: y}]", "[{16}, {32: y}]", "all-gather{x}"},
      {"[{16: x}, {32}]", "[{16}, {32: x}]", "all-to-all{x}"},
      {"[{16: x}, {32: y}]", "[{16}, {32}]", "all-gather{y} all-gather{x}"},
      {"[{16}, {32}]", "[{16: x}, {32: y}]", "slice{x} slice{y}"},
      {"[{16: x}, {32: y}]", "[{16: y}, {32: x}]", nullptr},
      {"[{16: x, y}, {32}]", "[{16: x}, {32: y}]", "all-to-all{y}"},
      {"[{16: x, y}, {32}]", "[{16: y}, {32: x}]", nullptr},
      {"[{16}, {32: x, y}]", "[{16: x}, {32: y}]", nullptr},
      {"[{16: x}, {32: y}]", "[{16: x, y}, {32}]", "all-to-all{y}"},
      {"[{16: x}, {32}]", "[{16: y}, {32}]", nullptr},
      {"[{16: x, y}, {32}]", "[{16: y}, {32}]", nullptr},
      {"[{16: x, y}, {32}]", "[{16}, {32}]", "all-gather{x, y}"},
      {"[{16: x, y}, {32}]", "[{16: y, x}, {32}]", "permute{x, y}"},
      {"[{10/12: y}, {32}]", "[{10/12}, {32}]", "all-gather{y}"},
      {"[{30/32: y}, {32}]", "[{30/32}, {32: y}]", "all-to-all{y}"},
      {"[{10/12}, {32: x}]", "[{10/12: y}, {32: x}]", "slice{y}"},
  };
  for (const Case &c : cases) {
    INFO(c.source << " -> " << c.target);
    ReshardPlan plan = planned(mesh, c.source, c.target);
    INFO(summary(mesh, plan));
    CHECK(correct(mesh, plan, c.source, c.target));
    bool uneven = std::string(c.source).find('/') != std::string::npos;
    if (!uneven)
      CHECK(plan.receivedElements == plan.lowerBoundElements);
    if (c.steps)
      CHECK(summary(mesh, plan) == c.steps);
  }
}

TEST_CASE("reshard: volumes on a mesh of 4 x 8") {
  Mesh mesh = *Mesh::parse("x=4,y=8");
  int64_t n = 64 * 64;
  auto volume = [&](const std::string &source, const std::string &target) {
    ReshardPlan plan = planned(mesh, source, target);
    CHECK(plan.receivedElements == plan.lowerBoundElements);
    return plan.receivedElements;
  };
  CHECK(volume("[{64: x}, {64: y}]", "[{64: y}, {64: x}]") == n / 32);
  CHECK(volume("[{64: x, y}, {64}]", "[{64: x}, {64: y}]") == 7 * n / 256);
  CHECK(volume("[{64: x, y}, {64}]", "[{64: y, x}, {64}]") == n / 32);
  CHECK(volume("[{64: x}, {64}]", "[{64}, {64: x}]") == 3 * n / 16);
  CHECK(volume("[{64: x}, {64: y}]", "[{64}, {64}]") == 31 * n / 32);
  CHECK(volume("[{64: x}, {64}]", "[{64: y}, {64}]") == n / 8);
  CHECK(volume("[{64}, {64}]", "[{64: x}, {64: y}]") == 0);
  // The classical bounds of reductions.
  CHECK(volume("[{64}, {64}] partial sum {x, y}", "[{64: x, y}, {64}]") == 31 * n / 32);
  CHECK(volume("[{64}, {64}] partial sum {x, y}", "[{64}, {64}]") == 62 * n / 32);
}

TEST_CASE("reshard: reductions go where the data is smallest") {
  Mesh mesh = *Mesh::parse("dp=2,tp=4");
  auto steps = [&](const std::string &source, const std::string &target,
                   bool allToAll = true) {
    ReshardPlan plan = planned(mesh, source, target, allToAll);
    return summary(mesh, plan);
  };
  CHECK(steps("[{16: dp}, {32}] partial sum {tp}", "[{16: dp}, {32}]") ==
        "all-reduce{tp}");
  CHECK(steps("[{16: dp}, {32}] partial sum {tp}", "[{16: dp}, {32: tp}]") ==
        "reduce-scatter{tp}");
  CHECK(steps("[{16: dp}, {32}] partial sum {tp}", "[{16: dp, tp}, {32}]") ==
        "reduce-scatter{tp}");
  // Sliced before it is reduced, reduced before it is gathered.
  CHECK(steps("[{16}, {32}] partial sum {tp}", "[{16: dp}, {32}]") ==
        "slice{dp} all-reduce{tp}");
  CHECK(steps("[{16: dp}, {32}] partial sum {tp}", "[{16}, {32}]") ==
        "all-reduce{tp} all-gather{dp}");
  CHECK(steps("[{16}, {32}] partial sum {dp, tp}", "[{16}, {32: tp}] partial sum {dp}") ==
        "reduce-scatter{tp}");
  CHECK(steps("[{16}, {32}]", "[{16}, {32}] partial sum {tp}") == "to-partial{tp}");
  // One kind to another goes through the true value.
  CHECK(steps("[{16}, {32}] partial max {tp}", "[{16}, {32}] partial sum {tp}") ==
        "all-reduce{tp} to-partial{tp}");
  CHECK(steps("[{16: tp}, {32}]", "[{16}, {32: tp}]", false) ==
        "all-gather{tp} slice{tp}");
}

TEST_CASE("reshard: dim factors refine and merge without moving data") {
  Mesh mesh = *Mesh::parse("dp=2,tp=4");
  CHECK(summary(mesh, planned(mesh, "[{2: dp}*{128: tp}]", "[{256: dp, tp}]")) == "");
  CHECK(summary(mesh, planned(mesh, "[{768}, {3}*{768: tp}]", "[{768}, {3}*{768}]")) ==
        "all-gather{tp}");
  ReshardPlan rows = planned(mesh, "[{4: dp}*{128: tp}]", "[{512: dp}]");
  CHECK(summary(mesh, rows) == "all-gather{tp}");
  CHECK(rows.receivedElements == 192);
  // Cuts that do not nest: the thirds against quarters.
  ReshardPlan fused = planned(mesh, "[{3}*{8: tp}]", "[{24: tp}]");
  CHECK(summary(mesh, fused) == "exchange{}");
  CHECK(correct(mesh, fused, "[{3}*{8: tp}]", "[{24: tp}]"));
  CHECK(fused.receivedElements == fused.lowerBoundElements);
  // Differing padded extents cost nothing while a dim is unsharded.
  CHECK(summary(mesh, planned(mesh, "[{13/16}]", "[{13/14: dp}]")) ==
        "repad{} slice{dp}");
  CHECK(summary(mesh, planned(mesh, "[{13/16: tp}]", "[{13/14: dp}]")) == "exchange{}");
  CHECK(summary(mesh, planned(mesh, "[{13/16: tp}]", "[{13/14: dp}]", false)) ==
        "all-gather{tp} repad{} slice{dp}");
}

TEST_CASE("reshard: a simple step needs no view around it") {
  Mesh mesh = *Mesh::parse("dp=2,tp=4");
  for (auto [source, target] : {std::pair("[{16: dp}, {32: tp}]", "[{16: dp}, {32}]"),
                                std::pair("[{16: dp}, {32}]", "[{16: dp}, {32: tp}]"),
                                std::pair("[{16: dp, tp}, {32}]", "[{16: dp}, {32: tp}]"),
                                std::pair("[{13/16: dp, tp}]", "[{13/16: tp, dp}]")})
    CHECK(planned(mesh, source, target).steps.size() == 1);
}

TEST_CASE("reshard: the geometry of steps") {
  Mesh mesh = *Mesh::parse("dp=2,tp=4");
  StepGeometry g = stepGeometry(
      planned(mesh, "[{6: dp}, {8: tp}, {5}]", "[{6: dp}, {8}, {5}]").steps[0]);
  CHECK(std::vector{g.count, g.outer, g.chunk, g.inner} ==
        std::vector<int64_t>{4, 3, 2, 5});
  g = stepGeometry(
      planned(mesh, "[{6: dp}, {3}*{8: tp}, {5}]", "[{6: dp}, {3}*{8}, {5}]").steps[0]);
  CHECK(std::vector{g.count, g.outer, g.chunk, g.inner} ==
        std::vector<int64_t>{4, 9, 2, 5});
  g = stepGeometry(
      planned(mesh, "[{2}, {8: tp}, {3}, {16}, {5}]", "[{2}, {8}, {3}, {16: tp}, {5}]")
          .steps[0]);
  CHECK(g.fromFirst);
  CHECK(std::vector{g.count, g.outer, g.chunk, g.middle, g.toChunk, g.inner} ==
        std::vector<int64_t>{4, 2, 2, 3, 4, 5});
  g = stepGeometry(
      planned(mesh, "[{2}, {8}, {3}, {16: tp}, {5}]", "[{2}, {8: tp}, {3}, {16}, {5}]")
          .steps[0]);
  CHECK(!g.fromFirst);
  CHECK(std::vector{g.count, g.outer, g.chunk, g.middle, g.toChunk, g.inner} ==
        std::vector<int64_t>{4, 2, 4, 3, 2, 5});
}

// Each of these errors in a plan must show in the values: what the exhaustive test
// relies on.
TEST_CASE("reshard: a wrong plan is seen to be wrong") {
  Mesh mesh = *Mesh::parse("a=2,b=3,c=2");
  struct Mutation {
    const char *what, *source, *target;
    std::function<void(ReshardPlan &)> apply;
  };
  auto swapAxes = [](ReshardPlan &plan) {
    for (Step &step : plan.steps)
      std::reverse(step.axes.begin(), step.axes.end());
  };
  const Mutation mutations[] = {
      {"axes swapped in an all-to-all", "[{12: a, b}, {12}]", "[{12}, {12: a, b}]",
       swapAxes},
      {"axes swapped in a gather", "[{12: a, b}]", "[{12}]", swapAxes},
      {"axes swapped in a slice", "[{12}]", "[{12: a, b}]", swapAxes},
      {"axes swapped in a reduce-scatter", "[{12}] partial sum {a, b}", "[{12: a, b}]",
       swapAxes},
      {"a permute that stays in place", "[{12: a}, {12: c}]", "[{12: c}, {12: a}]",
       [](ReshardPlan &plan) {
         std::swap(plan.steps[0].before, plan.steps[0].after);
         plan.steps[0].after = plan.steps[0].before;
       }},
      {"an all-reduce dropped", "[{12}] partial sum {b}", "[{12}]",
       [](ReshardPlan &plan) { plan.steps.clear(); }},
      {"a sum taken for a product", "[{12}] partial sum {b}", "[{12}]",
       [](ReshardPlan &plan) { plan.steps[0].reduce = ReduceKind::Prod; }},
      {"another axis gathered", "[{12: a}, {12}]", "[{12}, {12}]",
       [](ReshardPlan &plan) { plan.steps[0].axes[0].axis = 2; }},
      {"a gather of the wrong dim", "[{12: a}, {12}]", "[{12}, {12}]",
       [](ReshardPlan &plan) { plan.steps[0].dim = 1; }},
      {"a gather over too small a group", "[{5/6: b}]", "[{5/6}]",
       [](ReshardPlan &plan) { plan.steps[0].axes = {{0, 1, 2}}; }},
  };
  for (const Mutation &mutation : mutations) {
    INFO(mutation.what);
    ReshardPlan plan = planned(mesh, mutation.source, mutation.target);
    REQUIRE(plan.steps.size() >= 1);
    REQUIRE(correct(mesh, plan, mutation.source, mutation.target));
    mutation.apply(plan);
    CHECK(!correct(mesh, plan, mutation.source, mutation.target));
  }
}

TEST_CASE("reshard: empty, scalar and equal tensors") {
  Mesh mesh = *Mesh::parse("a=2,b=3");
  CHECK(planned(mesh, "[{6: a}]", "[{6: a}]").steps.empty());
  for (auto [source, target] :
       {std::pair("[]", "[]"), std::pair("[] partial sum {a}", "[]"),
        std::pair("[{1}] partial max {b}", "[{1}]"),
        std::pair("[]", "[] partial sum {b}"),
        std::pair("[{0: a}, {6}]", "[{0}, {6: b}]"),
        std::pair("[{0}, {6}] partial sum {a}, max {b}", "[{0: a}, {6}]"),
        std::pair("[{0}, {6: a}]", "[{0}, {6}] partial sum {a}, prod {b}"),
        std::pair("[{0: b}] partial min {a}", "[{0}] partial min {a}"),
        std::pair("[{6: a}, {0/6: b}]", "[{6}, {0}]"),
        std::pair("[{1/6: a, b}]", "[{1/6: b}]")}) {
    INFO(source << " -> " << target);
    CHECK(correct(mesh, planned(mesh, source, target), source, target));
  }
}

TEST_CASE("reshard: very large tensors do not overflow") {
  Mesh mesh = *Mesh::parse("dp=1024,tp=1024");
  std::string big = "1152921504606846976"; // 2^60
  ReshardPlan plan = planned(mesh, "[{" + big + "}] partial sum {tp}", "[{" + big + "}]");
  CHECK(plan.receivedElements == (int64_t(1) << 51) * 1023);
  plan = planned(mesh, "[{" + big + ": dp, tp}]", "[{" + big + "}]");
  CHECK(plan.receivedElements == (int64_t(1) << 40) * ((1 << 20) - 1));
  CHECK(plan.receivedElements == plan.lowerBoundElements);
}

TEST_CASE("reshard: impossible requests") {
  Mesh mesh = *Mesh::parse("a=2,b=3");
  auto message = [&](const Layout &source, const Layout &target) {
    auto plan = planReshard(mesh, source, target);
    return plan ? std::string("accepted") : plan.error().message;
  };
  CHECK(message(parsed(mesh, "[{6: a}]"), parsed(mesh, "[{8: a}]")) ==
        "reshard from [{6: a}] to [{8: a}]: the shapes differ");
  CHECK(message(parsed(mesh, "[{6: a}]"), parsed(mesh, "[{6}, {1}]")) ==
        "reshard from [{6: a}] to [{6}, {1}]: the shapes differ");
  Layout twice = parsed(mesh, "[{6: a}, {6}]");
  twice.dims[1].factors[0].axes = {{0, 1, 2}};
  CHECK(message(parsed(mesh, "[{6}, {6}]"), twice) ==
        "reshard target [{6: a}, {6: a}]: dim 1: axis a is used twice");
}

TEST_CASE("reductions of every element type") {
  for (DType type : {DType::F32, DType::F64, DType::F16, DType::BF16, DType::I8,
                     DType::I16, DType::I32, DType::I64, DType::U8, DType::U16,
                     DType::U32, DType::U64, DType::Bool})
    for (ReduceKind kind :
         {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::Prod}) {
      // One in every type, and the neutral element around it.
      HostTensor one = HostTensor::zeros(type, {1}), neutral = one;
      fillNeutral(one, ReduceKind::Prod);
      fillNeutral(neutral, kind);
      HostTensor result = neutral;
      reduceInto(result, one, kind);
      INFO(name(type) << " " << name(kind));
      CHECK(result.bytes == one.bytes);
    }
  HostTensor a = HostTensor::zeros(DType::BF16, {1}), b = a;
  a.data<uint16_t>()[0] = floatToBfloat16(1.5f);
  b.data<uint16_t>()[0] = floatToBfloat16(-4.0f);
  reduceInto(a, b, ReduceKind::Prod);
  CHECK(bfloat16ToFloat(a.data<uint16_t>()[0]) == -6.0f);
  HostTensor x = HostTensor::zeros(DType::I64, {2}), y = x;
  x.data<int64_t>()[0] = std::numeric_limits<int64_t>::max();
  x.data<int64_t>()[1] = -3;
  y.data<int64_t>()[0] = 1;
  y.data<int64_t>()[1] = 5;
  reduceInto(x, y, ReduceKind::Sum);
  CHECK(x.data<int64_t>()[0] == std::numeric_limits<int64_t>::min());
  CHECK(x.data<int64_t>()[1] == 2);
}

TEST_CASE("a tensor without elements moves nothing") {
  Mesh mesh = *Mesh::parse("tp=2");
  for (auto [source, target] :
       {std::pair("[{4: tp}, {0}]", "[{4}, {0}]"),
        std::pair("[{4: tp}, {0}]", "[{4}, {0: tp}]"),
        std::pair("[{4}, {0}] partial sum {tp}", "[{4}, {0}]"),
        std::pair("[{4}, {0}] partial max {tp}", "[{4: tp}, {0}]"),
        std::pair("[{4}, {0: tp}]", "[{4}, {0}] partial sum {tp}")}) {
    INFO(source << " -> " << target);
    Layout from = *Layout::parse(source, mesh);
    Layout to = *Layout::parse(target, mesh);
    auto plan = planReshard(mesh, from, to);
    REQUIRE(plan);
    for (const Step &step : plan->steps) {
      auto derived = stepBetween(mesh, step.kind, step.before, step.after);
      REQUIRE(derived);
      CHECK(derived->receivedElements == 0);
    }
  }
}
