//===- CheckTypes.cpp - Element types that fit the operators --------------===//
#include "Internal.h"

#include "partita/Base/Files/TensorProto.h"

#include <onnx/defs/schema.h>

using namespace partita;
using namespace partita::onnx_model;

namespace {
/// The first input that has the type of a type parameter such as "T".
struct Bound {
  int index;
  int32_t type;
};
} // namespace

static std::string describe(const PendingNode &node) {
  return "node '" + node.name + "' (" + node.proto.op_type() + ")";
}

/// The type of a tensor, null for anything else, for what inference did not find out, and
/// for element types that are refused by themselves.
static const onnx::TypeProto *tensorType(const ProtoTypes &types,
                                         const std::string &name) {
  auto it = types.find(name);
  bool isKnown = it != types.end() && it->second.has_tensor_type() &&
                 dtypeFromOnnx(it->second.tensor_type().elem_type());
  return isKnown ? &it->second : nullptr;
}

static Expected<void> checkNode(const PendingNode &node, const onnx::OpSchema &schema,
                                const ProtoTypes &types) {
  const auto &formals = schema.inputs();
  std::map<std::string, Bound> bound;
  for (int i = 0; i < node.proto.input_size() && !formals.empty(); ++i) {
    const auto &formal = formals[std::min<size_t>(i, formals.size() - 1)];
    const onnx::TypeProto *type = tensorType(types, node.proto.input(i));
    if (!type || !formal.GetIsHomogeneous())
      continue;
    int32_t element = type->tensor_type().elem_type();
    std::string input = "input " + std::to_string(i) + " '" + node.proto.input(i) + "'";
    if (!formal.GetTypes().contains(onnx::Utils::DataTypeUtils::ToType(*type)))
      return makeError(describe(node) + ": " + input + " has element type " +
                       onnxTypeName(element) + ", which the operator does not take" +
                       " in version " + std::to_string(schema.since_version()));
    auto [first, isNew] = bound.emplace(formal.GetTypeStr(), Bound{i, element});
    if (!isNew && first->second.type != element)
      return makeError(describe(node) + ": " + input + " has element type " +
                       onnxTypeName(element) + ", but input " +
                       std::to_string(first->second.index) + " '" +
                       node.proto.input(first->second.index) + "' has " +
                       onnxTypeName(first->second.type) + ": the operator wants one");
  }
  return {};
}

Expected<void> onnx_model::checkTypes(const std::vector<PendingNode> &nodes,
                                      const ProtoTypes &types) {
  for (const PendingNode &node : nodes) {
    std::string domain = plainDomain(node.proto.domain());
    auto version = node.opsets->find(domain);
    if (version == node.opsets->end())
      continue;
    const auto *schema = onnx::OpSchemaRegistry::Schema(
        node.proto.op_type(), static_cast<int>(version->second), domain);
    if (!schema)
      continue;
    if (auto ok = checkNode(node, *schema, types); !ok)
      return ok;
  }
  return {};
}
