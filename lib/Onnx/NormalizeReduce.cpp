//===- NormalizeReduce.cpp - Reductions and variadic operators ------------===//
#include "Normalizer.h"

#include "partita/Base/Files/TensorProto.h"

#include <limits>

using namespace partita;
using namespace partita::onnx_model;

/// Axes are an input; an empty list is none at all; what reduces nothing is an Identity.
Expected<void> Normalizer::reduce(Node node) {
  attributeToInput(node, "axes", 1);
  auto noop = take<int64_t>(node, "noop_with_empty_axes");
  setDefault(node, "keepdims", int64_t(1));
  if (isEmptyConstant(node, 1))
    node.inputs.resize(1);
  if (!node.hasInput(1)) {
    node.inputs.resize(1);
    if (noop.value_or(0)) {
      node.opType = "Identity";
      node.attributes.clear();
    }
  } else if (noop.value_or(0) && !findConstant(node.inputs[1])) {
    const std::string &axes = node.inputs[1];
    bool isInput =
        std::any_of(graph.inputs.begin(), graph.inputs.end(),
                    [&](const ValueInfo &input) { return input.name == axes; });
    return error(node, "axes that are computed may be empty, which together with "
                       "noop_with_empty_axes is not supported" +
                           (isInput ? "; they are the model's input '" + axes +
                                          "', which --const " + axes + "=FILE.npy binds"
                                    : std::string()));
  }
  emit(std::move(node));
  return {};
}

/// ReduceL1, ReduceL2, ReduceLogSum, ReduceSumSquare: an operator before and after a
/// ReduceSum.
Expected<void> Normalizer::composedReduce(Node node) {
  std::string op = node.opType, x = node.inputs[0];
  if (op == "ReduceL1")
    node.inputs[0] = emitHelper(node, "Abs", {x});
  if (op == "ReduceL2" || op == "ReduceSumSquare")
    node.inputs[0] = emitHelper(node, "Mul", {x, x});
  const char *after = op == "ReduceL2" ? "Sqrt" : op == "ReduceLogSum" ? "Log" : nullptr;
  node.opType = "ReduceSum";
  // The node's own name stays on the reduction, its output on the last operator.
  if (!after)
    return reduce(std::move(node));
  Node last = node;
  last.name = nodeNames.take(node.name + "/" + after);
  last.opType = after;
  last.attributes.clear();
  node.outputs = {valueNames.take(node.name + "/sum")};
  last.inputs = node.outputs;
  auto done = reduce(std::move(node));
  emit(std::move(last));
  return done;
}

/// The largest finite number of a float type.
static double largestOf(DType type) {
  switch (type) {
  case DType::F64:
    return std::numeric_limits<double>::max();
  case DType::F16:
    return 65504;
  case DType::BF16:
    return 0x1.fep127;
  default:
    return static_cast<double>(std::numeric_limits<float>::max());
  }
}

/// log(sum(exp(x - max))) + max: without the maximum, exp overflows from 89 on in f32. A
/// maximum that is infinite is taken for the largest number: ∞ - ∞ would be NaN. Of
/// integers it is computed in f64, as ONNX's definition has it.
Expected<void> Normalizer::logSumExp(Node node) {
  std::string x = node.inputs[0];
  if (DType type = typeOf(x); !isFloat(type)) {
    Node &wide = helper(node, "Cast", {x});
    wide.attributes["to"] = int64_t(onnxNumber(DType::F64));
    node.inputs[0] = wide.outputs[0];
    const auto *extents = shape(x);
    types[node.inputs[0]] =
        TypeInfo{DType::F64, extents ? std::optional(*extents) : std::nullopt};
    Node narrow = node;
    narrow.name = nodeNames.take(node.name + "/Cast");
    narrow.opType = "Cast";
    narrow.attributes = {{"to", int64_t(onnxNumber(type))}};
    node.outputs = {valueNames.take(node.name + "/f64")};
    narrow.inputs = node.outputs;
    auto done = logSumExp(std::move(node));
    emit(std::move(narrow));
    return done;
  }
  Node max = node;
  max.name = nodeNames.take(node.name + "/ReduceMax");
  max.opType = "ReduceMax";
  max.attributes["keepdims"] = int64_t(1);
  max.outputs = {valueNames.take(max.name)};
  std::string kept = max.outputs[0], shown = kept;
  Node axesSource = max;
  if (auto done = reduce(std::move(max)); !done)
    return done;
  if (const auto *keep = node.attribute<int64_t>("keepdims"); keep && *keep == 0) {
    Node reduced = axesSource;
    reduced.name = nodeNames.take(node.name + "/ReduceMax");
    reduced.attributes["keepdims"] = int64_t(0);
    reduced.outputs = {valueNames.take(reduced.name)};
    shown = reduced.outputs[0];
    if (auto done = reduce(std::move(reduced)); !done)
      return done;
  }
  auto finite = [&](const std::string &value) {
    double most = largestOf(typeOf(x));
    return emitHelper(node, "Clip",
                      {value, scalarConstant(node, "min", -most, x),
                       scalarConstant(node, "max", most, x)});
  };
  bool isKept = shown == kept;
  kept = finite(kept);
  shown = isKept ? kept : finite(shown);
  std::string output = node.outputs[0];
  Node sum = node;
  sum.opType = "ReduceSum";
  sum.inputs[0] = emitHelper(node, "Exp", {emitHelper(node, "Sub", {x, kept})});
  sum.outputs = {valueNames.take(node.name + "/sum")};
  std::string total = sum.outputs[0];
  if (auto done = reduce(std::move(sum)); !done)
    return done;
  Node &add = helper(node, "Add", {emitHelper(node, "Log", {total}), shown});
  add.outputs = {output};
  return {};
}

/// Sum, Mean, Max and Min of any number of operands, as a chain of two at a time.
Expected<void> Normalizer::variadic(Node node) {
  std::string op = node.opType;
  std::string step = op == "Sum" || op == "Mean" ? "Add" : op;
  size_t count = node.inputs.size();
  std::string result = node.inputs[0];
  for (size_t i = 1; i + 1 < count; ++i)
    result = emitHelper(node, step, {result, node.inputs[i]});
  if (count == 1) {
    node.opType = "Identity";
  } else if (op == "Mean") {
    result = emitHelper(node, step, {result, node.inputs.back()});
    node.inputs = {result, scalarConstant(node, "count", static_cast<double>(count),
                                          node.inputs[0])};
    node.opType = "Div";
  } else {
    node.inputs = {result, node.inputs.back()};
    node.opType = step;
  }
  emit(std::move(node));
  return {};
}
