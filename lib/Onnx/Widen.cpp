//===- Widen.cpp - The same model in f64 ----------------------------------===//
#include "Crossings.h"
#include "Internal.h"

#include "partita/Base/Scalar.h"

#include <cstring>

using namespace partita;
using namespace partita::onnx_model;

static bool isNarrowFloat(DType type) {
  return type == DType::F32 || type == DType::F16 || type == DType::BF16;
}

static void widenTensor(Tensor &tensor) {
  if (!isNarrowFloat(tensor.type))
    return;
  std::string name = tensor.name;
  std::vector<int64_t> shape = tensor.shape;
  if (tensor.bytes.empty()) { // no data, or no elements
    tensor.type = DType::F64;
    return;
  }
  HostTensor wide = HostTensor::zeros(DType::F64, shape);
  visitType(tensor.type, [&]<typename T>() {
    for (int64_t i = 0, n = wide.size(); i < n; ++i) {
      T element;
      std::memcpy(&element, tensor.bytes.data() + i * sizeof(T), sizeof(T));
      wide.data<double>()[i] = static_cast<double>(partita::load(element));
    }
  });
  bool isInitializer = tensor.isInitializer;
  tensor = memoryTensor(name, std::move(wide));
  tensor.isInitializer = isInitializer;
}

/// ONNX's numbers of element types.
static constexpr int64_t onnxFloat = 1, onnxFloat16 = 10, onnxDouble = 11,
                         onnxBfloat16 = 16;

void onnx_model::widenFloats(Graph &graph) {
  for (ValueInfo &input : graph.inputs)
    if (isNarrowFloat(input.type))
      input.type = DType::F64;
  for (DType &type : graph.outputTypes)
    if (isNarrowFloat(type))
      type = DType::F64;
  for (Tensor &tensor : graph.initializers)
    widenTensor(tensor);
  for (Node &node : graph.nodes) {
    // These give f32 whatever their operands are, but for this.
    if (node.domain == "ai.onnx.ml")
      node.attributes["dtype"] = onnxDouble;
    for (auto &[name, attribute] : node.attributes) {
      if (auto *tensor = std::get_if<Tensor>(&attribute))
        widenTensor(*tensor);
      auto *number = std::get_if<int64_t>(&attribute);
      bool isType = name == "to" || name == "dtype" || name == "stash_type" ||
                    (name == "type" && isCrossing(node, "Receive"));
      if (number && isType &&
          (*number == onnxFloat || *number == onnxFloat16 || *number == onnxBfloat16))
        *number = onnxDouble;
    }
  }
}
