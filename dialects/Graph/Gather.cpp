//===- Gather.cpp - Ops that read where an operand says -------------------===//
#include "dialects/Graph/Indexed.h"

#include "partita/Reference/Kernels.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;

Expected<ShardingRule> GatherOp::ruleFor(const std::vector<Shape> &shapes,
                                         Adaptor adaptor) {
  auto axis = normalizeAxis(adaptor.getAxis(), shapes[0].size());
  if (!axis)
    return tl::unexpected(axis.error());
  ShardingRule rule;
  TensorFactors data, indices, result;
  for (int64_t extent : shapes[1])
    indices.push_back(rule.addLoop(extent, loop::Parallel{}));
  const loop::Kind lookup =
      detail::lookupOf(adaptor.getData().getType(), adaptor.getMasked());
  for (size_t d = 0; d < shapes[0].size(); ++d) {
    bool isAxis = static_cast<int64_t>(d) == *axis;
    data.push_back(rule.addLoop(shapes[0][d], isAxis ? lookup : loop::Parallel{}));
    if (!isAxis) {
      result.push_back(data.back());
      continue;
    }
    result.insert(result.end(), indices.begin(), indices.end());
  }
  rule.operands = {data, indices};
  rule.results = {result};
  return rule;
}

Expected<std::vector<HostTensor>>
GatherOp::evaluate(ArrayRef<const HostTensor *> operands) {
  const Shape &data = operands[0]->shape, &indices = operands[1]->shape;
  auto axis = static_cast<size_t>(*normalizeAxis(getAxis(), data.size()));
  auto dataStrides = reference::strides(data);
  auto indexStrides = reference::strides(indices);
  std::vector<int64_t> names = reference::values<int64_t>(*operands[1]);
  for (int64_t name : names)
    if (!getMasked() && (name < -data[axis] || name >= data[axis]))
      return makeError("index " + std::to_string(name) + " is outside axis " +
                       std::to_string(axis) + " of size " + std::to_string(data[axis]));
  const HostTensor zero = HostTensor::zeros(operands[0]->type, {});
  auto source = [&](const Shape &index) -> int64_t {
    int64_t at = 0, name = 0;
    for (size_t d = 0; d < axis; ++d)
      at += index[d] * dataStrides[d];
    for (size_t d = 0; d < indices.size(); ++d)
      name += index[axis + d] * indexStrides[d];
    for (size_t d = axis + 1; d < data.size(); ++d)
      at += index[d + indices.size() - 1] * dataStrides[d];
    int64_t i = names[name];
    if (getMasked() && (i < 0 || i >= data[axis]))
      return -1;
    return at + (i < 0 ? i + data[axis] : i) * dataStrides[axis];
  };
  return oneResult(
      reference::move(*operands[0], shapeOf(getResult()), source, zero.bytes.data()));
}

Operation *GatherOp::materializeLocal(OpBuilder &builder, ValueRange operands,
                                      TypeRange results, const Strategy &strategy) {
  return detail::localIndexed(*this, builder, operands, results, strategy);
}

Expected<ShardingRule> GatherNDOp::ruleFor(const std::vector<Shape> &shapes,
                                           Adaptor adaptor) {
  const Shape &data = shapes[0], &indices = shapes[1];
  auto batch = static_cast<size_t>(adaptor.getBatchDims());
  if (indices.empty() || batch >= indices.size() ||
      batch + static_cast<size_t>(indices.back()) > data.size())
    return makeError("indices of rank " + std::to_string(indices.size()) +
                     " do not address data of rank " + std::to_string(data.size()));
  ShardingRule rule;
  TensorFactors dataDims, indexDims, result;
  // A component of several is no place of a loop: only together they are one.
  loop::Kind looked = loop::Replicate{};
  if (indices.back() == 1)
    looked = detail::lookupOf(adaptor.getData().getType(), adaptor.getMasked());
  for (size_t d = 0; d + 1 < indices.size(); ++d) {
    if (d < batch && indices[d] != data[d])
      return makeError("batch dim " + std::to_string(d) + " has size " +
                       std::to_string(data[d]) + " in data and " +
                       std::to_string(indices[d]) + " in indices");
    indexDims.push_back(rule.addLoop(indices[d], loop::Parallel{}));
    result.push_back(indexDims.back());
  }
  indexDims.push_back(rule.addLoop(indices.back(), loop::Replicate{}));
  for (size_t d = 0; d < data.size(); ++d) {
    if (d < batch) {
      dataDims.push_back(indexDims[d]);
    } else if (d < batch + static_cast<size_t>(indices.back())) {
      dataDims.push_back(rule.addLoop(data[d], looked));
    } else {
      dataDims.push_back(rule.addLoop(data[d], loop::Parallel{}));
      result.push_back(dataDims.back());
    }
  }
  rule.operands = {dataDims, indexDims};
  rule.results = {result};
  return rule;
}

Expected<std::vector<HostTensor>>
GatherNDOp::evaluate(ArrayRef<const HostTensor *> operands) {
  const Shape &data = operands[0]->shape, &indices = operands[1]->shape;
  auto batch = static_cast<size_t>(getBatchDims());
  auto depth = static_cast<size_t>(indices.back());
  auto dataStrides = reference::strides(data);
  auto indexStrides = reference::strides(indices);
  std::vector<int64_t> names = reference::values<int64_t>(*operands[1]);
  for (size_t i = 0; i < names.size(); ++i) {
    int64_t extent = data[batch + i % depth];
    if (!getMasked() && (names[i] < -extent || names[i] >= extent))
      return makeError("index " + std::to_string(names[i]) +
                       " is outside a dim of size " + std::to_string(extent));
  }
  const HostTensor zero = HostTensor::zeros(operands[0]->type, {});
  size_t outer = indices.size() - 1;
  auto source = [&](const Shape &index) -> int64_t {
    int64_t at = 0, name = 0;
    for (size_t d = 0; d < outer; ++d)
      name += index[d] * indexStrides[d];
    for (size_t d = 0; d < batch; ++d)
      at += index[d] * dataStrides[d];
    for (size_t d = 0; d < depth; ++d) {
      int64_t i = names[name + static_cast<int64_t>(d)], extent = data[batch + d];
      if (getMasked() && (i < 0 || i >= extent))
        return -1;
      at += (i < 0 ? i + extent : i) * dataStrides[batch + d];
    }
    for (size_t d = batch + depth; d < data.size(); ++d)
      at += index[outer + d - batch - depth] * dataStrides[d];
    return at;
  };
  return oneResult(
      reference::move(*operands[0], shapeOf(getResult()), source, zero.bytes.data()));
}

Operation *GatherNDOp::materializeLocal(OpBuilder &builder, ValueRange operands,
                                        TypeRange results, const Strategy &strategy) {
  return detail::localIndexed(*this, builder, operands, results, strategy);
}
