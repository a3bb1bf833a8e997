//===- Source.cpp - Constants and weights ---------------------------------===//
#include "dialects/Graph/Graph.h"

#include "partita/Reference/Kernels.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;

/// One Parallel factor per dim: a source can be produced in any layout.
static ShardingRule sourceRule(Value result) {
  ShardingRule rule = *transposeRule(shapeOf(result), [&] {
    std::vector<int64_t> identity(shapeOf(result).size());
    std::iota(identity.begin(), identity.end(), 0);
    return identity;
  }());
  rule.operands.clear();
  return rule;
}

HostTensor graph::toHostTensor(ElementsAttr attr) {
  auto type = cast<RankedTensorType>(attr.getType());
  DType dtype = *dtypeOf(type.getElementType());
  HostTensor tensor = HostTensor::zeros(dtype, type.getShape().vec());
  if (dtype == DType::Bool) {
    size_t i = 0;
    for (bool value : attr.getValues<bool>())
      tensor.bytes[i++] = static_cast<std::byte>(value);
    return tensor;
  }
  size_t width = byteWidth(dtype);
  ArrayRef<char> raw = cast<DenseElementsAttr>(attr).getRawData();
  bool splat = attr.isSplat();
  for (int64_t i = 0, n = tensor.size(); i < n; ++i)
    std::memcpy(tensor.bytes.data() + i * width, raw.data() + (splat ? 0 : i * width),
                width);
  return tensor;
}

DenseElementsAttr graph::toAttribute(MLIRContext *context, const HostTensor &tensor) {
  auto type = tensorType(context, tensor.type, tensor.shape);
  size_t width = byteWidth(tensor.type);
  if (tensor.type == DType::Bool) {
    SmallVector<bool> values;
    for (std::byte b : tensor.bytes)
      values.push_back(b != std::byte{0});
    return DenseElementsAttr::get(type, ArrayRef<bool>(values));
  }
  // Raw bytes of one element mean a splat.
  size_t bytes = tensor.bytes.size();
  bool uniform = bytes > width;
  for (size_t i = width; uniform && i < bytes; ++i)
    uniform = tensor.bytes[i] == tensor.bytes[i - width];
  ArrayRef<char> raw(reinterpret_cast<const char *>(tensor.bytes.data()),
                     uniform ? width : bytes);
  return DenseElementsAttr::getFromRawBuffer(type, raw);
}

Expected<ShardingRule> ConstantOp::inferShardingRule() { return sourceRule(getResult()); }

OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValue(); }

Expected<std::vector<HostTensor>> ConstantOp::evaluate(ArrayRef<const HostTensor *>) {
  return std::vector<HostTensor>{toHostTensor(getValue())};
}

Operation *ConstantOp::materializeLocal(OpBuilder &builder, ValueRange, TypeRange results,
                                        const Strategy &) {
  // Only uniform tensors are ever asked for in pieces; others stay whole and are sliced.
  auto type = cast<RankedTensorType>(results[0]);
  auto value = cast<DenseElementsAttr>(getValue());
  if (type != value.getType())
    value = value.resizeSplat(type);
  return ConstantOp::create(builder, getLoc(), value);
}

Expected<ShardingRule> WeightOp::inferShardingRule() { return sourceRule(getResult()); }

Expected<std::vector<HostTensor>> WeightOp::evaluate(ArrayRef<const HostTensor *>) {
  return makeError("the bytes of weight '" + getName().str() +
                   "' are not in the IR; the caller supplies them");
}
