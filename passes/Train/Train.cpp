//===- Train.cpp - A model becomes a training step ------------------------===//
#include "passes/Train/Passes.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Graph/DrawingNodes.h"
#include "dialects/Graph/Formula.h"
#include "dialects/Interfaces/ValueNames.h"
#include "passes/Train/BySpec.h"
#include "passes/Train/Step.h"

namespace partita {
#define GEN_PASS_DEF_TRAINPASS
#include "passes/Train/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;
using namespace partita::graph;
using namespace partita::train;

namespace {
struct TrainPass : partita::impl::TrainPassBase<TrainPass> {
  using TrainPassBase::TrainPassBase;
  explicit TrainPass(Spec spec) : given(std::move(spec)) {}

  void runOnOperation() override {
    auto derive = [&](func::FuncOp main, Spec &read) { return deriveStep(main, read); };
    if (failed(
            bySpec(getOperation(), given, spec, ": there is nothing to derive", derive)))
      signalPassFailure();
  }

private:
  Expected<void> deriveStep(func::FuncOp main, Spec &read) {
    auto parts = getOperation()->getAttrOfType<IntegerAttr>(accumulationAttr);
    if (parts && read.choosesAccumulation)
      read.accumulation = parts.getInt();
    for (const char *attribute : {accumulationAttr, drawingNodesAttr})
      getOperation()->removeAttr(attribute);
    StepBuilder step(main, read);
    if (auto ok = step.run(); !ok)
      return ok;
    expandLogSoftmax(getOperation());
    for (const std::string &name : step.unused)
      main->emitRemark("parameter '")
          << name << "' does not train: the loss does not depend on it";
    return {};
  }

  std::optional<Spec> given; ///< absent: the option names a file
};
} // namespace

std::unique_ptr<Pass> partita::createTrainPass(Spec spec) {
  return std::make_unique<TrainPass>(std::move(spec));
}
