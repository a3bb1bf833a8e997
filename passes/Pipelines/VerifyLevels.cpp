//===- VerifyLevels.cpp - Gates of levels L0 and L2 -----------------------===//
#include "passes/Pipelines/Passes.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Graph.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace partita {
#define GEN_PASS_DEF_VERIFYIMPORTEDPASS
#define GEN_PASS_DEF_VERIFYANNOTATEDPASS
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
    auto check = [](Operation *op) -> LogicalResult {
      for (NamedAttribute attr : op->getDiscardableAttrs())
        if (attr.getName().getValue().starts_with("dist."))
          return op->emitOpError("carries ")
                 << attr.getName() << " in an imported program";
      if (isa<ModuleOp, func::FuncOp, func::ReturnOp>(op) ||
          isa_and_nonnull<graph::GraphDialect>(op->getDialect()))
        return success();
      return op->emitOpError("does not belong in an imported program");
    };
    if (failed(walkAll(getOperation(), check)))
      signalPassFailure();
  }
};

struct VerifyAnnotatedPass : partita::impl::VerifyAnnotatedPassBase<VerifyAnnotatedPass> {
  void runOnOperation() override {
    if (auto mesh = dist::meshOf(getOperation()); !mesh) {
      getOperation().emitOpError("is not annotated: ") << mesh.error().message;
      return signalPassFailure();
    }
    auto check = [](Operation *op) -> LogicalResult {
      if (isa<ShardingRuleOpInterface>(op) && !op->hasAttr(dist::strategyAttr))
        return op->emitOpError("has no dist.strategy");
      if (auto function = dyn_cast<func::FuncOp>(op))
        return checkEnds(function);
      return success();
    };
    if (failed(walkAll(getOperation(), check)))
      signalPassFailure();
  }

private:
  static LogicalResult checkEnds(func::FuncOp function) {
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (!function.getArgAttr(i, dist::layoutAttr))
        return function.emitOpError("argument ") << i << " has no dist.layout";
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      if (!function.getResultAttr(i, dist::layoutAttr))
        return function.emitOpError("result ") << i << " has no dist.layout";
    return success();
  }
};
} // namespace
