//===- Inspect.cpp - What a model contains --------------------------------===//
#include "passes/Pipelines/Inspect.h"

#include "passes/Import/Import.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"

#include <algorithm>
#include <map>

using namespace partita;

static std::string cell(std::string text, size_t width) {
  text.resize(std::max(text.size() + 1, width), ' ');
  return text;
}

static std::string typeText(DType type, const std::vector<int64_t> &shape) {
  std::string text = std::string(name(type)) + "[";
  for (size_t d = 0; d < shape.size(); ++d)
    text += (d ? "," : "") + std::to_string(shape[d]);
  return text + "]";
}

/// `outputs` are the shapes of the outputs, if they are known.
static std::string describe(const onnx_model::Model &model,
                            const std::vector<std::vector<int64_t>> &outputs) {
  std::string text = "IR " + std::to_string(model.irVersion);
  for (const auto &[domain, version] : model.opsets)
    text += ", opset " + (domain.empty() ? "" : domain + " ") + std::to_string(version);
  text += model.producer.empty() ? "\n" : ", from " + model.producer + "\n";
  for (const auto &input : model.graph.inputs)
    text += "  input  " + cell(input.name, 32) + typeText(input.type, input.shape) + "\n";
  for (size_t i = 0; i < model.graph.outputs.size(); ++i)
    text += "  output " + cell(model.graph.outputs[i], 32) +
            (outputs.empty() ? std::string(name(model.graph.outputTypes[i]))
                             : typeText(model.graph.outputTypes[i], outputs[i])) +
            "\n";
  int64_t elements = 0, bytes = 0;
  for (const auto &tensor : model.graph.initializers) {
    elements += elementCount(tensor.shape);
    bytes += elementCount(tensor.shape) * static_cast<int64_t>(byteWidth(tensor.type));
  }
  text += "  " + std::to_string(model.graph.initializers.size()) + " parameters, " +
          std::to_string(elements) + " elements, " + std::to_string(bytes) + " bytes\n";
  std::map<std::string, int64_t> counts;
  for (const auto &node : model.graph.nodes)
    ++counts[(node.domain.empty() ? "" : node.domain + ".") + node.opType];
  text += "  " + std::to_string(model.graph.nodes.size()) + " nodes:\n";
  for (const auto &[op, count] : counts)
    text += "    " + cell(op, 32) + std::to_string(count) + "\n";
  return text;
}

Expected<InspectResult> partita::inspectModel(const CompileOptions &options) {
  auto model = readModel(options, /*weights=*/false);
  if (!model)
    return tl::unexpected(model.error());
  InspectResult result;
  mlir::MLIRContext context;
  std::vector<UnsupportedNode> unsupported;
  auto imported = importModel(&context, *model, &unsupported);
  if (!imported && unsupported.empty())
    return tl::unexpected(imported.error());
  std::vector<std::vector<int64_t>> outputs;
  if (imported)
    for (auto function : imported->module->getOps<mlir::func::FuncOp>())
      for (mlir::Type type : function.getResultTypes())
        outputs.push_back(llvm::cast<mlir::RankedTensorType>(type).getShape().vec());
  result.text = describe(*model, outputs);
  result.supported = unsupported.empty();
  if (result.supported) {
    result.text += "  every node is supported\n";
    return result;
  }
  result.text += "  not supported:\n    " + cell("operator", 36) + cell("version", 8) +
                 cell("node", 32) + "reason\n";
  for (const UnsupportedNode &node : unsupported)
    result.text +=
        "    " +
        cell((node.domain.empty() ? "ai.onnx" : node.domain) + "." + node.opType, 36) +
        cell(std::to_string(node.version), 8) + cell(node.node, 32) + node.reason + "\n";
  return result;
}
