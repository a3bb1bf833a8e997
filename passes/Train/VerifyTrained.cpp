//===- VerifyTrained.cpp - Gate of level L1 -------------------------------===//
#include "passes/Train/Passes.h"

#include "dialects/Dist/Dist.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseSet.h"

namespace partita {
#define GEN_PASS_DEF_VERIFYTRAINEDPASS
#include "passes/Train/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;

static LogicalResult checkStates(func::FuncOp main) {
  bool sawState = false, updates = false;
  llvm::DenseSet<StringAttr> taken;
  for (unsigned a = 0; a < main.getNumArguments(); ++a)
    if (auto state = dist::argumentState(main, a))
      taken.insert(state.getName());
  for (unsigned i = 0; i < main.getNumResults(); ++i) {
    auto state = dist::resultState(main, i);
    if (sawState && !state)
      return main.emitError("result ") << i << " is no state and stands behind one";
    sawState |= static_cast<bool>(state);
    if (!state)
      continue;
    Value value = main.front().getTerminator()->getOperand(i);
    Operation *from = value.getDefiningOp();
    updates |= from && dist::phaseOf(from) == Phase::Update;
    if (!taken.contains(state.getName()))
      return main.emitError("state '")
             << state.getName().getValue() << "' is given by the step and not taken";
  }
  if (!updates)
    return main.emitError("no state is updated: the program does not train");
  return success();
}

namespace {
struct VerifyTrainedPass : partita::impl::VerifyTrainedPassBase<VerifyTrainedPass> {
  void runOnOperation() override {
    markAllAnalysesPreserved(); // nothing changes: the verifier need not run again
    auto main = getOperation().lookupSymbol<func::FuncOp>("main");
    if (!main) {
      getOperation().emitError("the module has no function 'main'");
      return signalPassFailure();
    }
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && (failed(dist::verifyPhases(function)) ||
                                     failed(dist::verifyRecompute(function))))
        return signalPassFailure();
    if (failed(checkStates(main)))
      signalPassFailure();
  }
};
} // namespace
