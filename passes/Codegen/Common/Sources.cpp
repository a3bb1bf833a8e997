//===- Sources.cpp - Weights and constants --------------------------------===//
#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Graph.h"
#include "passes/Codegen/Common/Models.h"
#include "passes/Codegen/Common/TaskFormer.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

namespace {
struct WeightModel : TaskOpInterface::ExternalModel<WeightModel, graph::WeightOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    Value value = op->getResult(0);
    Layout layout = layoutFrom(dist::sourceLayout(op), shapeOf(value));
    TensorSpec spec{Role::Weight, codegen::dtypeOf(value),
                    cast<graph::WeightOp>(op).getName().str(), layout};
    former.setTensor(value, former.weight(spec, layout.localElements(), nullptr));
    return success();
  }
};

/// Uniform constants never come here; others are weights whose bytes are in the program.
struct ConstantModel : TaskOpInterface::ExternalModel<ConstantModel, graph::ConstantOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    if (!isa<DenseElementsAttr>(cast<graph::ConstantOp>(op).getValue()))
      return op->emitError("has a value that is not in the program");
    Value value = op->getResult(0);
    Layout layout = Layout::replicated(shapeOf(value));
    TensorSpec spec{Role::Weight, codegen::dtypeOf(value), former.constantName(op),
                    layout};
    former.setTensor(value, former.weight(spec, layout.localElements(), op));
    return success();
  }
};
} // namespace

void codegen::attachSourceModels(MLIRContext &context) {
  graph::WeightOp::attachInterface<WeightModel>(context);
  graph::ConstantOp::attachInterface<ConstantModel>(context);
}
