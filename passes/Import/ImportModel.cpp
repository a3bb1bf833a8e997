//===- ImportModel.cpp - From an ONNX model to the graph dialect ----------===//
#include "passes/Import/Import.h"

#include "dialects/Interfaces/ValueNames.h"
#include "passes/Import/Importer.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

static const HandlerTable &handlers() {
  static const HandlerTable table = [] {
    HandlerTable result;
    addElementwise(result);
    addContractions(result);
    addReductions(result);
    addShapes(result);
    addEinsum(result);
    addIndexing(result);
    addNormalization(result);
    addQuantization(result);
    addSampling(result);
    addSignals(result);
    addPools(result);
    addRandom(result);
    addText(result);
    addContrib(result);
    addMachineLearning(result);
    addTraining(result);
    addRecurrent(result);
    addControl(result);
    return result;
  }();
  return table;
}

/// Operators of other domains are called with theirs.
static std::string keyOf(const Node &node) {
  return node.domain.empty() ? node.opType : node.domain + "." + node.opType;
}

static bool hasImport(const Node &node) {
  return handlers().contains(keyOf(node)) ||
         (node.domain.empty() && isPayloadOp(node.opType));
}

static Error describe(const std::string &path,
                      const std::vector<UnsupportedNode> &nodes) {
  std::string text = "'" + path + "': " + std::to_string(nodes.size()) +
                     (nodes.size() == 1 ? " node is" : " nodes are") + " not supported:";
  for (const UnsupportedNode &node : nodes)
    text += "\n  " + (node.domain.empty() ? "ai.onnx" : node.domain) + "." + node.opType +
            "-" + std::to_string(node.version) + " '" + node.node + "': " + node.reason;
  return {text};
}

namespace {
class ModelImporter {
public:
  ModelImporter(MLIRContext *context, const onnx_model::Model &model)
      : model(model), builder(context), importer(builder, result.weights) {}

  Expected<ImportedModel> run(std::vector<UnsupportedNode> &unsupported) {
    auto function = begin();
    for (const Node &node : model.graph.nodes) {
      // A node behind an unsupported one has no operands: that alone is no reason.
      if (hasImport(node) && !hasOperands(node))
        continue;
      auto values = importNode(node);
      if (values) {
        for (size_t i = 0; i < node.outputs.size() && i < values->size(); ++i)
          define(node.outputs[i], (*values)[i], node);
        continue;
      }
      unsupported.push_back({node.opType, node.domain, node.origin,
                             values.error().message +
                                 (node.name == node.origin ? "" : " (part of this node)"),
                             versionOf(node)});
    }
    if (!unsupported.empty())
      return tl::unexpected(describe(model.path, unsupported));
    return finish(function);
  }

private:
  /// Of an operator that nobody knows, the version of its domain that the file imports.
  int versionOf(const Node &node) const {
    auto it = model.opsets.find(node.domain);
    return node.sinceVersion != 0 || it == model.opsets.end()
               ? node.sinceVersion
               : static_cast<int>(it->second);
  }

  /// A value that an earlier node computed, or an input, has other names now: this node
  /// changes nothing.
  void define(const std::string &name, Value value, const Node &node) {
    importer.define(name, value);
    if (name.empty())
      return;
    Operation *op = value.getDefiningOp();
    if (op && op->getLoc() == importer.location)
      return setValueName(op, name);
    addValueName(value, name);
    addValueName(value, node.origin);
  }

  func::FuncOp begin() {
    auto name = [&](const std::string &text) {
      return NameLoc::get(builder.getStringAttr(text));
    };
    result.module = ModuleOp::create(builder.getUnknownLoc());
    SmallVector<Type> types;
    for (const onnx_model::ValueInfo &input : model.graph.inputs)
      types.push_back(tensorType(builder.getContext(), input.type, input.shape));
    builder.setInsertionPointToEnd(result.module->getBody());
    auto function = func::FuncOp::create(builder, name(model.graph.name), "main",
                                         builder.getFunctionType(types, {}));
    Block *body = function.addEntryBlock();
    builder.setInsertionPointToEnd(body);
    for (auto [i, input] : llvm::enumerate(model.graph.inputs)) {
      auto index = static_cast<unsigned>(i);
      function.setArgAttr(index, "graph.name", builder.getStringAttr(input.name));
      // A halo of an input is the input's, not the graph's.
      body->getArgument(index).setLoc(name(input.name));
      importer.define(input.name, body->getArgument(index));
    }
    for (const onnx_model::Tensor &tensor : model.graph.initializers) {
      importer.location = name(tensor.name);
      bool isExternal = !tensor.file.empty() && tensor.file != model.path;
      importer.define(tensor.name, importer.initializer(tensor, isExternal));
    }
    return function;
  }

  bool hasOperands(const Node &node) const {
    return llvm::all_of(node.inputs, [&](const std::string &input) {
      return input.empty() || importer.lookup(input);
    });
  }

  Expected<Values> importNode(const Node &node) {
    if (!hasImport(node))
      return makeError(node.domain.empty() ? "this operator has no import"
                                           : "operators of this domain have no import");
    importer.location = NameLoc::get(builder.getStringAttr(node.origin));
    importer.nodeName = node.name;
    auto it = handlers().find(keyOf(node));
    return it == handlers().end() ? importPayloadOp(importer, node)
                                  : it->second(importer, node);
  }

  Expected<ImportedModel> finish(func::FuncOp function) {
    SmallVector<Value> results;
    for (auto [name, declared] :
         llvm::zip_equal(model.graph.outputs, model.graph.outputTypes)) {
      Value value = importer.lookup(name);
      DType computed = *dtypeOf(getElementTypeOrSelf(value.getType()));
      if (computed != declared)
        return makeError("'" + model.path + "': output '" + name + "' is declared as " +
                         std::string(partita::name(declared)) + ", but computed as " +
                         std::string(partita::name(computed)));
      results.push_back(value);
    }
    for (const auto &[name, source] : model.graph.aliases)
      if (Value value = importer.lookup(source))
        addValueName(value, name);
    importer.location = builder.getUnknownLoc();
    func::ReturnOp::create(builder, importer.location, results);
    setModulePaths();
    function.setType(builder.getFunctionType(function.getArgumentTypes(),
                                             ValueRange(results).getTypes()));
    for (auto [i, output] : llvm::enumerate(model.graph.outputs))
      function.setResultAttr(static_cast<unsigned>(i), "graph.name",
                             builder.getStringAttr(output));
    return std::move(result);
  }

  /// Which module a node comes from, by the node's name: ops are called by it, so that no
  /// rewrite has to know of modules.
  void setModulePaths() {
    SmallVector<NamedAttribute> paths;
    for (const Node &node : model.graph.nodes)
      if (auto it = model.graph.modules.find(node.origin);
          it != model.graph.modules.end() && node.name == node.origin)
        paths.push_back(
            builder.getNamedAttr(node.origin, builder.getStringAttr(it->second)));
    if (!paths.empty())
      result.module.get()->setAttr(modulePathsAttr, builder.getDictionaryAttr(paths));
  }

  const onnx_model::Model &model;
  OpBuilder builder;
  ImportedModel result;
  Importer importer;
};
} // namespace

Expected<ImportedModel> partita::importModel(MLIRContext *context,
                                             const onnx_model::Model &model,
                                             std::vector<UnsupportedNode> *unsupported) {
  context->loadDialect<graph::GraphDialect, func::FuncDialect>();
  std::vector<UnsupportedNode> local;
  return ModelImporter(context, model).run(unsupported ? *unsupported : local);
}
