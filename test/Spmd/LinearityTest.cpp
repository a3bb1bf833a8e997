//===- LinearityTest.cpp - Which operands may be partial together ---------===//
//
// f commutes with a reduction in a set of operands if reducing f over ranks, with those
// operands split, equals f of the whole. Every listed set holds on random splits; every
// other set of operands is shown to break by a counterexample, or is named with a reason.
//
//===----------------------------------------------------------------------===//
#include "Runner.h"

#include "dialects/Graph/Graph.h"
#include "partita/Base/Layout/Reshard.h"
#include "partita/Reference/Kernels.h"

#include <catch2/catch.hpp>

#include <iostream>
#include <limits>

using namespace mlir;
using namespace partita;
using namespace partita::spmd;

namespace {
constexpr int holdTrials = 60, breakTrials = 400;

/// Sets that commute and are deliberately not listed.
struct Unlisted {
  const char *op, *contains; ///< parts of OpCase::name()
  std::vector<int32_t> operands;
  const char *reason;
};
const Unlisted unlisted[] = {
    {"graph.concat",
     "",
     {0, 1},
     "max and min of any operands commute; one or all will do"},
    {"graph.concat",
     "",
     {0, 2},
     "max and min of any operands commute; one or all will do"},
    {"graph.concat",
     "",
     {1, 2},
     "max and min of any operands commute; one or all will do"},
    {"graph.pad", "<edge>", {1}, "the fill is not read"},
    {"graph.pad", "<edge>", {0, 1}, "the fill is not read"},
    {"graph.pad", "<reflect>", {1}, "the fill is not read"},
    {"graph.pad", "<reflect>", {0, 1}, "the fill is not read"},
    {"graph.conv_transpose",
     " 1x1x",
     {0, 1},
     "of one channel and a filter within the stride it is a product, which says it "
     "better"},
    {"graph.isnan", "", {0}, "only while every transport's maximum keeps NaN"},
    {"graph.isinf", "", {0}, "only while no finite part stands beside -infinity"},
    {"graph.shift_left", "", {0}, "nobody reduces what is shifted"},
    {"graph.shift_right", "", {0}, "nobody reduces what is shifted"},
    {"graph.cast", "xf8", {0}, "nothing is reduced in types that are storage only"},
    {"graph.cast", "to = f8", {0}, "nothing is reduced in types that are storage only"},
    {"graph.cast", "to = f4", {0}, "nothing is reduced in types that are storage only"},
    {"graph.cast", "xi4", {0}, "nothing is reduced in types that are storage only"},
    {"graph.cast", "to = ui4", {0}, "nothing is reduced in types that are storage only"},
    {"graph.gather", "xf8", {0}, "nothing is reduced in types that are storage only"},
    {"graph.bitcast", "xui8 {to = i8", {0}, "a cast says it better, and is what wraps"},
    {"graph.cast", "xf32 {to = f16", {0}, "the parts of an f32 sum may overflow f16"},
    {"graph.cast", "xf32 {to = i32", {0}, "generated code has no integer for infinity"},
};

bool isUnlisted(const OpCase &c, const LinearSet &set) {
  for (const Unlisted &u : unlisted)
    if (c.op == u.op && set.operands == u.operands &&
        c.name().find(u.contains) != std::string::npos)
      return true;
  return false;
}

class Linearity {
public:
  Linearity(const OpCase &opCase, Program &program)
      : opCase(opCase), program(program), random(7) {}

  /// Whether one random split commutes.
  bool trial(const LinearSet &set) {
    // Two or three: a sign that appears once per rank shows on an even number only.
    auto ranks = static_cast<int64_t>(2 + random() % 2);
    std::vector<std::vector<HostTensor>> operands(static_cast<size_t>(ranks));
    std::vector<HostTensor> whole;
    bool wide = random() % 4 == 0;
    for (unsigned i = 0; i < program.op->getNumOperands(); ++i) {
      auto type = cast<RankedTensorType>(program.op->getOperand(i).getType());
      DType dtype = *dtypeOf(type.getElementType());
      whole.push_back(draw(dtype, type.getShape().vec(), opCase.dataOf(i), random));
      if (wide && !isFloat(dtype) && dtype != DType::Bool &&
          opCase.dataOf(i).kind == Data::Any)
        widen(whole.back());
      bool inSet = llvm::is_contained(set.operands, static_cast<int32_t>(i));
      auto parts = inSet ? decompose(whole.back(), set.kind, ranks, random)
                         : std::vector<HostTensor>(operands.size(), whole.back());
      for (int64_t r = 0; r < ranks; ++r)
        operands[r].push_back(std::move(parts[r]));
    }
    auto expected = run(whole);
    REQUIRE(expected);
    std::vector<HostTensor> totals = *expected;
    for (HostTensor &total : totals)
      fillNeutral(total, set.kind);
    for (const auto &part : operands) {
      auto results = run(part);
      if (!results)
        return false; // an index outside its dim
      for (size_t i = 0; i < totals.size(); ++i)
        reduceInto(totals[i], (*results)[i], set.kind);
    }
    for (size_t i = 0; i < totals.size(); ++i)
      if (!compareResults(totals[i], (*expected)[i], coarsestType(program.op)))
        return false;
    return true;
  }

private:
  /// Integers over the whole range of the type: sums of them wrap.
  void widen(HostTensor &tensor) {
    std::vector<int64_t> values(static_cast<size_t>(tensor.size()));
    for (int64_t &v : values)
      v = static_cast<int64_t>(random());
    tensor = reference::tensor<int64_t>(tensor.type, tensor.shape, values);
  }

  Expected<std::vector<HostTensor>> run(const std::vector<HostTensor> &operands) {
    std::vector<const HostTensor *> pointers;
    for (const HostTensor &operand : operands)
      pointers.push_back(&operand);
    return cast<EvaluateOpInterface>(program.op).evaluate(pointers);
  }

  const OpCase &opCase;
  Program &program;
  Random random;
};

std::string text(const OpCase &c, const LinearSet &set) {
  std::string result = c.name() + ": " + std::string(name(set.kind)) + " {";
  for (int32_t o : set.operands)
    result += (result.back() == '{' ? "" : ", ") + std::to_string(o);
  return result + "}";
}

/// Partial booleans are only any and all: max and min.
bool isMeaningful(Operation *op, const LinearSet &set) {
  auto isBool = [](Value v) { return getElementTypeOrSelf(v.getType()).isInteger(1); };
  if (set.kind == ReduceKind::Max || set.kind == ReduceKind::Min)
    return true;
  for (int32_t o : set.operands)
    if (isBool(op->getOperand(static_cast<unsigned>(o))))
      return false;
  return llvm::none_of(op->getResults(), isBool);
}
} // namespace

TEST_CASE("every listed linear set holds and every other one breaks") {
  MLIRContext context;
  loadDialects(context);
  auto cases = allCases(context);
  REQUIRE(cases);
  size_t held = 0, broken = 0, named = 0;
  for (const OpCase &c : *cases) {
    auto program = buildProgram(context, c);
    INFO((program ? "" : program.error().message));
    REQUIRE(program);
    Linearity linearity(c, *program);
    uint32_t count = program->op->getNumOperands();
    REQUIRE(count <= 10); // all sets of them are tried
    for (ReduceKind kind :
         {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::Prod})
      for (uint32_t bits = 1; bits < (1u << count); ++bits) {
        LinearSet set{kind, {}};
        for (uint32_t o = 0; o < count; ++o)
          if (bits >> o & 1)
            set.operands.push_back(static_cast<int32_t>(o));
        bool listed = llvm::is_contained(program->rule.linear, set);
        if (!isMeaningful(program->op, set)) {
          CHECK_FALSE(listed);
          continue;
        }
        bool holds = true;
        for (int t = 0; holds && t < (listed ? holdTrials : breakTrials); ++t)
          holds = linearity.trial(set);
        if (!listed && holds && isUnlisted(c, set)) {
          ++named;
          continue;
        }
        if (holds != listed)
          FAIL_CHECK(text(c, set) << (listed ? " is listed but does not hold"
                                             : " is not listed but holds"));
        ++(listed ? held : broken);
      }
  }
  std::cout << "linearity: " << held << " sets hold, " << broken << " break, " << named
            << " hold and are named as unlisted\n";
}
