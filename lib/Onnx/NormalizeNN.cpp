//===- NormalizeNN.cpp - Neural-network operators -------------------------===//
#include "Normalizer.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

using namespace partita;
using namespace partita::onnx_model;

/// Up to opset 12 the operand was seen as a matrix, split at `axis`, and the softmax went
/// over a whole row of it. That is today's meaning where only ones follow the axis;
/// elsewhere the matrix is made explicit.
Expected<void> Normalizer::softmax(Node node) {
  if (node.sinceVersion >= 13) {
    emit(std::move(node));
    return {};
  }
  setDefault(node, "axis", int64_t(1));
  int64_t axis = *node.attribute<int64_t>("axis");
  bool isLast = axis == -1;
  if (auto known = rank(node.inputs[0])) {
    auto count = static_cast<int64_t>(*known);
    int64_t from = axis < 0 ? axis + count : axis;
    if (from < 0 || from > count)
      return error(node, "axis " + std::to_string(axis) + " is out of range for " +
                             std::to_string(count) + " dims");
    isLast = from == count - 1;
    if (const auto *extents = shape(node.inputs[0]); extents && from < count)
      isLast = std::all_of(extents->begin() + from + 1, extents->end(),
                           [](int64_t extent) { return extent == 1; });
  }
  if (isLast) {
    emit(std::move(node));
    return {};
  }
  Node &flatten = helper(node, "Flatten", {node.inputs[0]});
  flatten.attributes["axis"] = axis;
  std::string matrix = flatten.outputs[0];
  Node &shapeNode = helper(node, "Shape", {node.inputs[0]});
  shapeNode.attributes["start"] = int64_t(0);
  std::string extent = shapeNode.outputs[0];
  std::string result = node.outputs[0];
  node.inputs = {matrix};
  node.attributes["axis"] = int64_t(-1);
  node.outputs = {valueNames.take(node.name + "/rows")};
  std::string rows = node.outputs[0];
  emit(node);
  Node &reshape = helper(node, "Reshape", {rows, extent});
  reshape.attributes["allowzero"] = int64_t(0);
  reshape.outputs = {result};
  return {};
}

/// Inference: the identity, and a mask of ones. A node that asks for training stays.
Expected<void> Normalizer::dropout(Node node) {
  if (node.hasInput(2)) {
    const Tensor *training = findConstant(node.inputs[2]);
    if (!training || training->bytes.size() != 1 || training->bytes[0] != std::byte{0}) {
      emit(std::move(node));
      return {};
    }
  }
  if (node.outputs.size() > 1 && used.contains(node.outputs[1])) {
    // The mask was of the operand's type first, and is boolean since opset 10.
    DType type = node.sinceVersion < 10 ? typeOf(node.inputs[0]) : DType::Bool;
    HostTensor one = HostTensor::zeros(type, {1});
    if (type == DType::F32)
      *one.data<float>() = 1.0f;
    else if (type == DType::F64)
      *one.data<double>() = 1.0;
    else if (type == DType::F16)
      *one.data<uint16_t>() = floatToHalf(1.0f);
    else
      one.bytes[0] = std::byte{1};
    Node &shapeNode = helper(node, "Shape", {node.inputs[0]});
    shapeNode.attributes["start"] = int64_t(0);
    Node &mask = helper(node, "ConstantOfShape", {shapeNode.outputs[0]});
    mask.attributes["value"] = memoryTensor("", std::move(one));
    mask.outputs = {node.outputs[1]};
  }
  node.opType = "Identity";
  node.attributes.clear();
  node.inputs.resize(1);
  node.outputs.resize(1);
  emit(std::move(node));
  return {};
}

/// Optional outputs at the end that nothing reads are left out.
Expected<void> Normalizer::dropUnusedOutputs(Node node) {
  while (node.outputs.size() > 1 && !used.contains(node.outputs.back()))
    node.outputs.pop_back();
  emit(std::move(node));
  return {};
}

Expected<void> Normalizer::batchNormalization(Node node) {
  if (auto spatial = take<int64_t>(node, "spatial"); spatial && *spatial != 1)
    return error(node, "spatial=0 (statistics per position), which opset 9 removed, is"
                       " not supported");
  setDefault(node, "training_mode", int64_t(0));
  return dropUnusedOutputs(std::move(node));
}

/// Bounds are inputs; one that bounds nothing is left out.
Expected<void> Normalizer::clip(Node node) {
  auto low = take<float>(node, "min"), high = take<float>(node, "max");
  if (low || high) {
    node.inputs.resize(3);
    if (low && *low > -FLT_MAX)
      node.inputs[1] = scalarConstant(node, "min", *low, node.inputs[0]);
    if (high && *high < FLT_MAX)
      node.inputs[2] = scalarConstant(node, "max", *high, node.inputs[0]);
  }
  while (node.inputs.size() > 1 && node.inputs.back().empty())
    node.inputs.pop_back();
  emit(std::move(node));
  return {};
}

/// Strides, dilations and pads are always there; of auto_pad only the SAME forms remain,
/// which depend on the extents.
void Normalizer::fillWindow(Node &node, size_t spatialRank) {
  const auto *given = node.attribute<std::string>("auto_pad");
  bool isSame = given && given->starts_with("SAME");
  if (!isSame)
    node.attributes["auto_pad"] = std::string("NOTSET");
  if (given && *given == "VALID")
    node.attributes.erase("pads");
  setDefault(node, "strides", std::vector<int64_t>(spatialRank, 1));
  setDefault(node, "dilations", std::vector<int64_t>(spatialRank, 1));
  if (isSame)
    node.attributes.erase("pads");
  else
    setDefault(node, "pads", std::vector<int64_t>(2 * spatialRank, 0));
}

Expected<void> Normalizer::convolution(Node node) {
  const auto *weight = shape(node.inputs[1]);
  const auto *kernel = node.attribute<std::vector<int64_t>>("kernel_shape");
  if (!kernel && weight && weight->size() > 2 &&
      std::all_of(weight->begin() + 2, weight->end(), [](int64_t e) { return e >= 0; }))
    node.attributes["kernel_shape"] =
        std::vector<int64_t>(weight->begin() + 2, weight->end());
  kernel = node.attribute<std::vector<int64_t>>("kernel_shape");
  if (!kernel)
    return error(node, "the kernel's extents are neither given nor known");
  size_t spatialRank = kernel->size();
  setDefault(node, "group", int64_t(1));
  if (node.opType == "ConvTranspose")
    setDefault(node, "output_padding", std::vector<int64_t>(spatialRank, 0));
  fillWindow(node, spatialRank);
  emit(std::move(node));
  return {};
}

Expected<void> Normalizer::pool(Node node) {
  fillWindow(node, node.attribute<std::vector<int64_t>>("kernel_shape")->size());
  setDefault(node, "ceil_mode", int64_t(0));
  if (node.opType == "AveragePool")
    setDefault(node, "count_include_pad", int64_t(0));
  return dropUnusedOutputs(std::move(node));
}

/// Opset 16 moved a region's edges by half an element, and made that the default.
Expected<void> Normalizer::roiAlign(Node node) {
  setDefault(node, "coordinate_transformation_mode",
             std::string(node.sinceVersion < 16 ? "output_half_pixel" : "half_pixel"));
  emit(std::move(node));
  return {};
}
