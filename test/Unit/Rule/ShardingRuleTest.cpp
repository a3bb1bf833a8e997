//===- ShardingRuleTest.cpp - Rules give shapes and layouts ---------------===//
#include "partita/Rule/Sharding/ShardingRule.h"
#include "partita/Rule/Sharding/OperandForm.h"
#include "partita/Rule/Sharding/Strategy.h"

#include <catch2/catch.hpp>

using namespace partita;

TEST_CASE("matmul: sizes, kinds and layouts follow from the text") {
  auto rule = ShardingRule::parse("b m k, k n -> b m n", {{2, 3, 4}, {4, 6}});
  REQUIRE(rule);
  CHECK(rule->verify());
  CHECK(rule->shape(rule->results[0]) == std::vector<int64_t>{2, 3, 6});
  CHECK(rule->str() == "b m k, k n -> b m n {b=2, m=3, k=4 sum, n=6}");

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

TEST_CASE("a text that is no rule is refused") {
  auto message = [](const char *text) {
    auto rule = ShardingRule::parse(text, {{2, 3}, {3, 4}});
    return rule ? "" : rule.error().message;
  };
  CHECK(message("m k, k n") == "'m k, k n' has no '->'");
  CHECK(message("m k, k n -> m -> n") == "'m k, k n -> m -> n' has two '->'");
  CHECK(message("m k), (k n -> m n") == "'m k), (k n -> m n' has a ')' without its '('");
  CHECK(message("(m k, k n -> m n") == "'(m k, k n -> m n' has a '(' without its ')'");
  CHECK(message("m k, k n -> (m n") == "'m k, k n -> (m n' has a '(' without its ')'");
  CHECK(message("m k, k n -> m q") == "'q' of the result is in no operand");
}

TEST_CASE("a strategy's text is read back") {
  Mesh mesh = *Mesh::parse("dp=2,tp=6");
  auto rule = ShardingRule::parse("m k, k n -> m n", {{4, 3}, {3, 12}});
  rule->linear = {{ReduceKind::Sum, {0}}};
  for (const char *text :
       {"{}", "{m: dp}", "{m: {dp, tp:(1)2}}", "{n: {2}*{6: tp}}",
        "{m: dp, k: {3/6: tp}}", "{m: {4=1+3: dp}}", "{n: dp} pass sum(0) {tp:(1)2}"}) {
    auto strategy = Strategy::parse(text, mesh, *rule);
    REQUIRE(strategy);
    CHECK(strategy->str(mesh, *rule) == text);
    CHECK(verifyStrategy(mesh, *rule, *strategy));
  }
  // A cut that splits nothing says nothing.
  CHECK(Strategy::parse("{n: {2}*{6}}", mesh, *rule)->str(mesh, *rule) == "{}");
  auto message = [&](const char *text) {
    return Strategy::parse(text, mesh, *rule).error().message;
  };
  CHECK(message("{q: dp}") ==
        "the op has no loop 'q' (its rule is m k, k n -> m n {m=4, k=3 sum, n=12} linear "
        "sum(0))");
  CHECK(message("{m: dp, m: tp}") == "loop 'm' is there twice");
  CHECK(message("{m: zz}") ==
        "in the strategy \"{m: zz}\": the mesh \"dp=2,tp=6\" has no axis \"zz\"");
  CHECK(message("{m: dp") == "in the strategy \"{m: dp\": expected } at column 5");
  CHECK(message("{} pass max(0) {tp}") ==
        "the op lets no partial max pass by these operands (its rule is m k, k n -> m n "
        "{m=4, k=3 sum, n=12} linear sum(0))");
  CHECK(message("{} pass sum 0 {tp}") ==
        "in the strategy \"{} pass sum 0 {tp}\": expected ( at column 13");
}

TEST_CASE("a rule's text says all of it") {
  for (const char *text :
       {"-> {}", "() -> () {} linear sum(0)", "n -> n {n=3}", "n -> () {n=3 sum}",
        "m k, k n -> m n {m=4, k=8 sum, n=6} linear sum(0), sum(1)",
        "m k, k n, 1 n -> m n {m=4, k=8 sum addends(2), n=6}",
        "v d, i -> i d {v=9 sum index(1), d=2, i=4} linear sum(0)",
        "(n c) h -> n c h {n=2 replicate, c=3 replicate, h=4 window max "
        "of 9 stride 2 kernel_extent "
        "3 low 1}",
        "v d, i -> i d {v=9 sum local index(1), d=2, i=4} linear sum(0) fill sum(1)",
        "a -> a, 1 {a=3} linear max(0), min(0) fill prod(0), sum(0)"}) {
    auto rule = ShardingRule::read(text);
    INFO((rule ? text : rule.error().message));
    REQUIRE(rule);
    CHECK(rule->str() == text);
    CHECK(*ShardingRule::read(rule->str()) == *rule);
  }
  auto message = [&](const char *text) {
    return ShardingRule::read(text).error().message;
  };
  CHECK(message("m -> n {m=3}") ==
        "in the rule \"m -> n {m=3}\": loop n has no size at column 13");
  CHECK(message("m -> m {m=3, m=4}").find("loop m is there twice") != std::string::npos);
  CHECK(message("m -> m {m=3} linear sum(4)") == "a linear set names operand 4");
}

TEST_CASE("positions that are summed: one operand has windows, the other its block") {
  Mesh mesh = *Mesh::parse("h=4");
  const char *text = "c y, o y -> o c {c=2, y=7 sum window sum of 13 stride 2 "
                     "kernel_extent 3 low 1, o=5} linear sum(0), sum(1)";
  ShardingRule rule = *ShardingRule::read(text);
  CHECK(rule.str() == text);
  Strategy strategy = *Strategy::parse("{y: {7/8: h}}", mesh, rule);
  REQUIRE(verifyStrategy(mesh, rule, strategy));
  CHECK(operandLayout(rule, strategy, 0).str(mesh) == "[{2}, {13/16: h}]");
  CHECK(operandLayout(rule, strategy, 1).str(mesh) == "[{5}, {7/8: h}]");
  CHECK(resultLayout(rule, strategy, 0).str(mesh) == "[{5}, {2}] partial sum {h}");
  CHECK(operandHalo(rule, strategy, 0)->windows == std::vector<HaloWindow>{{1, 2, 3, 1}});
  CHECK(!operandHalo(rule, strategy, 1));
  // Positions that no rank has are no addends.
  CHECK(operandForm(rule, strategy, 1).padding[1] == ReduceKind::Sum);
  CHECK(equalUpToNames(
      localRule(rule, strategy),
      *ShardingRule::read("c y, o y -> o c {c=2, y=2 sum window sum of 5 stride 2 "
                          "kernel_extent 3, o=5} linear sum(0), sum(1)")));
  // The operand that has the windows is part of the text.
  ShardingRule other = rule;
  other.factors[1].window()->operand = 1;
  CHECK(other.str().find("window sum(1) of 13") != std::string::npos);
  CHECK(*ShardingRule::read(other.str()) == other);
  other.factors[1].window()->operand = 2;
  CHECK(other.verify().error().message == "factor 1 reads windows of operand 2");
}

TEST_CASE("operands that are read through the same windows have a buffer each") {
  Mesh mesh = *Mesh::parse("h=4");
  const char *text = "c y, c y -> c y {c=2, y=7 window sum(0, 1) of 13 stride 2 "
                     "kernel_extent 3 low 1}";
  ShardingRule rule = *ShardingRule::read(text);
  CHECK(rule.str() == text);
  CHECK(*ShardingRule::read(rule.str()) == rule);
  Strategy strategy = *Strategy::parse("{y: {7/8: h}}", mesh, rule);
  REQUIRE(verifyStrategy(mesh, rule, strategy));
  for (size_t operand : {0, 1}) {
    CHECK(operandLayout(rule, strategy, operand).str(mesh) == "[{2}, {13/16: h}]");
    auto halo = operandHalo(rule, strategy, operand);
    REQUIRE(halo);
    CHECK(halo->windows == std::vector<HaloWindow>{{1, 2, 3, 1}});
  }
  CHECK(
      equalUpToNames(localRule(rule, strategy),
                     *ShardingRule::read("c y, c y -> c y {c=2, y=2 window sum(0, 1) of "
                                         "5 stride 2 kernel_extent 3}")));
  rule.factors[1].window()->operands = 3;
  CHECK(rule.verify().error().message == "factor 1 reads windows of operand 2");
  CHECK(ShardingRule::read("y, y -> y {y=7 window sum(0, 2) of 13}")
            .error()
            .message.find("expected operands that follow one another") !=
        std::string::npos);
}

TEST_CASE("a split window asks for the operand over the same axes, and for its buffer") {
  Mesh mesh = *Mesh::parse("h=4,tp=2");
  ShardingRule rule;
  int32_t c = rule.addFactor(6),
          y = rule.addFactor(7, loop::Window{ReduceKind::Max, 13, 2, 3, 1});
  rule.operands = {{{c}, {y}}};
  rule.results = {{{c}, {y}}};
  REQUIRE(rule.verify());
  CHECK(rule.shape(rule.results[0]) == std::vector<int64_t>{6, 7});
  Strategy strategy = *Strategy::parse("{a: tp, b: {7/8: h}}", mesh, rule);
  REQUIRE(verifyStrategy(mesh, rule, strategy));
  CHECK(operandLayout(rule, strategy, 0).str(mesh) == "[{6: tp}, {13/16: h}]");
  CHECK(resultLayout(rule, strategy, 0).str(mesh) == "[{6: tp}, {7/8: h}]");
  auto halo = operandHalo(rule, strategy, 0);
  REQUIRE(halo);
  CHECK(halo->positions.str(mesh) == "[{6: tp}, {7/8: h}]");
  CHECK(halo->windows == std::vector<HaloWindow>{{1, 2, 3, 1}});
  CHECK(halo->fill == ReduceKind::Max);
  // Where positions stay together the op pads by itself.
  CHECK(!operandHalo(rule, *Strategy::parse("{a: tp}", mesh, rule), 0));
  // Windows overlap: their positions are not a product of anything.
  rule.factors[y].size = 8;
  CHECK(verifyStrategy(mesh, rule, *Strategy::parse("{b: {4: h}*{2}}", mesh, rule))
            .error()
            .message.find("sub-factors") != std::string::npos);
  rule.operands[0] = {{c, y}};
  CHECK(rule.verify().error().message ==
        "operand 0 has window factor 1 in a dim with others");
}
