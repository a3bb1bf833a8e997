//===- TestModel.h - Tiny models for the loader's tests ---------*- C++ -*-===//
#ifndef PARTITA_TEST_UNIT_ONNX_TESTMODEL_H
#define PARTITA_TEST_UNIT_ONNX_TESTMODEL_H

#include "partita/Base/Files/File.h"
#include "partita/Onnx/Load.h"

#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <functional>

namespace partita::test {

/// A folder that goes away with the object.
class ScratchFolder {
public:
  ScratchFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "onnxXXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()));
    path = pattern;
  }
  ~ScratchFolder() { std::filesystem::remove_all(path); }
  std::string file(const std::string &name) const { return (path / name).string(); }
  std::filesystem::path path;
};

/// A model from ONNX's text syntax: the header line is added.
inline onnx::ModelProto parse(const std::string &graph, int opset = 17,
                              const std::string &extraDomains = "") {
  std::string text = "<ir_version: 8, opset_import: [\"\" : " + std::to_string(opset) +
                     extraDomains + "]>\n" + graph;
  onnx::ModelProto model;
  auto status = onnx::OnnxParser::Parse(model, text.c_str());
  INFO(status.ErrorMessage());
  REQUIRE(status.IsOK());
  return model;
}

/// Writes the model into a scratch folder and loads it from there. Errors come back
/// without the path.
inline Expected<onnx_model::Model> load(const onnx::ModelProto &proto,
                                        const onnx_model::LoadOptions &options = {}) {
  ScratchFolder folder;
  std::string path = folder.file("m.onnx");
  REQUIRE(writeFile(path, proto.SerializeAsString()));
  auto model = onnx_model::loadModel(path, options);
  std::string prefix = "'" + path + "': ";
  if (!model && model.error().message.starts_with(prefix))
    return makeError(model.error().message.substr(prefix.size()));
  return model;
}

inline Expected<onnx_model::Model> load(const std::string &graph, int opset = 17,
                                        const onnx_model::LoadOptions &options = {}) {
  return load(parse(graph, opset), options);
}

/// "Op(in, in) -> out" per node, for whole-graph comparisons.
inline std::string listing(const onnx_model::Model &model) {
  std::string text;
  for (const auto &node : model.graph.nodes) {
    text += node.opType + "(";
    for (size_t i = 0; i < node.inputs.size(); ++i)
      text += (i ? ", " : "") + node.inputs[i];
    text += ") ->";
    for (const auto &output : node.outputs)
      text += " " + output;
    text += "\n";
  }
  return text;
}

inline const onnx_model::Tensor *constant(const onnx_model::Model &model,
                                          const std::string &name) {
  for (const auto &tensor : model.graph.initializers)
    if (tensor.name == name)
      return &tensor;
  return nullptr;
}

template <typename T>
std::vector<T> values(const onnx_model::Model &model, const std::string &name) {
  const auto *tensor = constant(model, name);
  REQUIRE(tensor);
  std::vector<T> result(tensor->bytes.size() / sizeof(T));
  std::memcpy(result.data(), tensor->bytes.data(), tensor->bytes.size());
  return result;
}

} // namespace partita::test

#endif // PARTITA_TEST_UNIT_ONNX_TESTMODEL_H
