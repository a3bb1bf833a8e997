//===- ShardingRuleTest.cpp - Rules give shapes and layouts ---------------===//
#include "partita/Rule/Sharding/ShardingRule.h"

#include <catch2/catch.hpp>

using namespace partita;

TEST_CASE("matmul: sizes, kinds and layouts follow from the text") {
  auto rule = ShardingRule::parse("b m k, k n -> b m n", {{2, 3, 4}, {4, 6}});
  REQUIRE(rule);
  CHECK(rule->verify());
  CHECK(rule->shape(rule->results[0]) == std::vector<int64_t>{2, 3, 6});
  CHECK(rule->str() == "a b c, c d -> a b d {a=2, b=3, c=4 sum, d=6}");

  Mesh mesh = *Mesh::parse("dp=2,tp=2");
  Strategy strategy = Strategy::replicated(*rule);
  strategy.factors[0].factors[0].axes = {mesh.whole(0)};
  strategy.factors[2].factors[0].axes = {mesh.whole(1)};
  CHECK(verifyStrategy(mesh, *rule, strategy));
  CHECK(operandLayout(*rule, strategy, 1).str(mesh) == "[{4: tp}, {6}]");
  CHECK(resultLayout(*rule, strategy, 0).str(mesh) ==
        "[{2: dp}, {3}, {6}] partial sum {tp}");

  strategy.factors[3].factors[0].axes = {mesh.whole(1)};
  CHECK(verifyStrategy(mesh, *rule, strategy).error().message == "axis tp is used twice");
}

TEST_CASE("compound and broadcast dims") {
  auto rule = ShardingRule::parse("b s h d -> b s (h d)", {{2, 3, 4, 5}});
  REQUIRE(rule);
  CHECK(rule->shape(rule->results[0]) == std::vector<int64_t>{2, 3, 20});
  auto broadcast = ShardingRule::parse("m n, 1 n -> m n", {{4, 5}, {1, 5}});
  REQUIRE(broadcast);
  CHECK(broadcast->operands[1][0].empty());
}

TEST_CASE("disagreeing sizes name operand and dim") {
  auto rule = ShardingRule::parse("m k, k n -> m n", {{2, 3}, {4, 5}});
  CHECK(rule.error().message == "operand 1 dim 0 has size 4, expected 3");
  CHECK(!ShardingRule::parse("m k, k n -> m n", {{2, 3}}));
  CHECK(!ShardingRule::parse("m k, k n -> m n", {{2, 3}, {3}}));
}

TEST_CASE("a strategy's text is read back") {
  Mesh mesh = *Mesh::parse("dp=2,tp=6");
  auto rule = ShardingRule::parse("m k, k n -> m n", {{4, 3}, {3, 12}});
  rule->linear = {{ReduceKind::Sum, {0}}};
  for (const char *text :
       {"[{4: dp}, {3}, {12}]", "[{4}, {3}, {2}*{6: tp}]", "[{4: dp}, {3/6: tp}, {12}]",
        "[{4}, {3}, {12: dp}] pass 0 {tp:(1)2}"}) {
    auto strategy = Strategy::parse(text, mesh, *rule);
    REQUIRE(strategy);
    CHECK(strategy->str(mesh) == text);
    CHECK(verifyStrategy(mesh, *rule, *strategy));
  }
  CHECK(!Strategy::parse("[{4}]", mesh, *rule));
  CHECK(!Strategy::parse("[{4}, {3}, {12}] pass x {tp}", mesh, *rule));
  CHECK(!Strategy::parse("[{4}, {3}, {12}] pass 0 {zz}", mesh, *rule));
}

TEST_CASE("a split window asks for the operand over the same axes, and for its buffer") {
  Mesh mesh = *Mesh::parse("h=4,tp=2");
  ShardingRule rule;
  int32_t c = rule.addFactor(6),
          y = rule.addFactor(7, FactorKind::Window, ReduceKind::Max);
  rule.factors[y].window = {13, 2, 3, 1};
  rule.operands = {{{c}, {y}}};
  rule.results = {{{c}, {y}}};
  REQUIRE(rule.verify());
  CHECK(rule.shape(rule.results[0]) == std::vector<int64_t>{6, 7});
  Strategy strategy = *Strategy::parse("[{6: tp}, {7/8: h}]", mesh, rule);
  REQUIRE(verifyStrategy(mesh, rule, strategy));
  CHECK(operandLayout(rule, strategy, 0).str(mesh) == "[{6: tp}, {13/16: h}]");
  CHECK(resultLayout(rule, strategy, 0).str(mesh) == "[{6: tp}, {7/8: h}]");
  auto halo = operandHalo(rule, strategy, 0);
  REQUIRE(halo);
  CHECK(halo->positions.str(mesh) == "[{6: tp}, {7/8: h}]");
  CHECK(halo->windows == std::vector<HaloWindow>{{1, 2, 3, 1}});
  CHECK(halo->fill == ReduceKind::Max);
  // Where positions stay together the op pads by itself.
  CHECK(!operandHalo(rule, *Strategy::parse("[{6: tp}, {7}]", mesh, rule), 0));
  // Windows overlap: their positions are not a product of anything.
  rule.factors[y].size = 8;
  CHECK(verifyStrategy(mesh, rule, *Strategy::parse("[{6}, {4: h}*{2}]", mesh, rule))
            .error()
            .message.find("sub-factors") != std::string::npos);
  rule.operands[0] = {{c, y}};
  CHECK(rule.verify().error().message ==
        "operand 0 has window factor 1 in a dim with others");
}
