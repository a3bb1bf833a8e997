//===- VerifyImported.cpp - Gate of level L0 ------------------------------===//
#include "passes/Pipelines/Passes.h"

#include "dialects/Dist/Manual.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace partita {
#define GEN_PASS_DEF_VERIFYIMPORTEDPASS
#include "passes/Pipelines/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;

namespace {
/// Walks a module and stops at the first op that `check` refuses.
LogicalResult walkAll(ModuleOp module,
                      llvm::function_ref<LogicalResult(Operation *)> check) {
  WalkResult result = module.walk([&](Operation *op) {
    return failed(check(op)) ? WalkResult::interrupt() : WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

struct VerifyImportedPass : partita::impl::VerifyImportedPassBase<VerifyImportedPass> {
  void runOnOperation() override {
    markAllAnalysesPreserved(); // nothing changes: the verifier need not run again
    auto check = [](Operation *op) -> LogicalResult {
      for (NamedAttribute attr : op->getDiscardableAttrs())
        if (attr.getName().getValue().starts_with("dist.") &&
            // A training step passes this gate, too.
            attr.getName() != phaseAttr && attr.getName() != stageAttr &&
            attr.getName() != recomputeAttr)
          return op->emitOpError("carries ")
                 << attr.getName() << " in an imported program";
      if (isa<graph::GradientOp>(op))
        return op->emitOpError("runs nothing: --partita-expand-gradients replaces it");
      if (isa<ModuleOp, func::FuncOp, func::ReturnOp, dist::ManualOp>(op) ||
          isa_and_nonnull<graph::GraphDialect>(op->getDialect()))
        return success();
      return op->emitOpError("does not belong in an imported program");
    };
    if (failed(walkAll(getOperation(), check)) ||
        failed(dist::verifyManual(getOperation())))
      signalPassFailure();
  }
};
} // namespace
