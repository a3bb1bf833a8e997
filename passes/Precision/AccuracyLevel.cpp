//===- AccuracyLevel.cpp - How exact products of few bits are -------------===//
#include "passes/Precision/Passes.h"

#include "dialects/Graph/Graph.h"

#include "mlir/IR/BuiltinOps.h"

namespace partita {
#define GEN_PASS_DEF_ACCURACYLEVELPASS
#include "passes/Precision/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;

namespace {
struct AccuracyLevelPass : partita::impl::AccuracyLevelPassBase<AccuracyLevelPass> {
  using AccuracyLevelPassBase::AccuracyLevelPassBase;

  void runOnOperation() override {
    bool isFound = false;
    getOperation()->walk([&](graph::ContractBlocksOp product) {
      isFound = true;
      product.setAccuracyLevel(level);
    });
    if (isFound)
      return;
    getOperation()->emitError("--accuracy-level ")
        << level.getValue()
        << ": the model has no product whose weight has 4 bits in scaled blocks";
    signalPassFailure();
  }
};
} // namespace
