//===- ReshardPriceTest.cpp - Steps and windows over levels ---------------===//
#include "partita/Cost/Local.h"
#include "partita/Cost/Reshard.h"

#include <catch2/catch.hpp>

using namespace partita;

namespace {
struct Setting {
  Mesh mesh = *Mesh::parse("dp=4,tp=8");
  Topology topology;
  Setting() {
    topology.device.memoryBandwidth = 1000;
    topology.device.peak = {{DType::F32, 1e9}};
    topology.levels = {{"inner", 8, 100, 1}, {"outer", 4, 10, 5}};
  }
  Placement placement() const { return *Placement::create(mesh, topology); }
  StepPrice step(StepKind kind, const char *before, const char *after) const {
    auto step = stepBetween(mesh, kind, *Layout::parse(before, mesh),
                            *Layout::parse(after, mesh));
    REQUIRE(step);
    return priceStep(placement(), *step, 4);
  }
};
} // namespace

TEST_CASE("steps are priced by their axes' levels") {
  Setting s;
  // 64·16 elements of 4 bytes over 8 at 100: 7/8 of 4,096 bytes and 7 messages.
  StepPrice gather = s.step(StepKind::AllGather, "[{64: tp}, {16}]", "[{64}, {16}]");
  CHECK(gather.price.seconds == Approx(7 * 512 / 100. + 7));
  CHECK(gather.price.device == 0);
  CHECK(gather.receivedBytes == 3584);
  CHECK(gather.algorithm == CollectiveAlgorithm::Ring);
  // Over dp: 3/4 of it at 10 and 3 messages of 5.
  StepPrice outer = s.step(StepKind::AllGather, "[{64: dp}, {16}]", "[{64}, {16}]");
  CHECK(outer.price.seconds == Approx(3 * 1024 / 10. + 15));
  CHECK(outer.price.links[1] == Approx(307.2));
  // Along the second dim the pieces are apart: 4,096 bytes read and written.
  StepPrice apart = s.step(StepKind::AllGather, "[{64}, {16: tp}]", "[{64}, {16}]");
  CHECK(apart.price.seconds == Approx(7 * 512 / 100. + 7 + 8.192));
  CHECK(apart.price.device == Approx(8.192));
}

TEST_CASE("every kind of step has a price") {
  Setting s;
  CHECK(s.step(StepKind::View, "[{2}*{32}]", "[{64}]").price.seconds == 0);
  CHECK(s.step(StepKind::Slice, "[{64}]", "[{64: tp}]").price.seconds ==
        Approx(2 * 32 / 1000.));
  CHECK(s.step(StepKind::Repad, "[{60/64}]", "[{60}]").price.seconds ==
        Approx(2 * 240 / 1000.));
  CHECK(s.step(StepKind::ToPartial, "[{64}]", "[{64}] partial sum {tp}").price.seconds ==
        Approx(256 / 1000.));
  StepPrice reduce = s.step(StepKind::AllReduce, "[{6400}] partial sum {tp}", "[{6400}]");
  CHECK(reduce.price.seconds == Approx(2 * 7 / 8. * 256 + 14));
  StepPrice scatter =
      s.step(StepKind::ReduceScatter, "[{6400}] partial sum {tp}", "[{6400: tp}]");
  CHECK(scatter.price.seconds == Approx(7 / 8. * 256 + 7));
  // A member holds 128 bytes; they are packed.
  StepPrice exchange = s.step(StepKind::AllToAll, "[{16: tp}, {16}]", "[{16}, {16: tp}]");
  CHECK(exchange.price.seconds == Approx(7 / 8. * 1.28 + 7 + 0.256));
  CHECK(s.step(StepKind::Permute, "[{16: dp}, {16}]", "[{16: tp:(1)4}, {16}]")
            .price.seconds == Approx(25.6 + 5));
}

TEST_CASE("a permute sends along the axes that come and those that go") {
  Setting s;
  auto seconds = [&](const char *before, const char *after) {
    return s.step(StepKind::Permute, before, after).price.seconds;
  };
  CHECK(seconds("[{16: tp:(1)4}, {16}]", "[{16: dp}, {16}]") == Approx(25.6 + 5));
  CHECK(seconds("[{16: tp:(1)2}, {16}]", "[{16: tp:(4)2}, {16}]") == Approx(5.12 + 1));
  // Other order: blocks cross both.
  CHECK(seconds("[{16: tp:(1)2, dp}, {16}]", "[{16: dp, tp:(1)2}, {16}]") ==
        Approx(12.8 + 5));
}

TEST_CASE("an exchange costs what is received") {
  Setting s;
  // 12 rows as 2·3 against 3·2: whoever lacks most lacks what the planner says.
  s.mesh = *Mesh::parse("a=6");
  s.topology.levels = {{"only", 6, 100, 1}};
  StepPrice price = s.step(StepKind::Exchange, "[{12: a:(1)2}]", "[{12: a:(1)3}]");
  CHECK(price.algorithm == CollectiveAlgorithm::Pairwise);
  REQUIRE(price.receivedBytes > 0);
  CHECK(price.price.seconds == Approx(price.receivedBytes / 100 + 5));
}

TEST_CASE("windows: the halo travels, what is not in its place is written") {
  Setting s;
  s.mesh = *Mesh::parse("a=4");
  s.topology.levels = {{"only", 4, 100, 1}};
  Halo halo{*Layout::parse("[{16: a}, {5}]", s.mesh),
            *Layout::parse("[{16: a}, {5}]", s.mesh),
            {{0, 1, 3, 1}}};
  REQUIRE(halo.verify(s.mesh));
  StepPrice price = priceWindow(s.placement(), halo, 4);
  // A row of 5 from each side; buffers of 6 rows, of which 4 are the rank's own.
  CHECK(price.receivedBytes == 40);
  CHECK(price.price.device == Approx(2 * 40 / 1000.));
  CHECK(price.price.seconds == Approx(0.08 + 0.4 + 3));
  // Windows of stride 3 begin further from each rank's block than from the one before:
  // buffers of 6 rows, written as a whole.
  halo.positions = *Layout::parse("[{5/8: a}, {5}]", s.mesh);
  halo.windows = {{0, 3, 3, 0}};
  REQUIRE(halo.verify(s.mesh));
  CHECK(priceWindow(s.placement(), halo, 4).price.device == Approx(2 * 120 / 1000.));
  // Rows of several images are several runs.
  halo = {*Layout::parse("[{2}, {1}, {16: a}]", s.mesh),
          *Layout::parse("[{2}, {1}, {16: a}]", s.mesh),
          {{2, 1, 3, 1}}};
  REQUIRE(halo.verify(s.mesh));
  CHECK(priceWindow(s.placement(), halo, 4).price.device == Approx(2 * 48 / 1000.));
}

TEST_CASE("a plan is the sum of its steps") {
  Setting s;
  auto plan = planReshard(s.mesh, *Layout::parse("[{64: tp}, {16}]", s.mesh),
                          *Layout::parse("[{64}, {16: dp}]", s.mesh));
  REQUIRE(plan);
  double sum = 0;
  for (const Step &step : plan->steps)
    sum += priceStep(s.placement(), step, 4).price.seconds;
  CHECK(sum > 0);
  CHECK(pricePlan(s.placement(), *plan, 4).seconds == Approx(sum));
}
