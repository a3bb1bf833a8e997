//===- FamiliesTest.cpp - Rules built from shapes -------------------------===//
#include "partita/Rule/Sharding/Families.h"

#include <catch2/catch.hpp>

using namespace partita;

static std::string show(const Expected<ShardingRule> &rule) {
  REQUIRE(rule);
  CHECK(rule->verify());
  return rule->str();
}

TEST_CASE("reshape shares factors wherever cut points nest") {
  CHECK(show(reshapeRule({2, 12, 64}, {24, 64})) == "c b a -> (c b) a {a=64, b=12, c=2}");
  CHECK(show(reshapeRule({24, 192}, {2, 12, 3, 8, 8})) ==
        "(e d) (c b a) -> e d c b a {a=8, b=8, c=3, d=12, e=2}");
  CHECK(show(reshapeRule({1, 6, 1}, {2, 1, 3})) == "1 (b a) 1 -> b 1 a {a=3, b=2}");
  CHECK(show(reshapeRule({}, {1})) == "() -> 1 {}");
}

TEST_CASE("reshape replicates a span whose cuts do not nest, and only that") {
  CHECK(show(reshapeRule({5, 4, 6}, {5, 6, 4})) ==
        "e d a -> e c b {a=6 replicate, b=4 replicate, c=6 replicate, d=4 replicate, "
        "e=5}");
  CHECK(!reshapeRule({5}, {6}));
}

TEST_CASE("reshape of no elements: a dim of 1 is no loop, as elsewhere") {
  CHECK(show(reshapeRule({0, 1}, {0})) == "a 1 -> b {a=0 replicate, b=0 replicate}");
  CHECK(show(reshapeRule({0}, {1, 0, 1})) == "a -> 1 b 1 {a=0 replicate, b=0 replicate}");
}

TEST_CASE("broadcast, transpose, reduce") {
  CHECK(show(broadcastRule({{2, 3, 4}, {4}, {3, 1}})) ==
        "a b c, c, b 1 -> a b c {a=2, b=3, c=4}");
  CHECK(broadcastRule({{2, 3}, {2}}).error().message ==
        "operand 1 of shape [2] does not broadcast: dim 0 has size 2, another operand "
        "has 3");
  CHECK(show(transposeRule({2, 3, 4}, {2, 0, 1})) == "a b c -> c a b {a=2, b=3, c=4}");
  CHECK(show(reduceRule({2, 3, 4}, {-1}, true, ReduceKind::Max)) ==
        "a b c -> a b 1 {a=2, b=3, c=4 max}");
  CHECK(!reduceRule({2}, {1}, false, ReduceKind::Sum));
  CHECK(!reduceRule({2, 2}, {1, -1}, false, ReduceKind::Sum));
}

TEST_CASE("slices and concatenation of equal blocks keep their minor factor") {
  CHECK(show(sliceRule({4, 192}, {4, 64}, {0, 128}, {1, 1})) ==
        "a (b c) -> a c {a=4, b=3 replicate, c=64}");
  CHECK(show(sliceRule({10}, {4}, {0}, {1})) == "a -> b {a=10 replicate, b=4 replicate}");
  CHECK(!sliceRule({4}, {2}, {3}, {1}));
  CHECK(show(concatRule({{2, 8}, {2, 8}}, -1)) ==
        "a c, a c -> a (b c) {a=2, b=2 replicate, c=8}");
  CHECK(show(concatRule({{2, 3}, {2, 5}}, 1)) ==
        "a b, a c -> a d {a=2, b=3 replicate, c=5 replicate, d=8 replicate}");
  CHECK(!concatRule({{2, 3}, {3, 3}}, 1));
}

TEST_CASE("a spatial dim is a window, point-wise, or whole") {
  auto spatial = [](const SpatialDim &dim) {
    ShardingRule rule;
    rule.operands.emplace_back(1);
    rule.results.emplace_back(1);
    addSpatialDim(rule, dim, ReduceKind::Max, rule.operands[0][0], rule.results[0][0]);
    return show(rule);
  };
  CHECK(spatial({13, 7, 3, 2, 1, 1}) ==
        "a -> a {a=7 window max of 13 stride 2 kernel_extent 3 low 1}");
  CHECK(spatial({9, 5, 3, 1, 2, 0}) == "a -> a {a=5 window max of 9 kernel_extent 5}");
  CHECK(spatial({9, 9, 1, 1, 1, 0}) == "a -> a {a=9}");
  // Shifted by a pad on one side and a cut on the other, it is a window of one element.
  CHECK(spatial({9, 9, 1, 1, 1, 1}) ==
        "a -> a {a=9 window max of 9 kernel_extent 1 low 1}");
  // A single window, and windows over a single element.
  CHECK(spatial({7, 1, 7, 1, 1, 0}) == "a -> a {a=1 window max of 7 kernel_extent 7}");
  CHECK(spatial({1, 3, 1, 1, 1, 1}) ==
        "a -> a {a=3 window max of 1 kernel_extent 1 low 1}");
  CHECK(spatial({1, 1, 3, 1, 1, 1}) ==
        "a -> a {a=1 window max of 1 kernel_extent 3 low 1}");
  CHECK(spatial({1, 1, 1, 1, 1, 0}) == "1 -> 1 {}");
}
