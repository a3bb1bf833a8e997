//===- Views.cpp - Ops whose result is a view -----------------------------===//
#include "dialects/Graph/Graph.h"
#include "passes/Codegen/Common/Models.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

static Shape vec(ArrayRef<int64_t> values) { return {values.begin(), values.end()}; }

namespace {
struct ReshapeModel : ViewOpInterface::ExternalModel<ReshapeModel, graph::ReshapeOp> {
  std::optional<View> resultView(Operation *op, const View &operand) const {
    return operand.reshaped(shapeOf(op->getResult(0)));
  }
  std::optional<View> operandView(Operation *op, const View &result) const {
    return result.reshaped(shapeOf(op->getOperand(0)));
  }
};

struct TransposeModel
    : ViewOpInterface::ExternalModel<TransposeModel, graph::TransposeOp> {
  std::optional<View> resultView(Operation *op, const View &operand) const {
    return operand.transposed(vec(cast<graph::TransposeOp>(op).getPermutation()));
  }
  std::optional<View> operandView(Operation *op, const View &result) const {
    ArrayRef<int64_t> permutation = cast<graph::TransposeOp>(op).getPermutation();
    Shape inverse(permutation.size());
    for (auto [i, d] : llvm::enumerate(permutation))
      inverse[static_cast<size_t>(d)] = static_cast<int64_t>(i);
    return result.transposed(inverse);
  }
};

struct BroadcastModel
    : ViewOpInterface::ExternalModel<BroadcastModel, graph::BroadcastOp> {
  std::optional<View> resultView(Operation *op, const View &operand) const {
    return operand.broadcast(shapeOf(op->getResult(0)));
  }
};

struct SliceModel : ViewOpInterface::ExternalModel<SliceModel, graph::SliceOp> {
  std::optional<View> resultView(Operation *op, const View &operand) const {
    auto slice = cast<graph::SliceOp>(op);
    return operand.sliced(shapeOf(op->getResult(0)), vec(slice.getStarts()),
                          vec(slice.getSteps()));
  }
};
} // namespace

void codegen::attachViewModels(MLIRContext &context) {
  graph::ReshapeOp::attachInterface<ReshapeModel>(context);
  graph::TransposeOp::attachInterface<TransposeModel>(context);
  graph::BroadcastOp::attachInterface<BroadcastModel>(context);
  graph::SliceOp::attachInterface<SliceModel>(context);
}
