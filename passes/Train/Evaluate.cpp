//===- Evaluate.cpp - A model gives its loss ------------------------------===//
#include "passes/Train/Passes.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Graph/DrawingNodes.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Base/Bundle/Evaluation.h"
#include "passes/Train/BySpec.h"
#include "passes/Train/Loss.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace partita {
#define GEN_PASS_DEF_EVALUATEPASS
#include "passes/Train/Passes.h.inc"
} // namespace partita

using namespace mlir;
using namespace partita;
using namespace partita::graph;
using namespace partita::train;

/// Makes the loss, and the number of what counts in it, the only results.
static void returnLoss(func::FuncOp main, const BuiltLoss &built) {
  MLIRContext *context = main.getContext();
  SmallVector<Value> values{built.value};
  SmallVector<StringRef> names{"loss"};
  if (built.counted) {
    values.push_back(built.counted);
    names.push_back(countedOutput);
  }
  SmallVector<Attribute> attrs;
  for (StringRef name : names)
    attrs.push_back(DictionaryAttr::get(
        context, NamedAttribute(StringAttr::get(context, "graph.name"),
                                StringAttr::get(context, name))));
  main.front().getTerminator()->setOperands(values);
  main.setType(
      FunctionType::get(context, main.getArgumentTypes(), ValueRange(values).getTypes()));
  main.setResAttrsAttr(ArrayAttr::get(context, attrs));
}

/// Erases states that no op reads, as the number of steps.
static void eraseUnread(func::FuncOp main) {
  llvm::BitVector unread(main.getNumArguments());
  for (unsigned i = 0; i < main.getNumArguments(); ++i)
    if (dist::argumentState(main, i) && main.getArgument(i).use_empty())
      unread.set(i);
  if (failed(main.eraseArguments(unread)))
    llvm_unreachable("an argument without uses can be erased");
}

namespace {
struct EvaluatePass : partita::impl::EvaluatePassBase<EvaluatePass> {
  using EvaluatePassBase::EvaluatePassBase;
  explicit EvaluatePass(Spec spec) : given(std::move(spec)) {}

  void runOnOperation() override {
    auto derive = [&](func::FuncOp main, const Spec &read) {
      return evaluateLoss(main, read);
    };
    if (failed(bySpec(getOperation(), given, spec, ", whose loss is not known", derive)))
      signalPassFailure();
  }

private:
  Expected<void> evaluateLoss(func::FuncOp main, const Spec &read) {
    for (const char *attribute : {accumulationAttr, drawingNodesAttr})
      getOperation()->removeAttr(attribute);
    auto built = buildEvaluatedLoss(main, read.loss);
    if (!built)
      return tl::unexpected(built.error());
    returnLoss(main, *built);
    expandLogSoftmax(getOperation());
    eraseUnread(main);
    for (unsigned i = 0; i < main.getNumArguments(); ++i)
      if (auto state = dist::argumentState(main, i))
        main.setArgAttr(i, parameterAttr, state.getName());
      else if (!shapeOf(main.getArgument(i)).empty())
        main.setArgAttr(i, batchAttr, UnitAttr::get(&getContext()));
    return {};
  }

  std::optional<Spec> given; ///< absent: the option names a file
};
} // namespace

std::unique_ptr<Pass> partita::createEvaluatePass(Spec spec) {
  return std::make_unique<EvaluatePass>(std::move(spec));
}
