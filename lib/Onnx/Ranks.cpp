//===- Ranks.cpp - How many dims a value has ------------------------------===//
//
// ONNX's shape inference stops where older opsets compute a shape (their Cast, Concat
// or Squeeze do not propagate values), but the number of dims is still clear: behind such
// a shape, the operators' own inference is asked with operands of unknown extents.
//
//===----------------------------------------------------------------------===//
#include "Normalizer.h"

#include "partita/Base/Files/TensorProto.h"

#include <onnx/defs/schema.h>
#include <onnx/shape_inference/implementation.h>

#include <algorithm>

using namespace partita;
using namespace partita::onnx_model;

/// The number of elements of a vector, such as the shape operand of a Reshape: known from
/// its type, or the sum of what a Concat joins.
std::optional<size_t> Normalizer::vectorLength(const std::string &name) const {
  auto fromType = [&](const std::string &value) -> std::optional<size_t> {
    const auto *dims = shape(value);
    bool isKnown = dims && dims->size() == 1 && (*dims)[0] >= 0;
    return isKnown ? std::optional<size_t>((*dims)[0]) : std::nullopt;
  };
  const std::string *at = &name;
  for (;;) {
    if (auto length = fromType(*at))
      return length;
    auto producer = producers.find(*at);
    if (producer == producers.end())
      return std::nullopt;
    const Node &node = *producer->second;
    if (node.opType == "Cast" || node.opType == "Identity") {
      at = &node.inputs[0];
      continue;
    }
    if (node.opType != "Concat")
      return std::nullopt;
    size_t count = 0;
    for (const std::string &part : node.inputs) {
      auto length = fromType(part);
      if (!length)
        return std::nullopt;
      count += *length;
    }
    return count;
  }
}

namespace {
/// Operands of a node for ONNX's inference: types with as much of the shape as is known,
/// and constants.
struct Operands {
  std::unordered_map<std::string, onnx::TypeProto> types;
  std::unordered_map<std::string, onnx::TensorProto> values;
};
} // namespace

/// What the operator's definition makes of the dims of output `index`.
static std::optional<size_t> inferRank(const Node &node, size_t index,
                                       Operands &operands) {
  const auto *schema =
      onnx::OpSchemaRegistry::Schema(node.opType, node.sinceVersion, node.domain);
  onnx::NodeProto proto;
  if (!schema || !schema->has_type_and_shape_inference_function() ||
      !writeNode(node, proto))
    return std::nullopt;
  std::unordered_map<std::string, onnx::TypeProto *> types;
  for (auto &[name, type] : operands.types)
    types[name] = &type;
  std::unordered_map<std::string, const onnx::TensorProto *> values;
  for (const auto &[name, value] : operands.values)
    values[name] = &value;
  onnx::ShapeInferenceOptions options{};
  try {
    onnx::shape_inference::InferenceContextImpl context(proto, types, values, {},
                                                        options);
    schema->GetTypeAndShapeInferenceFunction()(context);
    const onnx::TypeProto *type = context.getOutputType(index);
    if (!type->has_tensor_type() || !type->tensor_type().has_shape())
      return std::nullopt;
    return static_cast<size_t>(type->tensor_type().shape().dim_size());
  } catch (const std::exception &) { // the operands do not fit: said elsewhere
    return std::nullopt;
  }
}

/// The rank of output `index` of a node, if its operands' ranks, its constants and its
/// attributes say so.
std::optional<size_t> Normalizer::rankFrom(const Node &node, size_t index) {
  const std::string &op = node.opType;
  // Here the number of dims is the length of an operand, which may be computed.
  if (op == "Reshape" && node.inputs.size() > 1)
    return vectorLength(node.inputs[1]);
  if (op == "ConstantOfShape")
    return vectorLength(node.inputs[0]);
  if (op == "Expand") {
    auto before = rank(node.inputs[0]), wanted = vectorLength(node.inputs[1]);
    return before && wanted ? std::optional(std::max(*before, *wanted)) : std::nullopt;
  }
  Operands operands;
  for (const std::string &input : node.inputs) {
    if (input.empty())
      continue;
    auto known = rank(input);
    onnx::TypeProto::Tensor &type = *operands.types[input].mutable_tensor_type();
    type.set_elem_type(onnxNumber(typeOf(input)));
    const std::vector<int64_t> *extents = shape(input);
    for (size_t d = 0; known && d < *known; ++d) {
      auto &dim = *type.mutable_shape()->add_dim();
      if (extents && (*extents)[d] >= 0)
        dim.set_dim_value((*extents)[d]);
    }
    if (known && *known == 0)
      type.mutable_shape();
    // Axes, pads, scales: not weights, which would be copied.
    constexpr int64_t most = 1024;
    const Tensor *constant = findConstant(input);
    if (constant && elementCount(constant->shape) <= most &&
        !writeTensor(*constant, operands.values[input]))
      operands.values.erase(input);
  }
  return inferRank(node, index, operands);
}

std::optional<size_t> Normalizer::rank(const std::string &name) {
  if (const auto *known = shape(name))
    return known->size();
  if (auto it = ranks.find(name); it != ranks.end())
    return it->second;
  auto producer = producers.find(name);
  if (producer == producers.end())
    return std::nullopt;
  const std::vector<std::string> &outputs = producer->second->outputs;
  auto at = std::find(outputs.begin(), outputs.end(), name) - outputs.begin();
  auto found = rankFrom(*producer->second, static_cast<size_t>(at));
  ranks[name] = found;
  return found;
}
