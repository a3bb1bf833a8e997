//===- Join.cpp - Concatenation and constant padding ----------------------===//
//
// Operands are copied into slices of the result.
//
//===----------------------------------------------------------------------===//
#include "dialects/Graph/Graph.h"
#include "passes/Codegen/Common/Models.h"
#include "passes/Codegen/Common/TaskFormer.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

namespace {
struct ConcatModel : TaskOpInterface::ExternalModel<ConcatModel, graph::ConcatOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    if (former.append(op))
      return success();
    Value result = op->getResult(0);
    Tensor target = former.allocateLike(result, former.tensorOf(op->getOperand(0)).view);
    auto axis = static_cast<size_t>(
        *normalizeAxis(cast<graph::ConcatOp>(op).getAxis(), target.view.dims.size()));
    const std::vector<Shape> shapes = shapesOf(op->getOperands());
    for (auto [operand, part] : llvm::zip_equal(
             op->getOperands(), kernels::viewsOfJoin(target.view, shapes, axis)))
      former.copy(former.tensorOf(operand), {target.storage, part},
                  codegen::dtypeOf(result), sourceName(op));
    former.setTensor(result, target);
    return success();
  }
};

/// Where of the operand and of the result the elements lie that both have.
struct Overlap {
  Shape shape, inOperand, inResult;
};
Overlap overlapOf(graph::PadOp pad) {
  Overlap o;
  Shape input = shapeOf(pad.getInput());
  for (auto [size, low, high] : llvm::zip_equal(input, pad.getLow(), pad.getHigh())) {
    int64_t begin = std::max<int64_t>(0, -low), end = size + std::min<int64_t>(0, high);
    o.shape.push_back(std::max<int64_t>(0, end - begin));
    o.inOperand.push_back(begin);
    o.inResult.push_back(std::max<int64_t>(0, low));
  }
  return o;
}

struct PadModel : TaskOpInterface::ExternalModel<PadModel, graph::PadOp> {
  LogicalResult formTasks(Operation *op, TaskFormer &former) const {
    auto pad = cast<graph::PadOp>(op);
    Value result = pad.getResult();
    DType type = codegen::dtypeOf(result);
    Tensor target = former.allocateLike(result, former.tensorOf(pad.getInput()).view);
    former.setTensor(result, target);
    if (pad.getMode() != graph::PadMode::Constant)
      return mirrored(pad, target, former);
    Tensor fill = former.tensorOf(pad.getValue());
    Shape ones(shapeOf(result).size(), 1);
    fill.view = View{fill.view.offset, {}}.broadcast(shapeOf(result));
    former.copy(fill, target, type, sourceName(op));
    Overlap o = overlapOf(pad);
    if (elementCount(o.shape) == 0)
      return success();
    Tensor from = former.tensorOf(pad.getInput());
    auto inOperand = from.view.sliced(o.shape, o.inOperand, ones);
    if (!inOperand) {
      from = former.denseOf(pad.getInput());
      inOperand = View::dense(shapeOf(pad.getInput())).sliced(o.shape, o.inOperand, ones);
      inOperand->offset += from.view.offset;
    }
    Tensor to{target.storage, *target.view.sliced(o.shape, o.inResult, ones)};
    former.copy({from.storage, *inOperand}, to, type, sourceName(op));
    return success();
  }

  /// Edge and reflection: element i of a dim is operand element m(i), which along one dim
  /// is a few runs of step 1, −1 or 0. The result is the product of the dims' runs, each
  /// a copy between views.
  struct Run {
    int64_t from, step, to, length;
  };
  static std::vector<Run> runsOf(graph::PadMode mode, int64_t size, int64_t low,
                                 int64_t high) {
    std::vector<Run> runs;
    int64_t total = size + low + high, last = size - 1;
    auto source = [&](int64_t i) {
      i -= low;
      if (mode == graph::PadMode::Edge)
        return std::clamp<int64_t>(i, 0, last);
      while ((i < 0 || i > last) && last > 0)
        i = i < 0 ? -i : 2 * last - i;
      return std::clamp<int64_t>(i, 0, last);
    };
    for (int64_t i = 0; i < total; ++i) {
      int64_t at = source(i);
      if (!runs.empty()) {
        Run &run = runs.back();
        int64_t step = at - (run.from + (run.length - 1) * run.step);
        if (step >= -1 && step <= 1 && (run.length == 1 || step == run.step)) {
          run.step = step;
          ++run.length;
          continue;
        }
      }
      runs.push_back({at, 1, i, 1});
    }
    return runs;
  }

  static LogicalResult mirrored(graph::PadOp pad, const Tensor &target,
                                TaskFormer &former) {
    Shape input = shapeOf(pad.getInput());
    Tensor from = former.denseOf(pad.getInput());
    View dense = View::dense(input);
    dense.offset = from.view.offset;
    std::vector<std::vector<Run>> runs;
    size_t count = 1;
    for (size_t d = 0; d < input.size(); ++d) {
      runs.push_back(runsOf(pad.getMode(), input[d], pad.getLow()[d], pad.getHigh()[d]));
      count *= runs.back().size();
    }
    for (size_t number = 0; number < count; ++number) {
      Shape shape, starts, steps, to, ones(input.size(), 1);
      size_t rest = number;
      for (const auto &dim : runs) {
        const Run &run = dim[rest % dim.size()];
        rest /= dim.size();
        shape.push_back(run.length);
        starts.push_back(run.from);
        steps.push_back(run.step);
        to.push_back(run.to);
      }
      former.copy({from.storage, *dense.sliced(shape, starts, steps)},
                  {target.storage, *target.view.sliced(shape, to, ones)},
                  codegen::dtypeOf(pad.getResult()), sourceName(pad));
    }
    return success();
  }
};
} // namespace

void codegen::attachJoinModels(MLIRContext &context) {
  graph::ConcatOp::attachInterface<ConcatModel>(context);
  graph::PadOp::attachInterface<PadModel>(context);
}
