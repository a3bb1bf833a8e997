//===- ExpandGradients.cpp - graph.gradient becomes ops -------------------===//
#include "passes/Train/Passes.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Interfaces/ValueNames.h"
#include "passes/Train/Differentiate.h"

#include "mlir/IR/IRMapping.h"

namespace partita {
#define GEN_PASS_DEF_EXPANDGRADIENTSPASS
#include "passes/Train/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;
using namespace partita::graph;
using namespace partita::train;

/// Derivatives are ops of the program as any other: a step that trains it has its own
/// phases.
static void dropPhases(Block &body) {
  for (Operation &op : body) {
    op.removeAttr(phaseAttr);
    if (auto call = dyn_cast<CallingOpInterface>(op))
      for (Operation *callee : call.getCallees())
        dropPhases(cast<func::FuncOp>(callee).front());
  }
}

/// Makes the function give, in place of its result, the derivatives of the sum of it in
/// its first `count` arguments: zeros where it does not depend on one.
static Expected<void> giveDerivatives(func::FuncOp function, size_t count) {
  Block &body = function.front();
  Operation *end = body.getTerminator();
  OpBuilder builder(end);
  Formula f(builder, function.getLoc());
  Value given = end->getOperand(0);
  Values wanted(body.args_begin(), body.args_begin() + static_cast<ptrdiff_t>(count));
  for (Value value : wanted)
    if (!isReal(value))
      return makeError("it differentiates in a tensor of integers");
  if (!isReal(given))
    return makeError("it differentiates a tensor of integers");
  if (dist::ManualOp manual = dist::findManual(body.getParentOp()))
    return makeError("it differentiates through '" + dist::nodeName(manual) +
                     "', which is written per rank: only a training step does");
  Value one = f.broadcast(f.like(given, 1), shapeOf(given));
  Values results;
  auto made = differentiate(body, Seed{given, one}, wanted);
  if (!made)
    return tl::unexpected(made.error());
  for (auto [value, derivative] : llvm::zip_equal(wanted, *made))
    results.push_back(derivative ? derivative : f.zerosLike(value));
  if (f.failed())
    return tl::unexpected(f.results({}).error());
  end->setOperands(results);
  dropPhases(body);
  return {};
}

/// The function's ops, and what they give, take the place of the op.
static void inlineAt(GradientOp op, func::FuncOp function) {
  IRMapping values;
  for (auto [argument, operand] :
       llvm::zip_equal(function.getArguments(), op.getInputs()))
    values.map(argument, operand);
  OpBuilder builder(op);
  for (Operation &inner : function.front().without_terminator())
    builder.clone(inner, values);
  for (auto [result, given] : llvm::zip_equal(
           op.getResults(), function.front().getTerminator()->getOperands())) {
    Value value = values.lookupOrDefault(given);
    for (StringRef name : valueNames(result))
      addValueName(value, name);
    result.replaceAllUsesWith(value);
  }
  op.erase();
}

namespace {
struct ExpandGradientsPass : partita::impl::ExpandGradientsPassBase<ExpandGradientsPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    GradientOp op = innermost(module);
    if (!op)
      return markAllAnalysesPreserved(); // the verifier need not run again
    for (; op; op = innermost(module)) {
      auto function = module.lookupSymbol<func::FuncOp>(op.getOf());
      std::string node = dist::nodeName(op);
      // Another op may differentiate the same function in other arguments.
      auto own = cast<func::FuncOp>(function->clone());
      SymbolTable(module).insert(own);
      if (auto ok = giveDerivatives(own, op.getNumResults()); !ok) {
        // The sentence names the node.
        emitError(UnknownLoc::get(&getContext()), "node '")
            << node << "' (Gradient): " << ok.error().message;
        return signalPassFailure();
      }
      inlineAt(op, own);
      own.erase();
      if (SymbolTable::symbolKnownUseEmpty(function, module))
        function.erase();
    }
  }

  /// One whose function has no other in it.
  static GradientOp innermost(ModuleOp module) {
    GradientOp found;
    module.walk([&](GradientOp op) {
      auto function = module.lookupSymbol<func::FuncOp>(op.getOf());
      bool hasOther = function.walk([](GradientOp) { return WalkResult::interrupt(); })
                          .wasInterrupted();
      if (!hasOther)
        found = op;
      return hasOther ? WalkResult::advance() : WalkResult::interrupt();
    });
    return found;
  }
};
} // namespace
