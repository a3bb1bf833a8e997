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
  static const std::unordered_set<std::string> ops = {"Add",
                                                      "Sub",
                                                      "Mul",
                                                      "Div",
                                                      "Pow",
                                                      "Max",
                                                      "Min",
                                                      "Sum",
                                                      "Mean",
                                                      "Mod",
                                                      "Where",
                                                      "And",
                                                      "Or",
                                                      "Xor",
                                                      "Not",
                                                      "Equal",
                                                      "Greater",
                                                      "Less",
                                                      "GreaterOrEqual",
                                                      "LessOrEqual",
                                                      "Abs",
                                                      "Neg",
                                                      "Exp",
                                                      "Log",
                                                      "Sqrt",
                                                      "Reciprocal",
                                                      "Erf",
                                                      "Tanh",
                                                      "Sigmoid",
                                                      "Relu",
                                                      "LeakyRelu",
                                                      "Clip",
                                                      "Elu",
                                                      "Selu",
                                                      "Softplus",
                                                      "HardSigmoid",
                                                      "HardSwish",
                                                      "Gelu",
                                                      "Floor",
                                                      "Ceil",
                                                      "Round",
                                                      "Sign",
                                                      "Cast",
                                                      "Identity",
                                                      "Dropout",
                                                      "Softmax",
                                                      "LogSoftmax",
                                                      "Concat",
                                                      "BatchNormalization",
                                                      "LayerNormalization",
                                                      "Conv",
                                                      "ConvTranspose",
                                                      "MaxPool",
                                                      "AveragePool",
                                                      "GlobalAveragePool",
                                                      "Resize",
                                                      "MatMul"};
  return ops.contains(op);
}

/// The rank that an operator gives to its first output, if its operands' ranks and its
/// attributes say so.
std::optional<size_t> Normalizer::rankFrom(const Node &node) {
  const std::string &op = node.opType;
  if (op == "Slice" || op == "Pad" || op == "Split" || op == "Tile")
    return rank(node.inputs[0]);
  if (const auto *perm = node.attribute<std::vector<int64_t>>("perm"))
    return perm->size();
  if (op == "Reshape") {
    // The shape operand is a vector with one element per dim.
    if (const auto *dims = shape(node.inputs[1]); dims && dims->size() == 1)
      return (*dims)[0] >= 0 ? std::optional<size_t>((*dims)[0]) : std::nullopt;
    auto concat = producers.find(node.inputs[1]);
    if (concat == producers.end() || concat->second->opType != "Concat")
      return std::nullopt;
    size_t count = 0;
    for (const std::string &part : concat->second->inputs) {
      const auto *length = shape(part);
      if (!length || length->size() != 1 || (*length)[0] < 0)
        return std::nullopt;
      count += static_cast<size_t>((*length)[0]);
    }
    return count;
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
