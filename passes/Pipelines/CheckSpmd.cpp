//===- CheckSpmd.cpp - Partitioned equals original, on virtual ranks ------===//
#include "passes/Pipelines/Passes.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Graph.h"
#include "passes/Pipelines/Pipelines.h"
#include "passes/Reference/Evaluate.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/xxhash.h"

namespace partita {
#define GEN_PASS_DEF_CHECKSPMDPASS
#include "passes/Pipelines/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;

namespace {
struct CheckSpmdPass : partita::impl::CheckSpmdPassBase<CheckSpmdPass> {
  using CheckSpmdPassBase::CheckSpmdPassBase;

  void runOnOperation() override {
    OwningOpRef<ModuleOp> local = getOperation().clone();
    OpPassManager pipeline(ModuleOp::getOperationName());
    buildRanksPipelineFor(pipeline, getOperation());
    // A pass may only run nested pipelines on what it holds: use a manager of its own.
    PassManager manager(&getContext());
    static_cast<OpPassManager &>(manager) = pipeline;
    if (failed(manager.run(*local)))
      return signalPassFailure();
    for (auto function : getOperation().getOps<func::FuncOp>())
      // One that an op runs is checked with that op: its values may be partial sums.
      if (!function.isExternal() && !isRun(getOperation(), function) &&
          failed(check(function, local->lookupSymbol<func::FuncOp>(function.getName()))))
        return signalPassFailure();
  }

private:
  LogicalResult check(func::FuncOp global, func::FuncOp local) {
    Tensors inputs;
    for (auto [i, type] : llvm::enumerate(global.getArgumentTypes()))
      inputs.push_back(random(type, seed + i));
    // Weights by name, so that both programs see the same.
    llvm::StringMap<Type> weightTypes;
    auto note = [&](graph::WeightOp op) {
      weightTypes[op.getName()] = op.getResult().getType();
    };
    // Of functions that it runs too; its own count where names are equal.
    getOperation().walk(note);
    global.walk(note);
    WeightLoader weights = [&](StringRef name) -> Expected<HostTensor> {
      return random(weightTypes.lookup(name), seed + llvm::xxh3_64bits(name) % 1000);
    };
    auto expected = evaluate(global, inputs, weights);
    if (!expected)
      return global.emitError("the original fails: ") << expected.error().message;
    auto actual = evaluatePartitioned(local, inputs, weights);
    if (!actual)
      return global.emitError("the partitioned program fails: ")
             << actual.error().message;
    for (size_t i = 0; i < expected->size(); ++i)
      if (auto ok = compareTensors((*actual)[i], (*expected)[i], rtol, atol); !ok)
        return global.emitError("result ")
               << i << " of the partitioned program differs: " << ok.error().message;
    return success();
  }

  static HostTensor random(Type type, uint64_t seed) {
    auto tensor = cast<RankedTensorType>(type);
    return randomTensor(*dtypeOf(tensor.getElementType()), tensor.getShape().vec(), seed);
  }
};
} // namespace
