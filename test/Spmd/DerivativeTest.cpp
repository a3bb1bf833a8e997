//===- DerivativeTest.cpp - Derivatives of payloads, by differences -------===//
//
// For every op with a payload, by every operand, at random points in double: the
// derivative is the central difference. Points within a step of a corner or a jump are
// left out: there the differences to the left and to the right are not the same.
//
//===----------------------------------------------------------------------===//
#include "Cases.h"

#include "dialects/Graph/Graph.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <iostream>
#include <random>
#include <set>

using namespace mlir;
using namespace partita;
using namespace partita::spmd;

namespace {
/// A payload with its attributes' values.
struct Function {
  Payload payload;
  std::vector<double> attributes;
  std::vector<double> scratch;

  double at(const std::vector<double> &x) {
    return payload.evaluate<double>(x.data(), attributes, scratch);
  }
};
} // namespace

static Function derivativeOf(const Function &f, int32_t operand) {
  Function result{f.payload.derivative(operand), {}, {}};
  std::vector<std::string> names = f.payload.attributeNames();
  for (const std::string &name : result.payload.attributeNames())
    result.attributes.push_back(f.attributes[static_cast<size_t>(
        std::find(names.begin(), names.end(), name) - names.begin())]);
  return result;
}

/// How many of the points were smooth; a wrong derivative is a failure.
static int compare(const std::string &name, Function f, int32_t operand) {
  Function derivative = derivativeOf(f, operand);
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal(0, 1.5);
  auto d = static_cast<size_t>(operand);
  int smooth = 0;
  for (int trial = 0; trial < 400; ++trial) {
    std::vector<double> x(static_cast<size_t>(f.payload.numOperands()));
    for (double &v : x)
      v = normal(random);
    double step = 1e-5, at = x[d], here = f.at(x), expected = derivative.at(x);
    x[d] = at + step;
    double right = f.at(x) - here;
    x[d] = at - step;
    double left = here - f.at(x);
    double slope = (left + right) / (2 * step);
    if (!std::isfinite(slope) ||
        std::abs(right - left) > 1e-3 * step * (1 + std::abs(slope)))
      continue;
    ++smooth;
    INFO(name << " by operand " << operand << " at " << at << ": " << expected
              << ", by differences " << slope);
    REQUIRE(std::abs(expected - slope) <= 1e-5 * (1 + std::abs(slope)));
  }
  return smooth;
}

TEST_CASE("derivatives of all payloads are the differences") {
  MLIRContext context;
  loadDialects(context);
  auto cases = allCases(context);
  REQUIRE(cases);
  std::set<std::string> done;
  int functions = 0, points = 0;
  for (const OpCase &opCase : *cases) {
    auto program = buildProgram(context, opCase);
    REQUIRE(program);
    auto op = dyn_cast<PayloadOpInterface>(program->op);
    std::string key = opCase.op + opCase.attributes;
    if (!op || !done.insert(key).second)
      continue;
    Function f{op.getPayload(), op.getPayloadAttributes(), {}};
    bool isOfIntegers = std::any_of(
        f.payload.nodes().begin(), f.payload.nodes().end(), [](const ScalarNode &n) {
          return (n.op >= ScalarOp::BitAnd && n.op <= ScalarOp::ShiftRight) ||
                 n.op == ScalarOp::Bits;
        });
    for (int32_t i = 0; i < f.payload.numOperands() && !isOfIntegers; ++i) {
      int smooth = compare(key, f, i);
      INFO(key << " by operand " << i);
      CHECK(smooth >= 40);
      ++functions, points += smooth;
    }
  }
  std::cout << "derivatives: " << functions << " at " << points << " points\n";
}

TEST_CASE("derivatives at corners and of absent operands") {
  auto at = [](const char *text, int32_t operand, std::vector<double> x) {
    Function f{Payload::parse(text)->derivative(operand), {}, {}};
    return f.at(x);
  };
  CHECK(at("max(x, 0)", 0, {0}) == 0);
  CHECK(at("max(x, y)", 0, {2, 2}) + at("max(x, y)", 1, {2, 2}) == 1);
  CHECK(at("x * x", 1, {3, 4}) == 0);
  CHECK(at("pow(x, 2)", 0, {-3}) == -6);
  CHECK(at("pow(x, y)", 1, {0, 2}) == 0);
  CHECK(at("y", 1, {3, 4}) == 1);
}
