//===- PayloadTest.cpp - Payload text is parsed and evaluated -------------===//
#include "partita/Rule/Scalar/Payload.h"

#include <catch2/catch.hpp>
#include <cmath>

using namespace partita;

static double run(const char *text, std::vector<double> operands,
                  std::vector<double> attributes = {}) {
  auto payload = Payload::parse(text);
  REQUIRE(payload);
  std::vector<double> scratch;
  return payload->evaluate<double>(operands.data(), attributes, scratch);
}

TEST_CASE("precedence and associativity are the usual ones") {
  CHECK(run("1 - 2 - 3 * 4 / 8", {}) == -2.5);
  CHECK(run("-x * 2 + y", {3, 1}) == -5);
  CHECK(run("x < y && !(y < x) || 0", {1, 2}) == 1);
}

TEST_CASE("attributes, functions and repeated names") {
  CHECK(run("max(lo, min(hi, x)) + lo", {7}, {-1, 5}) == 4);
  CHECK(run("select(isnan(x), 1, 2)", {NAN}) == 1);
  CHECK(std::isnan(run("max(x, 0)", {NAN})));
  CHECK(run("x", {4}) == 4);
}

TEST_CASE("integers wrap and never trap") {
  auto payload = Payload::parse("x / y");
  std::vector<int64_t> scratch, attributes;
  int64_t byZero[] = {1, 0}, overflow[] = {INT64_MIN, -1};
  CHECK(payload->evaluate<int64_t>(byZero, attributes, scratch) == 0);
  CHECK(payload->evaluate<int64_t>(overflow, attributes, scratch) == INT64_MIN);
}

TEST_CASE("errors name the payload and the place") {
  CHECK(Payload::parse("x +").error().message == "payload \"x +\": unexpected end");
  CHECK(Payload::parse("foo(x)").error().message ==
        "payload \"foo(x)\": unknown function 'foo'");
  CHECK(!Payload::parse("max(x)"));
  CHECK(!Payload::parse("(x"));
  CHECK(!Payload::parse("x y"));
}

TEST_CASE("payloads of payloads") {
  auto of = [](std::string_view text) { return *Payload::parse(text); };
  Payload made =
      of("select(x, y, -1e999)").composed({of("z <= w"), of("tanh(x) * 0.5"), of("y")});
  CHECK(made.str() == "select(z <= w, tanh(x) * 0.5, -1e999)");
  CHECK(of("x * y").composed({of("x + 1"), of("1")}).str() == "x + 1");
  // Operands keep their numbers, also those that are not read.
  const size_t condition = 2, root = made.nodes().size() - 1;
  CHECK(made.partAt(condition).str() == "z <= w");
  CHECK(made.partAt(root) == made);
}

TEST_CASE("powers by known exponents are products, roots and quotients") {
  const Payload power = *Payload::parse("pow(x, y)");
  const int64_t function = power.steps();
  CHECK(power.steps({std::nullopt, std::nullopt}) == function);
  CHECK(power.steps({std::nullopt, 1.5}) == function);
  CHECK(power.steps({3.0, std::nullopt}) == function);
  CHECK(power.steps({std::nullopt, 1.0}) == 0);
  CHECK(power.steps({std::nullopt, 2.0}) == Payload::parse("x * x")->steps());
  CHECK(power.steps({std::nullopt, 3.0}) == Payload::parse("x * x * x")->steps());
  CHECK(power.steps({std::nullopt, 0.5}) == Payload::parse("sqrt(x)")->steps());
  CHECK(power.steps({std::nullopt, -1.0}) == Payload::parse("1 / x")->steps());
  CHECK(Payload::parse("pow(x, 3)")->steps() == Payload::parse("x * x * x")->steps());
}
