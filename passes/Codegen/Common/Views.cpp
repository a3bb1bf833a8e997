//===- Views.cpp - Ops whose result is a view -----------------------------===//
#include "dialects/Graph/Graph.h"
#include "passes/Codegen/Common/Models.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

namespace {
/// Asks the facts of the op.
template <typename Op>
struct ViewModel : ViewOpInterface::ExternalModel<ViewModel<Op>, Op> {
  std::optional<View> resultView(Operation *op, const View &operand) const {
    return kernels::viewOfResult(kernelFactsOf(op), operand, shapeOf(op->getResult(0)));
  }
  std::optional<View> operandView(Operation *op, const View &result) const {
    return kernels::viewOfOperand(kernelFactsOf(op), result, shapeOf(op->getOperand(0)));
  }
};
} // namespace

void codegen::attachViewModels(MLIRContext &context) {
  graph::ReshapeOp::attachInterface<ViewModel<graph::ReshapeOp>>(context);
  graph::TransposeOp::attachInterface<ViewModel<graph::TransposeOp>>(context);
  graph::BroadcastOp::attachInterface<ViewModel<graph::BroadcastOp>>(context);
  graph::SliceOp::attachInterface<ViewModel<graph::SliceOp>>(context);
}
