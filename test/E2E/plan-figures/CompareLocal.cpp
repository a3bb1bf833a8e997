//===- CompareLocal.cpp - One rank's program, as expected and as it is ----===//
#include "CompareLocal.h"

#include "dialects/Dist/ProgramFlow.h"
#include "passes/Codegen/Common/Fusion.h"

#include <cstdio>

using namespace mlir;
using namespace partita;
using namespace partita::kernels;

/// The function, then those that it runs, in the order of what runs them.
static void collect(func::FuncOp function, std::vector<func::FuncOp> &all) {
  all.push_back(function);
  for (Operation &op : function.front())
    if (auto call = dyn_cast<CallingOpInterface>(op))
      for (Operation *callee : call.getCallees())
        collect(cast<func::FuncOp>(callee), all);
}

namespace {
/// Two programs, op by op; what only makes a tensor may stand anywhere.
class Comparison {
public:
  Comparison(const search::LocalFunction &expected, const codegen::Described &is)
      : expected(expected.program), is(is), values(is.values.size(), -1) {
    for (size_t v = 0; v < values.size() && isArgument(is.program, v); ++v)
      values[v] = static_cast<int32_t>(v);
  }

  int64_t run(bool print) {
    std::vector<int32_t> mine = opsOf(expected), its = opsOf(is.program);
    int64_t unlike = 0;
    for (size_t i = 0; i < std::max(mine.size(), its.size()); ++i) {
      std::string why = i >= mine.size()  ? "is not expected"
                        : i >= its.size() ? "is missing"
                                          : compare(mine[i], its[i]);
      if (why.empty())
        continue;
      if (print && ++unlike <= 3)
        fprintf(
            stderr, "op %zu of %zu (%zu expected), %s: %s\n", i, its.size(), mine.size(),
            i < its.size() ? dist::nodeName(is.ops[static_cast<size_t>(its[i])]).c_str()
                           : "none",
            why.c_str());
      else
        unlike += !print;
    }
    return unlike;
  }

private:
  static bool isArgument(const LocalProgram &program, size_t value) {
    return program.values[value].producer < 0;
  }
  static std::vector<int32_t> opsOf(const LocalProgram &program) {
    std::vector<int32_t> ops;
    for (size_t o = 0; o < program.ops.size(); ++o)
      if (!program.ops[o].operands.empty() || program.ops[o].results.empty())
        ops.push_back(static_cast<int32_t>(o));
    return ops;
  }
  static bool isSource(const LocalProgram &program, int32_t value) {
    int32_t producer = program.value(value).producer;
    return producer >= 0 && program.op(producer).operands.empty();
  }

  bool isSame(int32_t mine, int32_t its) {
    const LocalValue &a = expected.value(mine), &b = is.program.value(its);
    int32_t &known = values[static_cast<size_t>(its)];
    if (known < 0 && isSource(expected, mine) && isSource(is.program, its))
      known = mine;
    return known == mine && a.shape == b.shape && a.type == b.type &&
           a.uniform == b.uniform;
  }

  std::string compare(int32_t mine, int32_t its) {
    const LocalOp &a = expected.op(mine), &b = is.program.op(its);
    const OpFacts &f = a.facts, &g = b.facts;
    for (size_t r = 0; r < std::min(a.results.size(), b.results.size()); ++r)
      values[static_cast<size_t>(b.results[r])] = a.results[r];
    if (f.kind != g.kind)
      return "is of kind " + std::to_string(int(g.kind)) + ", not " +
             std::to_string(int(f.kind));
    if (a.operands.size() != b.operands.size() || a.results.size() != b.results.size())
      return "has other operands or results";
    for (size_t i = 0; i < a.operands.size(); ++i)
      if (!isSame(a.operands[i], b.operands[i]))
        return "reads something else as operand " + std::to_string(i);
    for (size_t i = 0; i < a.results.size(); ++i)
      if (!isSame(a.results[i], b.results[i]))
        return "has another result";
    if (f.isFusable() && a.phase != b.phase)
      return "is of phase " + std::string(name(b.phase)) + ", not " +
             std::string(name(a.phase));
    if (std::abs(f.steps - g.steps) > 1e-9 * f.steps)
      return "takes " + std::to_string(g.steps) + " steps, not " +
             std::to_string(f.steps);
    if (f.rowDims != g.rowDims || f.post != g.post || f.alpha != g.alpha ||
        f.beta != g.beta || f.firstByPlace != g.firstByPlace ||
        f.reducesRow != g.reducesRow || f.keepsDims != g.keepsDims ||
        f.takesPostOps != g.takesPostOps || f.requantizes != g.requantizes ||
        f.mayChangeInPlace != g.mayChangeInPlace || f.role != g.role ||
        f.numbers != g.numbers || f.imageOperands != g.imageOperands ||
        f.givesImage != g.givesImage)
      return "has other facts";
    return "";
  }

  const LocalProgram &expected;
  const codegen::Described &is;
  std::vector<int32_t> values; ///< expected, by those there are
};
} // namespace

int64_t partita::opsUnlike(const std::vector<search::LocalFunction> &expected,
                           func::FuncOp function, bool print) {
  std::vector<func::FuncOp> functions;
  collect(function, functions);
  if (functions.size() != expected.size()) {
    if (print)
      fprintf(stderr, "%zu functions, not %zu\n", functions.size(), expected.size());
    return -1;
  }
  int64_t unlike = 0;
  for (size_t f = 0; f < functions.size(); ++f)
    unlike += Comparison(expected[f], codegen::describe(functions[f])).run(print);
  return unlike;
}
