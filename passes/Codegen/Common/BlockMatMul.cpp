//===- BlockMatMul.cpp - Products with weights of 4 bits as calls ---------===//
#include "dialects/Graph/Graph.h"
#include "passes/Codegen/Common/Models.h"
#include "passes/Codegen/Common/TaskFormer.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

/// A matrix whose dims are strides of at least 0.
static bool isMatrix(const View &view) {
  return llvm::all_of(view.dims, [](const Parts &parts) {
    return parts.empty() || (parts.size() == 1 && parts[0].stride >= 0);
  });
}

static int64_t strideOf(const Parts &parts) {
  return parts.empty() ? 0 : parts[0].stride;
}

/// The rows of the input as one dim, each contiguous; a copy where they are not so.
static Tensor rowsOf(Value input, TaskFormer &former) {
  Shape shape = shapeOf(input);
  const Shape matrix{elementCount(shape) / shape.back(), shape.back()};
  Tensor tensor = former.tensorOf(input);
  auto view = tensor.view.reshaped(matrix);
  if (!view || !isMatrix(*view) || strideOf(view->dims[1]) != (matrix[1] > 1 ? 1 : 0) ||
      !former.isAligned(tensor)) {
    tensor = former.denseOf(input);
    view = View::dense(matrix);
    view->offset = tensor.view.offset;
  }
  tensor.view = *view;
  return tensor;
}

/// Scales or zero points [blocks, columns] as they lie, transposed or not.
static Tensor perBlock(Value value, TaskFormer &former) {
  Tensor tensor = former.tensorOf(value);
  return isMatrix(tensor.view) && former.isAligned(tensor) ? tensor
                                                           : former.denseOf(value);
}

namespace {
struct ContractBlocksModel
    : TaskOpInterface::ExternalModel<ContractBlocksModel, graph::ContractBlocksOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    auto product = cast<graph::ContractBlocksOp>(op);
    Shape weight = shapeOf(product.getWeight());
    if (elementCount(shapeOf(product.getResult())) == 0) {
      former.setTensor(product.getResult(), former.allocate(product.getResult()));
      return success();
    }
    if (elementCount(weight) == 0)
      return former.reduceNothing(op);
    Tensor target = former.allocate(product.getResult());
    former.setTensor(product.getResult(), target);
    Tensor rows = rowsOf(product.getInput(), former);
    Tensor numbers = former.denseOf(product.getWeight());
    Tensor scales = perBlock(product.getScales(), former), zeros;
    task::BlockMatMul params;
    params.dtype = static_cast<uint8_t>(DType::F32);
    params.m = sizeOf(rows.view.dims[0]), params.n = weight[0];
    params.blocks = weight[1], params.block = static_cast<int64_t>(product.getBlock());
    params.a_row = strideOf(rows.view.dims[0]), params.c_row = params.n;
    params.scale_block = strideOf(scales.view.dims[0]);
    params.scale_col = strideOf(scales.view.dims[1]);
    if (Value value = product.getZeros()) {
      zeros = perBlock(value, former);
      params.zero_dtype = static_cast<uint8_t>(codegen::dtypeOf(value));
      params.zero_block = strideOf(zeros.view.dims[0]);
      params.zero_col = strideOf(zeros.view.dims[1]);
    }
    params.byte_rows = product.roundsRows();
    params.b_packed = former.model().kernels.calls.packsWeights &&
                      former.isWeight(numbers) && numbers.view.offset == 0;
    Task task{sourceName(op)};
    task.operands = {former.place(rows),
                     former.place(numbers),
                     former.place(target),
                     former.place(scales),
                     Place(),
                     product.getZeros() ? former.place(zeros) : Place()};
    task.made = former.namesOfCall(op, 0);
    task.params = std::move(params);
    return former.addEngineCall(op, std::move(task), task::BlockMatMulScratch,
                                task::BlockMatMulB);
  }
};
} // namespace

void codegen::attachBlockMatMulModel(MLIRContext &context) {
  graph::ContractBlocksOp::attachInterface<ContractBlocksModel>(context);
}
