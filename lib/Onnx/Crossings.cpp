//===- Crossings.cpp - Nodes that send and receive ------------------------===//
#include "Crossings.h"

#include "partita/Base/Files/TensorProto.h"

#include <algorithm>
#include <cstring>

using namespace partita;
using namespace partita::onnx_model;

bool onnx_model::isEqual(const Tensor &a, const Tensor &b) {
  return a.type == b.type && a.shape == b.shape && a.bytes.size() == b.bytes.size() &&
         (a.bytes.data() == b.bytes.data() ||
          std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0);
}

bool onnx_model::isCrossing(const Node &node, std::string_view op) {
  return node.domain == ownDomain && node.opType == op;
}

Error onnx_model::errorAt(const Model &model, const Node &node, const std::string &what) {
  return Error{.message = "'" + model.path + "': node '" + node.name + "' (" +
                          node.opType + ") " + what};
}

Expected<std::string> onnx_model::crossingValue(const Model &model, const Node &node) {
  const auto *value = node.attribute<std::string>("value");
  if (!value || value->empty())
    return tl::unexpected(errorAt(model, node, "has no attribute 'value'"));
  if (node.outputs.size() != 1)
    return tl::unexpected(errorAt(model, node, "does not have one output"));
  if (isCrossing(node, "Send") && (node.inputs.size() != 1 || node.inputs[0].empty()))
    return tl::unexpected(errorAt(model, node, "does not have one input"));
  return *value;
}

Expected<ValueInfo> onnx_model::receivedType(const Model &model, const Node &node) {
  const auto *shape = node.attribute<std::vector<int64_t>>("shape");
  const auto *number = node.attribute<int64_t>("type");
  auto type = number ? dtypeFromOnnx(static_cast<int32_t>(*number)) : std::nullopt;
  if (!shape || !type)
    return tl::unexpected(errorAt(model, node,
                                  "needs attributes 'shape' and 'type', the number of an "
                                  "element type of ONNX"));
  for (int64_t extent : *shape)
    if (extent < 0)
      return tl::unexpected(errorAt(model, node,
                                    "has a dim of size " + std::to_string(extent) +
                                        " in attribute 'shape'"));
  return ValueInfo{"", *type, *shape};
}

static std::string textOf(const std::vector<int64_t> &numbers) {
  std::string list;
  for (int64_t number : numbers)
    list += (list.empty() ? "" : ", ") + std::to_string(number);
  return "[" + list + "]";
}

Expected<void> onnx_model::checkOtherEnd(const Model &model, const Node &node,
                                         std::vector<int64_t> wanted, const char *what) {
  const auto *said = node.attribute<std::vector<int64_t>>("ranks");
  if (!said && node.attributes.contains("ranks"))
    return tl::unexpected(
        errorAt(model, node, "has an attribute 'ranks' that is no list of numbers"));
  if (!said)
    return {};
  std::vector<int64_t> sorted = *said;
  std::ranges::sort(sorted);
  std::ranges::sort(wanted);
  if (sorted == wanted)
    return {};
  return tl::unexpected(errorAt(model, node,
                                "names ranks " + textOf(*said) + ", and ranks " +
                                    textOf(wanted) + " " + what + " the value"));
}
