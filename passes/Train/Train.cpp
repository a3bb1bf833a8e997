//===- Train.cpp - A model becomes a training step ------------------------===//
#include "passes/Train/Passes.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Graph/DrawingNodes.h"
#include "dialects/Graph/Formula.h"
#include "dialects/Interfaces/ValueNames.h"
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
    auto main = getOperation().lookupSymbol<func::FuncOp>("main");
    auto read = given ? Expected<Spec>(*given) : readSpec(spec);
    auto fail = [&](const std::string &message) {
      (main ? main.getOperation() : getOperation().getOperation())->emitError(message);
      signalPassFailure();
    };
    if (!main)
      return fail("the module has no function 'main'");
    if (!read)
      return fail(read.error().message);
    if (read->trainingInfo)
      return fail("\"training_info\" names a step that the model's file has: there is "
                  "nothing to derive");
    auto parts = getOperation()->getAttrOfType<IntegerAttr>(accumulationAttr);
    if (parts && read->choosesAccumulation)
      read->accumulation = parts.getInt();
    for (const char *attribute : {accumulationAttr, drawingNodesAttr})
      getOperation()->removeAttr(attribute);
    StepBuilder step(main, *read);
    if (auto ok = step.run(); !ok)
      return fail(ok.error().message);
    expandLogSoftmax(getOperation());
    for (const std::string &name : step.unused)
      main->emitRemark("parameter '")
          << name << "' does not train: the loss does not depend on it";
  }

  std::optional<Spec> given; ///< absent: the option names a file
};
} // namespace

std::unique_ptr<Pass> partita::createTrainPass(Spec spec) {
  return std::make_unique<TrainPass>(std::move(spec));
}
