//===- ModulePaths.cpp - Which module of the framework a node comes from --===//
#include "Internal.h"

#include <algorithm>

#include <unordered_set>

using namespace partita;
using namespace partita::onnx_model;

/// The strings of a list as Python prints it: "['', 'model', 'linear_3']". Nothing if it
/// is no such list.
static std::vector<std::string> pythonStrings(std::string_view text) {
  std::vector<std::string> strings;
  size_t at = 1;
  if (text.size() < 2 || text.front() != '[' || text.back() != ']')
    return {};
  while (at < text.size() - 1) {
    char quote = text[at];
    size_t end = text.find(quote, at + 1);
    if ((quote != '\'' && quote != '"') || end == std::string_view::npos)
      return {};
    strings.emplace_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
    while (at < text.size() && (text[at] == ',' || text[at] == ' '))
      ++at;
  }
  return strings;
}

/// "/model/layers.0/q_proj/MatMul" is a node of the module "model.layers.0.q_proj".
static std::string pathInName(const std::string &name) {
  size_t last = name.rfind('/');
  if (name.empty() || name.front() != '/' || last == 0)
    return "";
  std::string path = name.substr(1, last - 1);
  std::replace(path.begin(), path.end(), '/', '.');
  return path;
}

std::string onnx_model::modulePathOf(const onnx::NodeProto &node) {
  for (const auto &property : node.metadata_props()) {
    if (property.key() != "pkg.torch.onnx.name_scopes")
      continue;
    // The modules from the outermost on, then what the node is in the traced program.
    auto scopes = pythonStrings(property.value());
    return scopes.size() < 2 ? "" : printable(scopes[scopes.size() - 2]);
  }
  return pathInName(node.name());
}

/// What a module of torch calls the tensor that a node of it reads as input `index`, or
/// "" where that is no parameter of its own.
static std::string parameterName(const Node &node, size_t index, const Tensor &tensor) {
  bool isVector = tensor.shape.size() == 1;
  const std::string &op = node.opType;
  if (!node.domain.empty() || elementCount(tensor.shape) < 2)
    return "";
  if (op == "MatMul")
    return tensor.shape.size() >= 2 ? "weight" : "";
  if (op == "Transpose" || (op == "Gather" && index == 0))
    return tensor.shape.size() == 2 ? "weight" : "";
  if (op == "Gemm" || op == "Conv" || op == "ConvTranspose" || op == "LayerNormalization")
    return index == 2 ? "bias" : "weight";
  if (op == "BatchNormalization" && index > 0)
    return index == 1   ? "weight"
           : index == 2 ? "bias"
           : index == 3 ? "running_mean"
                        : "running_var";
  if (op == "RMSNormalization" || (op == "Mul" && isVector))
    return "weight";
  return op == "Add" && isVector ? "bias" : "";
}

void onnx_model::nameParameters(Graph &graph) {
  std::unordered_map<std::string, const Tensor *> tensors;
  for (const Tensor &tensor : graph.initializers)
    tensors[tensor.name] = &tensor;
  std::set<std::pair<std::string, std::string>> known(graph.aliases.begin(),
                                                      graph.aliases.end());
  for (const Node &node : graph.nodes) {
    auto module = graph.modules.find(node.origin);
    if (module == graph.modules.end())
      continue;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      auto tensor = tensors.find(node.inputs[i]);
      if (tensor == tensors.end())
        continue;
      std::string parameter = parameterName(node, i, *tensor->second);
      std::string path = module->second + "." + parameter;
      // The file may have it under its own name already.
      if (!parameter.empty() && !tensors.contains(path) &&
          known.emplace(path, node.inputs[i]).second)
        graph.aliases.emplace_back(path, node.inputs[i]);
    }
  }
}
