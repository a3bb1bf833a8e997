//===- Inspect.cpp - What a model contains --------------------------------===//
#include "passes/Pipelines/Inspect.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Returned.h"
#include "partita/Base/Files/JsonWriter.h"
#include "partita/Onnx/OpenDims.h"
#include "partita/Rule/Decide/ModuleNames.h"
#include "passes/Import/Import.h"
#include "passes/Pipelines/Compiler.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"

#include <algorithm>
#include <map>

using namespace partita;

namespace {
struct NamedType {
  std::string name;
  DType type;
  std::vector<int64_t> shape;
  bool isShapeKnown = true;
  /// Ascending: dims whose size is data, of which `shape` has the maximum.
  std::vector<int64_t> boundedDims = {};
};

/// A node, or a step that its import made of it, as hints see it.
struct ListedNode {
  std::string name, module, op;
  std::vector<std::vector<int64_t>> inputs, outputs;
  /// Loops with their sizes: which can be split, and which the node needs whole.
  std::vector<std::pair<std::string, int64_t>> loops, whole;
};

struct ListedWeight {
  NamedType what;
  std::vector<std::string> names; ///< others: its module's name for it
  std::vector<std::string> readers;
};

/// What there is to tell, for a person or a program.
struct Contents {
  int64_t irVersion = 0;
  std::map<std::string, int64_t> opsets;
  std::string producer;
  std::vector<NamedType> inputs, outputs;
  int64_t numParameters = 0, elements = 0, bytes = 0, numNodes = 0;
  std::map<std::string, int64_t> operators;
  std::vector<UnsupportedNode> unsupported;
  std::vector<ListedNode> nodes;
  std::vector<ListedWeight> weights;
};
} // namespace

//===-- Text --------------------------------------------------------------===//

static std::string cell(std::string text, size_t width) {
  text.resize(std::max(text.size() + 1, width), ' ');
  return text;
}

static std::string shapeText(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t d = 0; d < shape.size(); ++d)
    text += (d ? "," : "") + std::to_string(shape[d]);
  return text + "]";
}

/// "f32[<=80,4]": a dim whose size is data has its maximum.
static std::string typeText(const NamedType &it) {
  std::string text(name(it.type));
  if (!it.isShapeKnown)
    return text;
  text += "[";
  for (size_t d = 0; d < it.shape.size(); ++d)
    text += (d ? "," : "") +
            std::string(
                std::ranges::count(it.boundedDims, static_cast<int64_t>(d)) ? "<=" : "") +
            std::to_string(it.shape[d]);
  return text + "]";
}

static std::string operatorName(const UnsupportedNode &node) {
  return (node.domain.empty() ? "ai.onnx" : node.domain) + "." + node.opType;
}

static std::string loopsText(const std::vector<std::pair<std::string, int64_t>> &loops) {
  std::string text;
  for (const auto &[loop, size] : loops)
    text += (text.empty() ? "" : " ") + loop + "=" + std::to_string(size);
  return text;
}

static std::string nodesText(const std::vector<ListedNode> &nodes) {
  std::string text = "  nodes (loops that can be split | loops that are needed whole):\n";
  for (const ListedNode &node : nodes) {
    std::string types;
    for (const auto &shape : node.inputs)
      types += (types.empty() ? "" : " ") + shapeText(shape);
    types += " ->";
    for (const auto &shape : node.outputs)
      types += " " + shapeText(shape);
    text += "    " + cell(node.name, 36) + cell(node.op, 16) + cell(types, 44) +
            loopsText(node.loops) +
            (node.whole.empty() ? "" : " | " + loopsText(node.whole)) + "\n";
    if (!node.module.empty())
      text += "      in " + node.module + "\n";
  }
  return text;
}

static std::string weightsText(const std::vector<ListedWeight> &weights) {
  std::string text = "  weights:\n";
  for (const ListedWeight &weight : weights) {
    text +=
        "    " + cell(weight.what.name, 44) + cell(typeText(weight.what), 20) + "read by";
    for (size_t i = 0; i < weight.readers.size(); ++i)
      text += (i ? ", '" : " '") + weight.readers[i] + "'";
    text += "\n";
    for (const std::string &other : weight.names)
      text += "      also " + other + "\n";
  }
  return text;
}

static std::string textOf(const Contents &contents, const InspectOptions &options) {
  std::string text = "IR " + std::to_string(contents.irVersion);
  for (const auto &[domain, version] : contents.opsets)
    text += ", opset " + (domain.empty() ? "" : domain + " ") + std::to_string(version);
  text += contents.producer.empty() ? "\n" : ", from " + contents.producer + "\n";
  for (const NamedType &input : contents.inputs)
    text += "  input  " + cell(input.name, 32) + typeText(input) + "\n";
  for (const NamedType &output : contents.outputs)
    text += "  output " + cell(output.name, 32) + typeText(output) + "\n";
  text += "  " + std::to_string(contents.numParameters) + " parameters, " +
          std::to_string(contents.elements) + " elements, " +
          std::to_string(contents.bytes) + " bytes\n";
  text += "  " + std::to_string(contents.numNodes) + " nodes:\n";
  for (const auto &[op, count] : contents.operators)
    text += "    " + cell(op, 32) + std::to_string(count) + "\n";
  if (!options.nodes.empty())
    text += nodesText(contents.nodes);
  if (!options.weights.empty())
    text += weightsText(contents.weights);
  if (contents.unsupported.empty())
    return text + "  every node is supported\n";
  text += "  not supported:\n    " + cell("operator", 36) + cell("version", 8) +
          cell("node", 32) + "reason\n";
  for (const UnsupportedNode &node : contents.unsupported)
    text += "    " + cell(operatorName(node), 36) +
            cell(std::to_string(node.version), 8) + cell(node.node, 32) + node.reason +
            "\n";
  return text;
}

//===-- JSON --------------------------------------------------------------===//

static void write(JsonWriter &out, const std::vector<std::vector<int64_t>> &shapes) {
  out.beginArray();
  for (const auto &shape : shapes) {
    out.beginArray();
    for (int64_t extent : shape)
      out.value(extent);
    out.endArray();
  }
  out.endArray();
}

static void write(JsonWriter &out, const char *key,
                  const std::vector<std::string> &texts) {
  out.key(key);
  out.beginArray();
  for (const std::string &text : texts)
    out.value(std::string_view(text));
  out.endArray();
}

static void writeMembers(JsonWriter &out, const NamedType &it) {
  out.member("name", std::string_view(it.name));
  out.member("type", name(it.type));
  if (it.isShapeKnown)
    out.member("shape", std::span(it.shape));
  if (!it.boundedDims.empty())
    out.member("bounded_dims", std::span(it.boundedDims));
}

static void write(JsonWriter &out, const char *key, const std::vector<NamedType> &list) {
  out.key(key);
  out.beginArray();
  for (const NamedType &it : list) {
    out.beginObject();
    writeMembers(out, it);
    out.endObject();
  }
  out.endArray();
}

static void writeCounts(JsonWriter &out, const char *key,
                        const std::vector<std::pair<std::string, int64_t>> &counts) {
  out.key(key);
  out.beginObject();
  for (const auto &[what, count] : counts)
    out.member(what, count);
  out.endObject();
}

static void write(JsonWriter &out, const ListedNode &node) {
  out.beginObject();
  out.member("name", std::string_view(node.name));
  if (!node.module.empty())
    out.member("module", std::string_view(node.module));
  out.member("op", std::string_view(node.op));
  out.key("inputs");
  write(out, node.inputs);
  out.key("outputs");
  write(out, node.outputs);
  writeCounts(out, "loops", node.loops);
  writeCounts(out, "whole_loops", node.whole);
  out.endObject();
}

static void write(JsonWriter &out, const ListedWeight &weight) {
  out.beginObject();
  writeMembers(out, weight.what);
  write(out, "other_names", weight.names);
  write(out, "read_by", weight.readers);
  out.endObject();
}

static void write(JsonWriter &out, const UnsupportedNode &node) {
  out.beginObject();
  out.member("operator", std::string_view(operatorName(node)));
  out.member("version", int64_t(node.version));
  out.member("node", std::string_view(node.node));
  out.member("reason", std::string_view(node.reason));
  out.endObject();
}

template <typename T>
static void writeList(JsonWriter &out, const char *key, const std::vector<T> &list) {
  out.key(key);
  out.beginArray();
  for (const T &it : list)
    write(out, it);
  out.endArray();
}

static std::string jsonOf(const Contents &contents, const InspectOptions &options) {
  JsonWriter out(JsonWriter::Style::Lines);
  out.beginObject();
  out.member("model", std::string_view(options.model.file));
  out.member("ir_version", contents.irVersion);
  writeCounts(out, "opsets", {contents.opsets.begin(), contents.opsets.end()});
  out.member("producer", std::string_view(contents.producer));
  write(out, "inputs", contents.inputs);
  write(out, "outputs", contents.outputs);
  writeCounts(out, "parameters",
              {{"count", contents.numParameters},
               {"elements", contents.elements},
               {"bytes", contents.bytes}});
  writeCounts(out, "operators", {contents.operators.begin(), contents.operators.end()});
  if (!options.nodes.empty())
    writeList(out, "nodes", contents.nodes);
  if (!options.weights.empty())
    writeList(out, "weights", contents.weights);
  out.member("supported", contents.unsupported.empty());
  writeList(out, "unsupported", contents.unsupported);
  out.endObject();
  return out.take() + "\n";
}

//===-- Sizes that are open -----------------------------------------------===//

static std::string joined(const std::vector<std::string> &texts, const char *between) {
  std::string all;
  for (const std::string &text : texts)
    all += (all.empty() ? "" : between) + text;
  return all;
}

static std::string textOf(const onnx_model::OpenDims &open) {
  std::string text;
  for (const auto &input : open.inputs)
    text += "  input  " + cell(input.name, 32) + input.type +
            (input.hasShape ? "[" + joined(input.dims, ",") + "]" : "") + "\n";
  if (!open.dims.empty())
    text += "  names of sizes:\n";
  for (const auto &dim : open.dims)
    text += "    " + cell(dim.name, 34) +
            (dim.size ? "= " + std::to_string(*dim.size) + ", " : "") +
            (dim.parts.empty() ? "" : "computed from " + joined(dim.parts, ", ") + ", ") +
            (dim.places.empty() ? "a part of other names" : joined(dim.places, ", ")) +
            "\n";
  return text + "  operators are listed when the sizes are known, as by " +
         onnx_model::shapeOptions(open.bindings) + "\n";
}

static std::string jsonOf(const onnx_model::OpenDims &open, const std::string &file) {
  JsonWriter out(JsonWriter::Style::Lines);
  out.beginObject();
  out.member("model", std::string_view(file));
  out.key("inputs");
  out.beginArray();
  for (const auto &input : open.inputs) {
    out.beginObject();
    out.member("name", std::string_view(input.name));
    out.member("type", std::string_view(input.type));
    if (input.hasShape)
      write(out, "dims", input.dims);
    out.endObject();
  }
  out.endArray();
  out.key("dims");
  out.beginArray();
  for (const auto &dim : open.dims) {
    out.beginObject();
    out.member("name", std::string_view(dim.name));
    write(out, "places", dim.places);
    write(out, "parts", dim.parts);
    if (dim.size)
      out.member("size", *dim.size);
    out.endObject();
  }
  out.endArray();
  write(out, "open", open.bindings);
  out.endObject();
  return out.take() + "\n";
}

//===-- What is found out -------------------------------------------------===//

/// What the model calls a node; of a loop, a branch or a gradient, which are all that
/// stands between two nodes, the second is none.
static std::string operatorOf(const onnx_model::Node &node) {
  if (node.domain != onnx_model::ownDomain)
    return (node.domain.empty() ? "" : node.domain + ".") + node.opType;
  return node.opType == "RepeatBegin"     ? "Loop"
         : node.opType == "IfBegin"       ? "If"
         : node.opType == "GradientBegin" ? "ai.onnx.preview.training.Gradient"
                                          : "";
}

static Contents contentsOf(const onnx_model::Model &model) {
  Contents contents;
  contents.irVersion = model.irVersion;
  contents.opsets = model.opsets;
  contents.producer = model.producer;
  for (const auto &input : model.graph.inputs)
    contents.inputs.push_back({input.name, input.type, input.shape});
  for (size_t i = 0; i < model.graph.outputs.size(); ++i)
    contents.outputs.push_back(
        {model.graph.outputs[i], model.graph.outputTypes[i], {}, false});
  contents.numParameters = static_cast<int64_t>(model.graph.initializers.size());
  for (const auto &tensor : model.graph.initializers) {
    contents.elements += elementCount(tensor.shape);
    contents.bytes +=
        elementCount(tensor.shape) * static_cast<int64_t>(byteWidth(tensor.type));
  }
  for (const auto &node : model.graph.nodes)
    if (std::string name = operatorOf(node); !name.empty()) {
      ++contents.operators[name];
      ++contents.numNodes;
    }
  return contents;
}

static ListedNode listed(const dist::ProgramFlow &flow, size_t number) {
  const FlowGraph &graph = flow.graph;
  const FlowOp &op = graph.ops[number];
  ListedNode node;
  node.name = op.name;
  if (auto module = graph.modules.find(op.name); module != graph.modules.end())
    node.module = module->second;
  node.op = flow.operations[number]->getName().stripDialect().str();
  for (int32_t value : op.operands)
    node.inputs.push_back(graph.values[static_cast<size_t>(value)].shape);
  for (int32_t value : op.results)
    node.outputs.push_back(graph.values[static_cast<size_t>(value)].shape);
  for (size_t f = 0; f < op.rule.factors.size(); ++f) {
    const Factor &factor = op.rule.factors[f];
    bool isWhole = factor.kind() == FactorKind::Replicate || factor.size == 1;
    (isWhole ? node.whole : node.loops).emplace_back(op.rule.loopName(f), factor.size);
  }
  return node;
}

static ListedWeight listedWeight(const FlowGraph &graph, const FlowOp &op) {
  const FlowValue &value = graph.values[static_cast<size_t>(op.results[0])];
  ListedWeight weight{{value.name, value.type, value.shape}, value.otherNames, {}};
  for (const FlowUse &use : value.uses)
    if (const FlowOp &reader = graph.ops[static_cast<size_t>(use.op)];
        reader.kind == FlowKind::Compute)
      weight.readers.push_back(reader.name);
  return weight;
}

/// The nodes and weights of the program that hints are for.
static Expected<void> list(const InspectOptions &options, const Job &job,
                           Contents &contents) {
  Compiler compiler(job);
  if (auto ok = compiler.import(); !ok)
    return ok;
  auto function = compiler.module->lookupSymbol<mlir::func::FuncOp>("main");
  (*compiler.module)
      ->setAttr(dist::meshAttr, dist::MeshAttr::get(&compiler.context, Mesh()));
  auto flow = dist::buildFlow(function, Mesh(), dist::Callees::Inlined);
  if (failed(flow))
    return makeError("'" + options.model.file +
                     "': the program has an op without a rule");
  const FlowGraph &graph = (*flow)->graph;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const FlowOp &op = graph.ops[i];
    if (op.kind == FlowKind::Compute && !options.nodes.empty() &&
        isNamed(graph, op, options.nodes))
      contents.nodes.push_back(listed(**flow, i));
    if (op.kind != FlowKind::Source || options.weights.empty())
      continue;
    ListedWeight weight = listedWeight(graph, op);
    bool isMeant = isNamed(graph, op, options.weights) ||
                   std::any_of(weight.names.begin(), weight.names.end(),
                               [&](const std::string &other) {
                                 return matchesGlob(options.weights, other);
                               });
    if (isMeant && !weight.readers.empty())
      contents.weights.push_back(std::move(weight));
  }
  if (!options.nodes.empty() && contents.nodes.empty())
    return makeError("'" + options.model.file + "': no node and no module is named '" +
                     options.nodes + "'" + nearMisses(graph, options.nodes));
  if (!options.weights.empty() && contents.weights.empty())
    return makeError("'" + options.model.file + "': no weight is named '" +
                     options.weights + "'" + nearMisses(graph, options.weights));
  return {};
}

Expected<InspectResult> partita::inspectModel(const InspectOptions &options) {
  const Job job({.model = options.model, .levels = {.to = Level::L0}},
                [](const std::string &) {});
  auto model = job.sources->read(job.request, job.form);
  if (!model) {
    onnx_model::LoadOptions load;
    load.shapes = options.model.shapes;
    load.constants = options.model.constants;
    auto open = onnx_model::openDims(options.model.file, load);
    if (!open || open->bindings.empty())
      return tl::unexpected(model.error());
    return InspectResult{options.json ? jsonOf(*open, options.model.file) : textOf(*open),
                         std::nullopt};
  }
  Contents contents = contentsOf(**model);
  auto imported = importLooped(job, *model, &contents.unsupported, nullptr);
  if (!imported && contents.unsupported.empty())
    return tl::unexpected(imported.error());
  if (imported) {
    auto main = imported->module->lookupSymbol<mlir::func::FuncOp>("main");
    // Sizes that are data are results behind the outputs, and no outputs.
    auto bounded = graph::Returned(main).dims();
    for (auto [output, type] : llvm::zip(contents.outputs, main.getResultTypes())) {
      output.shape = llvm::cast<mlir::RankedTensorType>(type).getShape().vec();
      output.isShapeKnown = true;
      const auto &sizes = bounded[output.name];
      for (size_t d = 0; d < sizes.size(); ++d)
        if (!sizes[d].empty())
          output.boundedDims.push_back(static_cast<int64_t>(d));
    }
  }
  if (imported && !(options.nodes + options.weights).empty())
    if (auto ok = list(options, job, contents); !ok)
      return tl::unexpected(ok.error());
  return InspectResult{options.json ? jsonOf(contents, options)
                                    : textOf(contents, options),
                       contents.unsupported.empty()};
}
