//===- ReuseTest.cpp - Few distinct calls ---------------------------------===//
#include "partita/Comm/Reuse.h"

#include <catch2/catch.hpp>

using namespace partita;
using namespace partita::buckets;

namespace {
/// The backward pass of layers with two parameters each, whose gradients are reduced. The
/// last op reads all sums. Equal layers have forms 0 and 1, unequal ones their own.
Ordered layers(int32_t number, int64_t bytes, bool areEqual) {
  Ordered result;
  std::vector<Op> &ops = result.ops;
  std::vector<int32_t> sums;
  for (int32_t layer = 0; layer < number; ++layer)
    for (int32_t kind = 0; kind < 2; ++kind) {
      const auto made = static_cast<int32_t>(ops.size());
      ops.push_back({{}, Phase::Backward});
      if (made > 0)
        ops.back().reads.push_back(made - 2);
      ops.push_back({{made}, Phase::Weight});
      ops.back().call = {CallKind::AllReduce, 0, bytes, bytes, 2 * layer + kind};
      ops.back().form = areEqual ? kind : 2 * layer + kind;
      sums.push_back(made + 1);
    }
  ops.push_back({sums, Phase::Update});
  return result;
}
} // namespace

TEST_CASE("reuse: equal layers are one distinct call in equal buckets") {
  const std::vector<Ordered> functions{layers(12, 4 << 20, true)};
  const Orders free = ordersOf(functions, {});
  CHECK(free.distinct > 1);
  const Orders one = ordersWithin(1, functions, {});
  CHECK(one.distinct == 1);
  CHECK(one.calls() > 1);
  CHECK(one.earlyBytes() * 10 > 8 * one.gradientBytes());
}

TEST_CASE("reuse: unequal layers are few calls by larger buckets") {
  const std::vector<Ordered> functions{layers(12, 4 << 20, false)};
  const Orders free = ordersOf(functions, {});
  CHECK(free.distinct == free.calls());
  for (int64_t most = free.distinct; most > 0; --most) {
    const Orders few = ordersWithin(most, functions, {});
    CHECK(few.distinct <= most);
    CHECK(few.distinct == few.calls());
    CHECK(few.earlyBytes() <= free.earlyBytes());
  }
  // No backward op is left to hide the only call.
  CHECK(ordersWithin(1, functions, {}).earlyBytes() == 0);
}

TEST_CASE("reuse: a limit that holds changes nothing, and one that cannot says so") {
  std::vector<Ordered> functions{layers(12, 4 << 20, false)};
  const Orders free = ordersOf(functions, {70});
  const Orders same = ordersWithin(free.distinct, functions, {70});
  CHECK(same.distinct == free.distinct);
  CHECK(same.orders[0].steps == free.orders[0].steps);
  // A call elsewhere is there whatever is decided here.
  CHECK(ordersWithin(1, functions, {70}).distinct == 2);
  // A file's own words on buckets are kept.
  for (Fusion &fusion : functions[0].options.fusion)
    fusion = {Fusion::Mode::Index, 0, {6, 12, 18}, {}};
  CHECK(ordersWithin(1, functions, {}).distinct == 4);
}
