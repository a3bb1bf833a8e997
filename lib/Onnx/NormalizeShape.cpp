//===- NormalizeShape.cpp - Operators that move data ----------------------===//
#include "Normalizer.h"

#include <cstring>

using namespace partita;
using namespace partita::onnx_model;

Expected<void> Normalizer::squeeze(Node node) {
  attributeToInput(node, "axes", 1);
  emit(std::move(node));
  return {};
}

/// Sizes are an input; without them num_outputs says how many equal parts there are, the
/// last one smaller where the extent does not divide (which only opset 18 allows).
Expected<void> Normalizer::split(Node node) {
  attributeToInput(node, "split", 1);
  setDefault(node, "axis", int64_t(0));
  auto outputs = static_cast<int64_t>(node.outputs.size());
  auto count = take<int64_t>(node, "num_outputs");
  if (count && *count != outputs)
    return error(node, "num_outputs is " + std::to_string(*count) + ", but there are " +
                           std::to_string(outputs) + " outputs");
  if (!node.hasInput(1))
    node.attributes["num_outputs"] = outputs;
  emit(std::move(node));
  return {};
}

/// The axis is an input since opset 20, and its default changed with that.
Expected<void> Normalizer::dft(Node node) {
  if (auto axis = take<int64_t>(node, "axis")) {
    HostTensor value = HostTensor::zeros(DType::I64, {});
    *value.data<int64_t>() = *axis;
    node.inputs.resize(3);
    node.inputs[2] = constant(node, "axis", std::move(value));
  }
  emit(std::move(node));
  return {};
}

Expected<void> Normalizer::slice(Node node) {
  attributeToInput(node, "starts", 1);
  attributeToInput(node, "ends", 2);
  attributeToInput(node, "axes", 3);
  emit(std::move(node));
  return {};
}

/// Pads and value are inputs. A value of zero is left out.
Expected<void> Normalizer::pad(Node node) {
  attributeToInput(node, "pads", 1);
  setDefault(node, "mode", std::string("constant"));
  if (auto value = take<float>(node, "value"); value && *value != 0) {
    node.inputs.resize(3);
    node.inputs[2] = scalarConstant(node, "value", *value, node.inputs[0]);
  }
  emit(std::move(node));
  return {};
}

/// Inputs are X, roi, scales, sizes since opset 11; exactly one of the last two is
/// there, roi only where the mode reads it.
Expected<void> Normalizer::resize(Node node) {
  if (node.sinceVersion < 11) {
    node.inputs = {node.inputs[0], "", node.inputs[1]};
    node.attributes["coordinate_transformation_mode"] = std::string("asymmetric");
    node.attributes["nearest_mode"] = std::string("floor");
  }
  setDefault(node, "coordinate_transformation_mode", std::string("half_pixel"));
  setDefault(node, "nearest_mode", std::string("round_prefer_floor"));
  setDefault(node, "mode", std::string("nearest"));
  setDefault(node, "cubic_coeff_a", -0.75f);
  setDefault(node, "exclude_outside", int64_t(0));
  setDefault(node, "extrapolation_value", 0.0f);
  setDefault(node, "antialias", int64_t(0));
  setDefault(node, "keep_aspect_ratio_policy", std::string("stretch"));
  const auto *mode = node.attribute<std::string>("coordinate_transformation_mode");
  for (size_t i = 1; i < node.inputs.size(); ++i)
    if (isEmptyConstant(node, i) || (i == 1 && *mode != "tf_crop_and_resize"))
      node.inputs[i].clear();
  while (node.inputs.size() > 1 && node.inputs.back().empty())
    node.inputs.pop_back();
  if (node.hasInput(2) == node.hasInput(3))
    return error(node, "expected either scales or sizes");
  emit(std::move(node));
  return {};
}

/// Upsample is what Resize was called up to opset 9; its scales were an attribute first.
Expected<void> Normalizer::upsample(Node node) {
  if (auto scales = take<std::vector<float>>(node, "scales")) {
    HostTensor values =
        HostTensor::zeros(DType::F32, {static_cast<int64_t>(scales->size())});
    std::memcpy(values.bytes.data(), scales->data(), values.bytes.size());
    node.inputs.resize(1);
    node.inputs.push_back(constant(node, "scales", std::move(values)));
  }
  if (!node.hasInput(1))
    return error(node, "there are no scales");
  node.opType = "Resize";
  return resize(std::move(node));
}

Expected<void> Normalizer::reshape(Node node) {
  setDefault(node, "allowzero", int64_t(0));
  emit(std::move(node));
  return {};
}

Expected<void> Normalizer::shapeOf(Node node) {
  setDefault(node, "start", int64_t(0));
  emit(std::move(node));
  return {};
}

/// Without perm, the dims are reversed.
Expected<void> Normalizer::transpose(Node node) {
  auto known = rank(node.inputs[0]);
  if (!node.attributes.contains("perm") && known) {
    std::vector<int64_t> perm;
    for (size_t i = *known; i-- > 0;)
      perm.push_back(static_cast<int64_t>(i));
    node.attributes["perm"] = std::move(perm);
  }
  emit(std::move(node));
  return {};
}

Expected<void> Normalizer::topK(Node node) {
  if (auto count = take<int64_t>(node, "k")) {
    node.inputs.resize(1);
    node.inputs.push_back(intsConstant(node, "k", {*count}));
  }
  setDefault(node, "axis", int64_t(-1));
  setDefault(node, "largest", int64_t(1));
  setDefault(node, "sorted", int64_t(1));
  emit(std::move(node));
  return {};
}

Expected<void> Normalizer::scatter(Node node) {
  node.opType = "ScatterElements";
  setDefault(node, "reduction", std::string("none"));
  emit(std::move(node));
  return {};
}
