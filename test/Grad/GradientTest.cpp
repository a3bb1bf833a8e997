//===- GradientTest.cpp - The gradient of every op against differences ----===//
//
// Each case of test/Spmd that has a gradient runs in f64 on the evaluator: the cotangents
// that the op states are compared with central differences of Σ cotangent · result. Then
// the same program in f32, f16 and bf16 is compared with f64.
//
//===----------------------------------------------------------------------===//
#include "../Spmd/Cases.h"

#include "dialects/Graph/Graph.h"
#include "partita/Reference/Kernels.h"
#include "passes/Reference/Evaluate.h"

#include "mlir/IR/IRMapping.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <iostream>
#include <map>
#include <set>

using namespace mlir;
using namespace partita;
using namespace partita::spmd;

static const WeightLoader noWeights = [](StringRef) -> Expected<HostTensor> {
  return makeError("no weights here");
};

/// "4x6xf32" as "4x6xf64"; types that are no floats of a training stay.
static std::string withFloat(const std::string &type, const std::string &to) {
  size_t at = type.rfind('x');
  std::string head = at == type.npos ? "" : type.substr(0, at + 1);
  std::string element = type.substr(head.size());
  bool trains = element == "f32" || element == "f16" || element == "bf16";
  return head + (trains ? to : element);
}

static OpCase withFloats(OpCase c, const std::string &to) {
  for (std::string &type : c.operands)
    type = withFloat(type, to);
  if (!c.result.empty())
    c.result = withFloat(c.result, to);
  return c;
}

static bool isReal(Value value) {
  Type element = getElementTypeOrSelf(value.getType());
  return element.isF64() || element.isF32() || element.isF16() || element.isBF16();
}

/// Rounding on the way would be seen as steps.
static bool isNarrow(Value value) {
  return isa<FloatType>(getElementTypeOrSelf(value.getType())) &&
         !getElementTypeOrSelf(value.getType()).isF64();
}

/// Operands from this one on, and results, are for the payload and for gradients of an
/// attention: they have no cotangents.
static unsigned numReal(Operation *op, bool ofOperands) {
  if (isa<graph::AttentionOp>(op))
    return ofOperands ? 3 : 1;
  return ofOperands ? op->getNumOperands() : op->getNumResults();
}

namespace {
/// The op, and a function from its operands and cotangents to the cotangents of its real
/// operands. Unused results have none.
struct Gradient {
  Program program;
  func::FuncOp backward;
  std::vector<unsigned> operands, results; ///< real ones
  std::set<unsigned> zero; ///< of `operands`, those whose cotangent is nothing
};
} // namespace

static Expected<Gradient> build(MLIRContext &context, const OpCase &c) {
  auto program = buildProgram(context, c);
  if (!program)
    return tl::unexpected(program.error());
  Gradient g{std::move(*program), {}, {}, {}, {}};
  Operation *op = g.program.op;
  std::vector<bool> wanted;
  SmallVector<Type> types(op->getOperandTypes());
  for (unsigned i = 0; i < op->getNumOperands(); ++i) {
    wanted.push_back(i < numReal(op, true) && isReal(op->getOperand(i)));
    if (wanted.back())
      g.operands.push_back(i);
  }
  for (unsigned i = 0; i < numReal(op, false); ++i)
    if (isReal(op->getResult(i)))
      g.results.push_back(i), types.push_back(op->getResult(i).getType());
  OpBuilder builder(&context);
  builder.setInsertionPointToEnd(g.program.module->getBody());
  g.backward = func::FuncOp::create(builder, builder.getUnknownLoc(), "backward",
                                    builder.getFunctionType(types, {}));
  Block *body = g.backward.addEntryBlock();
  builder.setInsertionPointToEnd(body);
  IRMapping mapping;
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    mapping.map(op->getOperand(i), body->getArgument(i));
  Operation *copy = builder.clone(*op, mapping);
  std::vector<Value> cotangents(op->getNumResults());
  for (auto [k, r] : llvm::enumerate(g.results))
    cotangents[r] = body->getArgument(op->getNumOperands() + static_cast<unsigned>(k));
  auto made =
      cast<DifferentiableOpInterface>(copy).gradients(builder, cotangents, wanted);
  if (!made)
    return tl::unexpected(made.error());
  SmallVector<Value> given;
  for (unsigned i : g.operands)
    if (Value value = (*made)[i]) {
      if (value.getType() != op->getOperand(i).getType())
        return makeError("the cotangent of operand " + std::to_string(i) +
                         " is of another type than the operand");
      given.push_back(value);
    } else {
      g.zero.insert(i);
    }
  func::ReturnOp::create(builder, builder.getUnknownLoc(), given);
  g.backward.setType(builder.getFunctionType(types, ValueRange(given).getTypes()));
  if (failed(g.program.module->verify()))
    return makeError("the gradient is not valid");
  return g;
}

static HostTensor cast(const HostTensor &tensor, DType type) {
  return isFloat(tensor.type) ? reference::tensor<double>(
                                    type, tensor.shape, reference::values<double>(tensor))
                              : tensor;
}

/// Σ cotangent · result over all real results.
static double weighed(const Gradient &g, const Tensors &inputs,
                      const Tensors &cotangents) {
  auto results = evaluate(g.program.function, inputs, noWeights);
  REQUIRE(results);
  double sum = 0;
  for (auto [k, r] : llvm::enumerate(g.results)) {
    auto y = reference::values<double>((*results)[r]);
    auto c = reference::values<double>(cotangents[k]);
    for (size_t i = 0; i < y.size(); ++i)
      sum += y[i] * c[i];
  }
  return sum;
}

namespace {
struct Sample {
  Tensors inputs, cotangents;
  Tensors all() const {
    Tensors list = inputs;
    list.insert(list.end(), cotangents.begin(), cotangents.end());
    return list;
  }
};
} // namespace

static Sample drawSample(const OpCase &c, const Gradient &g, Random &random) {
  Sample sample;
  for (auto [i, operand] : llvm::enumerate(g.program.op->getOperands()))
    sample.inputs.push_back(draw(*dtypeOf(getElementTypeOrSelf(operand.getType())),
                                 shapeOf(operand), c.dataOf(i), random));
  for (unsigned r : g.results)
    sample.cotangents.push_back(
        draw(DType::F64, shapeOf(g.program.op->getResult(r)), {}, random));
  return sample;
}

/// How many elements of an operand were compared.
static int compareOperand(const std::string &name, const Gradient &g,
                          const Sample &sample, unsigned operand,
                          const std::vector<double> &stated) {
  double here = weighed(g, sample.inputs, sample.cotangents);
  auto x = reference::values<double>(sample.inputs[operand]);
  int compared = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    auto at = [&](double by) {
      Tensors moved = sample.inputs;
      auto values = x;
      values[i] += by;
      moved[operand] =
          reference::tensor<double>(DType::F64, moved[operand].shape, values);
      return weighed(g, moved, sample.cotangents);
    };
    auto slopes = [&](double step) {
      return std::pair((here - at(-step)) / step, (at(step) - here) / step);
    };
    double step = 1e-4 * (1 + std::abs(x[i]));
    auto [left, right] = slopes(step);
    auto [leftNear, rightNear] = slopes(step / 10);
    double slope = (leftNear + rightNear) / 2, kink = std::abs(rightNear - leftNear);
    // The slopes of a smooth function come ten times closer; at a corner or a step they
    // stay apart, and there is no one derivative.
    if (!std::isfinite(slope) ||
        (kink > 1e-7 * (1 + std::abs(slope)) && kink > 0.5 * std::abs(right - left)))
      continue;
    INFO(name << ": operand " << operand << " element " << i << ": " << stated[i]
              << ", by differences " << slope);
    REQUIRE(std::abs(stated[i] - slope) <= 1e-5 * (1 + std::abs(slope)));
    ++compared;
  }
  return compared;
}

static double norm(const std::vector<double> &v) {
  double sum = 0;
  for (double x : v)
    sum += x * x;
  return std::sqrt(sum);
}

/// The stated cotangents of a sample, one per real operand.
static std::vector<std::vector<double>> stated(const Gradient &g, const Tensors &inputs) {
  auto made = evaluate(g.backward, inputs, noWeights);
  if (!made)
    FAIL(made.error().message);
  std::vector<std::vector<double>> values;
  size_t next = 0;
  for (unsigned i : g.operands)
    values.push_back(g.zero.count(i)
                         ? std::vector<double>(static_cast<size_t>(
                               elementCount(shapeOf(g.program.op->getOperand(i)))))
                         : reference::values<double>((*made)[next++]));
  return values;
}

static void compareType(MLIRContext &context, const OpCase &c, const std::string &type,
                        DType dtype, double tolerance, const Sample &sample) {
  auto narrow = build(context, withFloats(c, type));
  auto wide = build(context, withFloats(c, "f64"));
  INFO(c.name() << " in " << type);
  REQUIRE(narrow);
  REQUIRE(wide);
  Tensors rounded, exact;
  for (const HostTensor &tensor : sample.all()) {
    rounded.push_back(cast(tensor, dtype));
    exact.push_back(cast(rounded.back(), DType::F64));
  }
  auto actual = stated(*narrow, rounded), expected = stated(*wide, exact);
  for (size_t k = 0; k < actual.size(); ++k) {
    std::vector<double> difference;
    for (size_t i = 0; i < actual[k].size(); ++i)
      if (std::isfinite(actual[k][i]) && std::isfinite(expected[k][i]))
        difference.push_back(actual[k][i] - expected[k][i]);
    CHECK(difference.size() * 2 > actual[k].size());
    CHECK(norm(difference) <= tolerance * (norm(expected[k]) + 1));
  }
}

TEST_CASE("gradients are what differences show") {
  MLIRContext context;
  loadDialects(context);
  auto cases = allCases(context);
  if (!cases)
    FAIL(cases.error().message);
  std::set<std::string> ops, without, done;
  std::map<std::string, int> points;
  int programs = 0, types = 0;
  Random random(7);
  for (const OpCase &original : *cases) {
    OpCase c = withFloats(original, "f64");
    auto program = buildProgram(context, c);
    REQUIRE(program);
    if (llvm::none_of(program->op->getOperands(), isReal) ||
        llvm::none_of(program->op->getResults(), isReal) ||
        llvm::any_of(program->op->getOperands(), isNarrow) ||
        llvm::any_of(program->op->getResults(), isNarrow) ||
        !done.insert(c.name()).second)
      continue;
    if (!isa<DifferentiableOpInterface>(program->op)) {
      without.insert(c.op);
      continue;
    }
    auto gradient = build(context, c);
    if (!gradient) {
      // A kind of the op that says so itself.
      INFO(c.name() << ": " << gradient.error().message);
      REQUIRE(gradient.error().message.find("has no gradient") != std::string::npos);
      without.insert(c.op + " (" + c.attributes + ")");
      continue;
    }
    Sample sample = drawSample(c, *gradient, random);
    auto values = stated(*gradient, sample.all());
    for (auto [k, operand] : llvm::enumerate(gradient->operands))
      points[c.op] += compareOperand(c.name(), *gradient, sample, operand, values[k]);
    ops.insert(c.op), ++programs;
    compareType(context, c, "f32", DType::F32, 1e-5, sample);
    compareType(context, c, "f16", DType::F16, 2e-2, sample);
    compareType(context, c, "bf16", DType::BF16, 1e-1, sample);
    types += 3;
  }
  int all = 0;
  for (const std::string &op : ops) {
    INFO(op);
    CHECK(points[op] >= 10);
    all += points[op];
  }
  std::cout << "gradients: " << ops.size() << " ops, " << programs << " programs, " << all
            << " elements against differences, " << types << " runs in narrower types\n";
  std::cout << "without a gradient:";
  for (const std::string &op : without)
    std::cout << " " << op;
  std::cout << "\n";
}
