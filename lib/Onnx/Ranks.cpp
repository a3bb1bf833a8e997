//===- Ranks.cpp - How many dims a value has ------------------------------===//
//
// ONNX's shape inference stops where older opsets compute a shape (their Cast, Concat
// or Squeeze do not propagate values), but the number of dims is still clear.
//
//===----------------------------------------------------------------------===//
#include "Normalizer.h"

#include <algorithm>

using namespace partita;
using namespace partita::onnx_model;

/// Operators whose result has as many dims as the operand that has most.
static bool keepsRank(const std::string &op) {
  // clang-format off
  static const std::unordered_set<std::string> ops = {
      "Abs", "Add", "And", "AveragePool", "BatchNormalization", "Cast", "Ceil", "Clip",
      "Concat", "Conv", "ConvTranspose", "Div", "Dropout", "Elu", "Equal", "Erf", "Exp",
      "Floor", "Gelu", "GlobalAveragePool", "Greater", "GreaterOrEqual", "HardSigmoid",
      "HardSwish", "Identity", "LayerNormalization", "LeakyRelu", "Less", "LessOrEqual",
      "Log", "LogSoftmax", "MatMul", "Max", "MaxPool", "Mean", "Min", "Mod", "Mul", "Neg",
      "Not", "Or", "Pow", "Reciprocal", "Relu", "Resize", "Round", "Selu", "Sigmoid",
      "Sign", "Softmax", "Softplus", "Sqrt", "Sub", "Sum", "Tanh", "Where", "Xor"};
  // clang-format on
  return ops.contains(op);
}

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

/// The rank that an operator gives to its first output, if its operands' ranks and its
/// attributes say so.
std::optional<size_t> Normalizer::rankFrom(const Node &node) {
  const std::string &op = node.opType;
  if (op == "Slice" || op == "Pad" || op == "Split" || op == "Tile")
    return rank(node.inputs[0]);
  if (const auto *perm = node.attribute<std::vector<int64_t>>("perm"))
    return perm->size();
  if (op == "Flatten" || op == "Gemm")
    return 2;
  if (op == "Reshape")
    return vectorLength(node.inputs[1]);
  if (op == "ConstantOfShape")
    return vectorLength(node.inputs[0]);
  if (op == "Expand") {
    auto before = rank(node.inputs[0]), wanted = vectorLength(node.inputs[1]);
    return before && wanted ? std::optional(std::max(*before, *wanted)) : std::nullopt;
  }
  if (op == "Gather") {
    auto data = rank(node.inputs[0]), indices = rank(node.inputs[1]);
    return data && indices ? std::optional(*data - 1 + *indices) : std::nullopt;
  }
  if (op == "Squeeze" || op == "Unsqueeze") {
    auto before = rank(node.inputs[0]);
    std::optional<size_t> axes;
    if (const auto *list = node.attribute<std::vector<int64_t>>("axes"))
      axes = list->size();
    else if (const Tensor *tensor =
                 node.hasInput(1) ? findConstant(node.inputs[1]) : nullptr)
      axes = static_cast<size_t>(elementCount(tensor->shape));
    if (!before || !axes || (op == "Squeeze" && *axes > *before))
      return std::nullopt;
    return op == "Squeeze" ? *before - *axes : *before + *axes;
  }
  if (!keepsRank(op))
    return std::nullopt;
  size_t most = 0;
  for (const std::string &input : node.inputs) {
    if (input.empty())
      continue;
    auto known = rank(input);
    if (!known)
      return std::nullopt;
    most = std::max(most, *known);
    // Of these, only the first operand has the result's dims.
    if (op.ends_with("Normalization") || op == "Resize" || op == "Clip")
      break;
  }
  return most;
}

std::optional<size_t> Normalizer::rank(const std::string &name) {
  if (const auto *known = shape(name))
    return known->size();
  if (auto it = ranks.find(name); it != ranks.end())
    return it->second;
  auto producer = producers.find(name);
  if (producer == producers.end())
    return std::nullopt;
  // Only first outputs have the rank that the operator's rule gives; Split's have all.
  if (producer->second->outputs[0] != name && producer->second->opType != "Split")
    return std::nullopt;
  auto found = rankFrom(*producer->second);
  ranks[name] = found;
  return found;
}
