//===- Write.cpp - Writing ONNX models ------------------------------------===//
#include "partita/Onnx/Write.h"

#include "Internal.h"
#include "partita/Base/Files/TensorProto.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <exception>

using namespace partita;
using namespace partita::onnx_model;

/// The opset in which every canonical form is valid.
static constexpr int64_t canonicalOpset = 23;
static constexpr int64_t writtenIr = 10;

Expected<void> onnx_model::writeTensor(const Tensor &tensor, onnx::TensorProto &proto) {
  auto size = byteCount(tensor.type, tensor.shape, "tensor '" + tensor.name + "'");
  if (!size)
    return tl::unexpected(size.error());
  if (tensor.bytes.size() != *size)
    return makeError("tensor '" + tensor.name + "' has no values");
  proto.set_name(tensor.name);
  proto.set_data_type(onnxNumber(tensor.type));
  for (int64_t extent : tensor.shape)
    proto.add_dims(extent);
  proto.set_raw_data(tensor.bytes.data(), tensor.bytes.size());
  return {};
}

namespace {
/// Stores one alternative of an attribute's value.
struct AttributeWriter {
  onnx::AttributeProto &proto;
  const Node &node;

  Expected<void> operator()(int64_t value) {
    proto.set_type(onnx::AttributeProto::INT);
    proto.set_i(value);
    return {};
  }
  Expected<void> operator()(float value) {
    proto.set_type(onnx::AttributeProto::FLOAT);
    proto.set_f(value);
    return {};
  }
  Expected<void> operator()(const std::string &value) {
    proto.set_type(onnx::AttributeProto::STRING);
    proto.set_s(value);
    return {};
  }
  Expected<void> operator()(const std::vector<int64_t> &values) {
    proto.set_type(onnx::AttributeProto::INTS);
    for (int64_t value : values)
      proto.add_ints(value);
    return {};
  }
  Expected<void> operator()(const std::vector<float> &values) {
    proto.set_type(onnx::AttributeProto::FLOATS);
    for (float value : values)
      proto.add_floats(value);
    return {};
  }
  Expected<void> operator()(const std::vector<std::string> &values) {
    proto.set_type(onnx::AttributeProto::STRINGS);
    for (const std::string &value : values)
      proto.add_strings(value);
    return {};
  }
  Expected<void> operator()(const Tensor &tensor) {
    proto.set_type(onnx::AttributeProto::TENSOR);
    return writeTensor(tensor, *proto.mutable_t());
  }
  Expected<void> operator()(const OpaqueAttribute &value) {
    return makeError("node '" + node.name + "' (" + node.opType + "): attribute '" +
                     proto.name() + "' is " + value.kind + ", which cannot be written");
  }
};
} // namespace

bool onnx_model::isAroundPart(std::string_view domain, std::string_view opType) {
  static constexpr std::string_view around[] = {
      "RepeatBegin", "RepeatEnd", "GradientBegin", "GradientEnd", "IfBegin", "IfEnd"};
  return domain == ownDomain &&
         std::find(std::begin(around), std::end(around), opType) != std::end(around);
}

bool onnx_model::isAroundPart(const Node &node) {
  return isAroundPart(node.domain, node.opType);
}

Expected<void> onnx_model::writeNode(const Node &node, onnx::NodeProto &proto) {
  if (isAroundPart(node))
    return makeError("node '" + node.name + "' (" + node.opType +
                     ") stands around a part of the graph, which cannot be written");
  proto.set_name(node.name);
  proto.set_op_type(node.opType);
  proto.set_domain(node.domain);
  for (const std::string &input : node.inputs)
    proto.add_input(input);
  for (const std::string &output : node.outputs)
    proto.add_output(output);
  for (const auto &[name, value] : node.attributes) {
    onnx::AttributeProto &attribute = *proto.add_attribute();
    attribute.set_name(name);
    if (auto done = std::visit(AttributeWriter{attribute, node}, value); !done)
      return done;
  }
  return {};
}

/// The shape of an output. A size that is data is −1, and called as Model::dims says.
static void writeShape(const Model &model, size_t output, onnx::TensorShapeProto &proto) {
  const std::vector<int64_t> &shape = model.graph.outputShapes[output];
  auto names = model.dims.find(model.graph.outputs[output]);
  for (size_t d = 0; d < shape.size(); ++d) {
    auto &dim = *proto.add_dim();
    if (shape[d] >= 0)
      dim.set_dim_value(shape[d]);
    else if (names != model.dims.end() && !names->second[d].empty())
      dim.set_dim_param(names->second[d]);
  }
}

static Expected<std::string> serialize(const Model &model) {
  onnx::ModelProto proto;
  proto.set_ir_version(writtenIr);
  proto.set_producer_name("partita");
  onnx::GraphProto &graph = *proto.mutable_graph();
  graph.set_name(model.graph.name.empty() ? "graph" : model.graph.name);
  int64_t opset = model.writtenOpset == 0 ? canonicalOpset : model.writtenOpset;
  for (const Node &node : model.graph.nodes)
    if (node.domain.empty())
      opset = std::max<int64_t>(opset, node.sinceVersion);
  if (auto done = writeNodes(model.graph, graph); !done)
    return tl::unexpected(done.error());
  for (const Tensor &tensor : model.graph.initializers)
    if (auto done = writeTensor(tensor, *graph.add_initializer()); !done)
      return tl::unexpected(done.error());
  for (const ValueInfo &input : model.graph.inputs) {
    onnx::ValueInfoProto &value = *graph.add_input();
    value.set_name(input.name);
    auto &type = *value.mutable_type()->mutable_tensor_type();
    type.set_elem_type(onnxNumber(input.type));
    type.mutable_shape();
    for (int64_t extent : input.shape)
      type.mutable_shape()->add_dim()->set_dim_value(extent);
  }
  for (size_t i = 0; i < model.graph.outputs.size(); ++i) {
    onnx::ValueInfoProto &value = *graph.add_output();
    value.set_name(model.graph.outputs[i]);
    auto &type = *value.mutable_type()->mutable_tensor_type();
    type.set_elem_type(onnxNumber(model.graph.outputTypes[i]));
    if (i >= model.graph.outputShapes.size())
      continue;
    writeShape(model, i, *type.mutable_shape());
  }
  for (const auto &[key, value] : model.metadata) {
    auto &property = *proto.add_metadata_props();
    property.set_key(key);
    property.set_value(value);
  }
  for (const auto &[domain, version] : model.opsets) {
    auto &import = *proto.add_opset_import();
    import.set_domain(domain);
    import.set_version(domain.empty() ? opset : version);
  }
  std::string bytes;
  // Protobuf says no, rather than throw, when a message exceeds 2 GiB.
  if (!proto.SerializeToString(&bytes))
    return makeError("the model does not fit into one ONNX file of 2 GiB");
  return bytes;
}

Expected<void> onnx_model::writeModel(const Model &model, const std::string &path) {
  try {
    auto bytes = serialize(model);
    if (!bytes)
      return makeError(printable("'" + path + "': " + bytes.error().message));
    return writeFile(path, *bytes);
  } catch (const std::exception &error) {
    return makeError(printable("'" + path + "': " + error.what()));
  }
}
