//===- ReadProto.cpp - From a file to a checked ModelProto ----------------===//
#include "Internal.h"

#include "partita/Base/Files/ProtoWire.h"

#include <climits>

using namespace partita;
using namespace partita::onnx_model;

static constexpr int64_t oldestIr = 3, newestIr = 13;
static constexpr int64_t oldestOpset = 7, newestOpset = 27;

/// Field numbers of onnx.proto on the way to an initializer's bytes.
static constexpr uint32_t modelGraph = 7, graphInitializer = 5, tensorRawData = 9;

static std::string_view text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

/// The places of the initializers' raw_data, in the order of the initializers. Protobuf
/// copies them; weights are better used where they lie in the mapped file.
static std::vector<std::span<const std::byte>> findPayloads(std::string_view model) {
  std::vector<std::span<const std::byte>> payloads;
  WireReader fields(model);
  while (auto field = fields.next()) {
    if (field->id != modelGraph || field->type != WireType::Bytes)
      continue;
    WireReader graph(field->bytes);
    while (auto member = graph.next()) {
      if (member->id != graphInitializer || member->type != WireType::Bytes)
        continue;
      std::span<const std::byte> payload;
      WireReader tensor(member->bytes);
      while (auto part = tensor.next())
        if (part->id == tensorRawData && part->type == WireType::Bytes)
          payload = std::as_bytes(std::span(part->bytes));
      payloads.push_back(payload);
    }
  }
  return payloads;
}

/// A ZipMap gives a list of dictionaries from labels to scores. Here it gives the tensor
/// of the scores, whose columns are in the order of the labels.
static void openMaps(onnx::ModelProto &proto) {
  auto &graph = *proto.mutable_graph();
  for (onnx::NodeProto &node : *graph.mutable_node()) {
    if (node.domain() != "ai.onnx.ml" || node.op_type() != "ZipMap" ||
        node.output_size() != 1)
      continue;
    node.set_op_type("Identity");
    node.clear_domain();
    node.clear_attribute();
    for (onnx::ValueInfoProto &output : *graph.mutable_output())
      if (output.name() == node.output(0))
        output.mutable_type()->mutable_tensor_type()->set_elem_type(
            onnx::TensorProto::FLOAT);
  }
}

/// The nodes by which a loaded graph says where a loop or a branch begins and ends, and
/// which no file has; bodies of nodes have nodes, too. Null: there is none.
static const onnx::NodeProto *findAroundPart(const auto &nodes) {
  for (const onnx::NodeProto &node : nodes) {
    if (isAroundPart(plainDomain(node.domain()), node.op_type()))
      return &node;
    for (const auto &attribute : node.attribute()) {
      if (const auto *found = findAroundPart(attribute.g().node()))
        return found;
      for (const onnx::GraphProto &body : attribute.graphs())
        if (const auto *found = findAroundPart(body.node()))
          return found;
    }
  }
  return nullptr;
}

static Expected<void> checkParts(const ModelFile &file) {
  const auto *node = findAroundPart(file.proto.graph().node());
  for (const auto &function : file.proto.functions())
    node = node ? node : findAroundPart(function.node());
  if (!node)
    return {};
  const bool isNamed = !node->name().empty() || node->output_size() == 0;
  return makeError("'" + file.path + "': node '" +
                   (isNamed ? node->name() : node->output(0)) + "' (" + node->op_type() +
                   ") of domain " + std::string(ownDomain) +
                   " stands around a part of a loaded graph, and no file has such nodes");
}

Expected<std::unique_ptr<ModelFile>> onnx_model::readModelFile(const std::string &path) {
  auto mapping = MappedFile::open(path);
  if (!mapping)
    return tl::unexpected(mapping.error());
  auto file = std::make_unique<ModelFile>();
  file->path = path;
  file->mapping = *mapping;
  auto bytes = (*mapping)->bytes();
  if (bytes.empty())
    return makeError("'" + path + "' is empty, not an ONNX model");
  if (bytes.size() > INT_MAX)
    return makeError("'" + path + "' has " + std::to_string(bytes.size()) +
                     " bytes, but an ONNX file cannot exceed 2 GiB: save the weights as"
                     " external data");
  if (!file->proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return makeError("'" + path + "' is not an ONNX model, or is truncated");
  if (!file->proto.has_graph())
    return makeError("'" + path + "' is not an ONNX model: it has no graph");
  if (auto ok = checkParts(*file); !ok)
    return tl::unexpected(ok.error());
  openMaps(file->proto);
  file->payloads = findPayloads(text(bytes));
  auto &initializers = *file->proto.mutable_graph()->mutable_initializer();
  // A graph written in several pieces is merged by protobuf; the scan sees the same
  // initializers in the same order, so the counts agree.
  if (file->payloads.size() != static_cast<size_t>(initializers.size()))
    file->payloads.assign(initializers.size(), {});
  // Shape inference wants to read small integer tensors; weights need not be held twice.
  constexpr size_t smallPayload = 4096;
  for (int i = 0; i < initializers.size(); ++i)
    if (file->payloads[i].size() > smallPayload)
      initializers[i].clear_raw_data();
  return file;
}

Expected<Opsets> onnx_model::checkVersions(const ModelFile &file) {
  const onnx::ModelProto &proto = file.proto;
  auto failure = [&](const std::string &message) {
    return makeError("'" + file.path + "': " + message);
  };
  if (proto.ir_version() < oldestIr || proto.ir_version() > newestIr)
    return failure("IR version " + std::to_string(proto.ir_version()) +
                   " is not supported (known are " + std::to_string(oldestIr) + " to " +
                   std::to_string(newestIr) + ")");
  Opsets opsets;
  for (const auto &import : proto.opset_import()) {
    auto [it, isNew] = opsets.emplace(plainDomain(import.domain()), import.version());
    if (!isNew && it->second != import.version())
      return failure("opset domain '" + import.domain() + "' is imported as " +
                     std::to_string(it->second) + " and as " +
                     std::to_string(import.version()));
  }
  auto standard = opsets.find("");
  // A file may have operators of other domains only.
  const auto &nodes = proto.graph().node();
  bool isUsed = std::any_of(nodes.begin(), nodes.end(), [](const onnx::NodeProto &node) {
    return plainDomain(node.domain()).empty();
  });
  if (standard == opsets.end() && !isUsed && nodes.size() != 0)
    standard = opsets.emplace("", newestOpset).first;
  if (standard == opsets.end())
    return failure("the model does not say which opset its standard operators are from");
  if (standard->second < oldestOpset || standard->second > newestOpset)
    return failure("opset " + std::to_string(standard->second) +
                   " is not supported (known are " + std::to_string(oldestOpset) +
                   " to " + std::to_string(newestOpset) + ")");
  return opsets;
}
