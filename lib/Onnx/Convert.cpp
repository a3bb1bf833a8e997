//===- Convert.cpp - Proto nodes to plain structs -------------------------===//
#include "Internal.h"

#include "partita/Base/Files/TensorProto.h"

#include <onnx/defs/schema.h>

using namespace partita;
using namespace partita::onnx_model;

static std::string describe(const PendingNode &node) {
  return "node '" + node.name + "' (" + node.proto.op_type() + ")";
}

static Expected<Attribute> convertAttribute(const onnx::AttributeProto &proto,
                                            const PendingNode &node,
                                            TensorReader &reader) {
  using Kind = onnx::AttributeProto;
  switch (proto.type()) {
  case Kind::INT:
    return Attribute(proto.i());
  case Kind::FLOAT:
    return Attribute(proto.f());
  case Kind::STRING:
    return Attribute(proto.s());
  case Kind::INTS:
    return Attribute(std::vector<int64_t>(proto.ints().begin(), proto.ints().end()));
  case Kind::FLOATS:
    return Attribute(std::vector<float>(proto.floats().begin(), proto.floats().end()));
  case Kind::STRINGS:
    return Attribute(
        std::vector<std::string>(proto.strings().begin(), proto.strings().end()));
  case Kind::TENSOR: {
    if (!dtypeFromOnnx(proto.t().data_type()))
      return Attribute(
          OpaqueAttribute{"a tensor of " + onnxTypeName(proto.t().data_type())});
    auto tensor =
        reader.read(proto.t(), describe(node) + ", attribute '" + proto.name() + "'");
    if (!tensor)
      return tl::unexpected(tensor.error());
    return Attribute(std::move(*tensor));
  }
  case Kind::GRAPH:
  case Kind::GRAPHS:
    return Attribute(OpaqueAttribute{"a graph"});
  case Kind::SPARSE_TENSOR:
  case Kind::SPARSE_TENSORS:
    return Attribute(OpaqueAttribute{"a sparse tensor"});
  default:
    return Attribute(OpaqueAttribute{"a value of another kind"});
  }
}

/// The values of a Constant node, if it holds a tensor that the compiler knows.
static std::optional<Tensor> constantValue(const Node &node) {
  HostTensor values;
  auto store = [&](DType type, std::vector<int64_t> shape, const void *data) {
    values = HostTensor::zeros(type, std::move(shape));
    std::copy_n(static_cast<const std::byte *>(data), values.bytes.size(),
                values.bytes.begin());
  };
  if (const auto *tensor = node.attribute<Tensor>("value"))
    return *tensor;
  if (const auto *number = node.attribute<int64_t>("value_int"))
    store(DType::I64, {}, number);
  else if (const auto *real = node.attribute<float>("value_float"))
    store(DType::F32, {}, real);
  else if (const auto *ints = node.attribute<std::vector<int64_t>>("value_ints"))
    store(DType::I64, {static_cast<int64_t>(ints->size())}, ints->data());
  else if (const auto *reals = node.attribute<std::vector<float>>("value_floats"))
    store(DType::F32, {static_cast<int64_t>(reals->size())}, reals->data());
  else
    return std::nullopt;
  return memoryTensor("", std::move(values));
}

/// The first line of what the library has to say.
static std::string firstLine(std::string text) { return text.substr(0, text.find('\n')); }

/// The opset in which an operator first came.
static int firstVersion(const onnx::OpSchema &newest) {
  int first = newest.since_version();
  for (int version = 1; version < first; ++version)
    if (onnx::OpSchemaRegistry::Schema(newest.Name(), version, newest.domain()))
      first = version;
  return first;
}

static Expected<Node> convertNode(PendingNode &pending, TensorReader &reader) {
  onnx::NodeProto &proto = pending.proto;
  Node node;
  node.name = pending.name;
  node.origin = pending.origin;
  node.opType = proto.op_type();
  node.domain = plainDomain(proto.domain());
  node.inputs.assign(proto.input().begin(), proto.input().end());
  node.outputs.assign(proto.output().begin(), proto.output().end());
  for (const auto &attribute : proto.attribute()) {
    auto value = convertAttribute(attribute, pending, reader);
    if (!value)
      return tl::unexpected(value.error());
    node.attributes[attribute.name()] = std::move(*value);
  }
  auto version = pending.opsets->find(node.domain);
  const onnx::OpSchema *schema =
      version == pending.opsets->end()
          ? nullptr
          : onnx::OpSchemaRegistry::Schema(node.opType, static_cast<int>(version->second),
                                           node.domain);
  if (!schema && node.domain.empty() && version != pending.opsets->end())
    if (const auto *newer = onnx::OpSchemaRegistry::Schema(node.opType, ""))
      return makeError(describe(pending) + ": opset " + std::to_string(version->second) +
                       " does not have this operator, which came with opset " +
                       std::to_string(firstVersion(*newer)));
  if (schema) {
    node.sinceVersion = schema->since_version();
    try {
      // Verify names the node itself, by the name in the proto.
      proto.set_name(node.name);
      if (!schema->deprecated())
        schema->Verify(proto);
    } catch (const std::exception &error) {
      return makeError(describe(pending) + " is malformed: " + firstLine(error.what()));
    }
    for (const auto &[name, attribute] : schema->attributes())
      if (attribute.default_value.has_name() && !node.attributes.contains(name)) {
        auto value = convertAttribute(attribute.default_value, pending, reader);
        if (!value)
          return tl::unexpected(value.error());
        node.attributes[name] = std::move(*value);
      }
  }
  while (!node.inputs.empty() && node.inputs.back().empty())
    node.inputs.pop_back();
  while (!node.outputs.empty() && node.outputs.back().empty())
    node.outputs.pop_back();
  return node;
}

Expected<Graph> onnx_model::convertGraph(const ModelFile &file, ExpandedGraph &&expanded,
                                         TensorReader &reader) {
  const onnx::GraphProto &proto = file.proto.graph();
  Graph graph;
  graph.name = proto.name();
  for (int i = 0; i < proto.initializer_size(); ++i) {
    const auto &initializer = proto.initializer(i);
    std::span<const std::byte> payload;
    if (static_cast<size_t>(i) < file.payloads.size())
      payload = file.payloads[i];
    auto tensor =
        reader.read(initializer, "initializer '" + initializer.name() + "'", payload);
    if (!tensor)
      return tl::unexpected(tensor.error());
    tensor->isInitializer = true;
    graph.initializers.push_back(std::move(*tensor));
  }
  if (proto.sparse_initializer_size() > 0)
    return makeError("initializer '" + proto.sparse_initializer(0).values().name() +
                     "' is sparse, which is not supported");
  for (const auto &input : proto.input()) {
    const auto &type = input.type().tensor_type();
    ValueInfo info{input.name(), *dtypeFromOnnx(type.elem_type()), {}};
    for (const auto &dim : type.shape().dim())
      info.shape.push_back(dim.dim_value());
    if (auto bytes = byteCount(info.type, info.shape, "input '" + info.name + "'");
        !bytes)
      return tl::unexpected(bytes.error());
    graph.inputs.push_back(std::move(info));
  }
  for (const auto &output : proto.output()) {
    int number = output.type().tensor_type().elem_type();
    auto type = dtypeFromOnnx(number);
    if (!type)
      return makeError(
          "output '" + output.name() + "' " +
          (output.type().has_tensor_type()
               ? "has element type " + onnxTypeName(number) + ", which is not supported" +
                     (number == onnx::TensorProto::STRING
                          ? ": labels are to be integers, or the output to be removed"
                          : "")
               : std::string("is not a tensor")));
    graph.outputs.push_back(output.name());
    graph.outputTypes.push_back(*type);
  }
  for (PendingNode &pending : expanded.nodes) {
    auto node = convertNode(pending, reader);
    if (!node)
      return tl::unexpected(node.error());
    if (node->opType == "Constant" && node->domain.empty() && node->outputs.size() == 1)
      if (auto value = constantValue(*node)) {
        value->name = node->outputs[0];
        graph.initializers.push_back(std::move(*value));
        continue;
      }
    graph.nodes.push_back(std::move(*node));
  }
  return graph;
}
