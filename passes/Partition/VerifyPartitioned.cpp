//===- VerifyPartitioned.cpp - Gate of level L3 ---------------------------===//
#include "passes/Partition/Passes.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Graph/Graph.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace partita {
#define GEN_PASS_DEF_VERIFYPARTITIONEDPASS
#include "passes/Partition/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;

namespace {
struct VerifyPartitionedPass
    : partita::impl::VerifyPartitionedPassBase<VerifyPartitionedPass> {
  void runOnOperation() override {
    if (auto mesh = dist::meshOf(getOperation()); !mesh) {
      getOperation().emitOpError("is not partitioned: ") << mesh.error().message;
      return signalPassFailure();
    }
    WalkResult result = getOperation().walk([](Operation *op) {
      if (op->hasAttr(dist::strategyAttr))
        return op->emitOpError("still has a dist.strategy after partitioning"),
               WalkResult::interrupt();
      if (isa<ModuleOp, func::FuncOp, func::ReturnOp>(op) ||
          isa_and_nonnull<graph::GraphDialect, comm::CommDialect>(op->getDialect()))
        return WalkResult::advance();
      return op->emitOpError("does not belong in a partitioned program"),
             WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
