//===- Inputs.cpp - Inputs that reach all of a program --------------------===//
#include "passes/Reference/Inputs.h"

#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Reference/Kernels.h"

#include "llvm/ADT/DenseSet.h"

#include <cmath>
#include <random>

using namespace mlir;
using namespace partita;

/// The size of the dim that `use` indexes, 0 if it is no index there.
static int64_t indexedSize(OpOperand &use) {
  Operation *op = use.getOwner();
  unsigned operand = use.getOperandNumber();
  if (auto gather = dyn_cast<graph::GatherOp>(op)) {
    Shape data = shapeOf(gather.getData());
    return operand == 1 ? data[*normalizeAxis(gather.getAxis(), data.size())] : 0;
  }
  if (auto gather = dyn_cast<graph::GatherNDOp>(op); gather && operand == 1) {
    Shape data = shapeOf(op->getOperand(0));
    auto first = data.begin() + static_cast<int64_t>(gather.getBatchDims());
    return *std::min_element(first, first + shapeOf(use.get()).back());
  }
  auto shardable = dyn_cast<ShardingRuleOpInterface>(op);
  if (!shardable)
    return 0;
  RuleRef facts = ruleOf(op);
  if (!facts->rule)
    return 0;
  for (const Factor &factor : facts->rule->factors)
    if (factor.isIndexedBy(operand))
      return factor.size;
  return 0;
}

/// Whether the op's result has elements of this operand as they are.
static bool passesElements(OpOperand &use) {
  Operation *op = use.getOwner();
  unsigned operand = use.getOperandNumber();
  if (isa<graph::WhereOp>(op))
    return operand > 0;
  if (isa<graph::GatherOp, graph::GatherNDOp, graph::PadOp>(op))
    return operand == 0;
  if (auto cast = dyn_cast<graph::CastOp>(op))
    return cast.getTo().isInteger() && !cast.getTo().isInteger(1);
  return isa<graph::ReshapeOp, graph::TransposeOp, graph::BroadcastOp, graph::SliceOp,
             graph::ConcatOp>(op);
}

namespace {
/// What was added to an element on the way to a value: from `least` to `most`.
struct Added {
  int64_t least = 0, most = 0;
};
} // namespace

/// What an addition or subtraction of constants adds to this operand: a write of several
/// rows adds 0, 1, … to where the first one goes.
static std::optional<Added> addedConstants(OpOperand &use) {
  Operation *op = use.getOwner();
  bool isSub = isa<graph::SubOp>(op) && use.getOperandNumber() == 0;
  if (!isSub && !isa<graph::AddOp>(op))
    return std::nullopt;
  auto constant =
      op->getOperand(1 - use.getOperandNumber()).getDefiningOp<graph::ConstantOp>();
  auto values = constant ? dyn_cast<DenseIntElementsAttr>(constant.getValue())
                         : DenseIntElementsAttr();
  if (!values || values.empty())
    return std::nullopt;
  Added added{INT64_MAX, INT64_MIN};
  for (const APInt &value : values) {
    added.least = std::min(added.least, value.getSExtValue());
    added.most = std::max(added.most, value.getSExtValue());
  }
  return isSub ? Added{-added.most, -added.least} : added;
}

InputRange partita::inputRange(BlockArgument argument) {
  InputRange range;
  bool isMask = false, isPlain = false;
  // A value and what was added to the argument on the way to it.
  SmallVector<std::pair<Value, Added>> work = {{argument, Added()}};
  llvm::DenseSet<Value> seen = {argument};
  auto follow = [&](Operation *op, Added added) {
    if (seen.insert(op->getResult(0)).second)
      work.emplace_back(op->getResult(0), added);
  };
  while (!work.empty()) {
    auto [value, added] = work.pop_back_val();
    for (OpOperand &use : value.getUses()) {
      Operation *op = use.getOwner();
      if (int64_t size = indexedSize(use)) {
        int64_t low = -added.least, high = size - added.most;
        range = range.isIndex ? InputRange{std::max(range.low, low),
                                           std::min(range.high, high), true}
                              : InputRange{low, high, true};
      } else if (auto call = dyn_cast<CallingOpInterface>(op)) {
        // A row of it, or all, is an argument of the functions that the op runs.
        int place = call.getArgumentOf(use.getOperandNumber());
        for (Operation *callee : call.getCallees())
          if (Value inside = place < 0 ? Value()
                                       : callee->getRegion(0).getArgument(
                                             static_cast<unsigned>(place));
              inside && seen.insert(inside).second)
            work.emplace_back(inside, added);
      } else if (passesElements(use)) {
        follow(op, added);
      } else if (auto more = addedConstants(use)) {
        follow(op, {added.least + more->least, added.most + more->most});
      } else if (op->getNumResults() == 1) {
        Type result = getElementTypeOrSelf(op->getResult(0).getType());
        bool counts = isa<graph::CumSumOp, graph::ReduceOp>(op);
        (counts || result.isInteger(1) || isa<FloatType>(result) ? isMask : isPlain) =
            true;
      }
    }
  }
  // Two uses that no value can serve: an empty range would hide which fails.
  if (range.isIndex && range.low < range.high)
    return range;
  return {0, isMask && !isPlain ? 2 : 4, false};
}

/// A state that a parameter has beside itself: an optimizer takes roots of some.
static bool isMoment(func::FuncOp function, unsigned argument) {
  auto parameter = function.getArgAttrOfType<StringAttr>(argument, parameterAttr);
  return parameter &&
         parameter != function.getArgAttrOfType<StringAttr>(argument, "graph.name");
}

static HostTensor magnitudes(const HostTensor &tensor) {
  std::vector<double> values = reference::values<double>(tensor);
  for (double &value : values)
    value = std::abs(value);
  return reference::tensor<double>(tensor.type, tensor.shape, values);
}

Tensors partita::drawInputs(func::FuncOp function, uint64_t seed) {
  Tensors inputs;
  for (BlockArgument argument : function.getArguments()) {
    auto tensor = cast<RankedTensorType>(argument.getType());
    DType type = *dtypeOf(tensor.getElementType());
    uint64_t own = seed + inputs.size();
    if (isFloat(type) || type == DType::Bool) {
      inputs.push_back(randomTensor(type, tensor.getShape().vec(), own));
      if (isMoment(function, argument.getArgNumber()))
        inputs.back() = magnitudes(inputs.back());
      continue;
    }
    InputRange range = inputRange(argument);
    std::mt19937_64 random(own * 0x9e3779b97f4a7c15u + 1);
    std::vector<int64_t> values(static_cast<size_t>(tensor.getNumElements()));
    for (int64_t &value : values)
      value = range.low + static_cast<int64_t>(
                              random() % static_cast<uint64_t>(range.high - range.low));
    if (range.isIndex && values.size() > 1) {
      values.front() = range.high - 1;
      values.back() = range.low;
    }
    inputs.push_back(reference::tensor<int64_t>(type, tensor.getShape().vec(), values));
  }
  return inputs;
}
