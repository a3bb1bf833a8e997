//===- Load.cpp - Reading ONNX models -------------------------------------===//
#include "Internal.h"

#include <algorithm>
#include <exception>

using namespace partita;
using namespace partita::onnx_model;

std::set<std::string> onnx_model::defaultKeptOps() {
  // clang-format off
  return {
      // Pointwise: one op each, with a payload.
      "Clip", "Relu", "LeakyRelu", "PRelu", "Elu", "Gelu", "HardSigmoid", "HardSwish",
      "Mish", "Softplus", "GreaterOrEqual", "LessOrEqual",
      // Normalisations: kernels that are worth keeping whole.
      "Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization",
      // Its body is a Loop, which would only be worse.
      "Range",
      // The bodies of these have branches; import knows them.
      "AffineGrid",
      // Its body is 1 where the operand is less than the number drawn, not the reverse.
      "Bernoulli",
      // Its body gives zeros a scale of 0.
      "DynamicQuantizeLinear",
      // The normaliser writes these in terms of ReduceSum, whatever the opset.
      "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"};
  // clang-format on
}

/// Those without a default value.
static std::vector<std::string> namesOfInputs(const onnx::GraphProto &graph) {
  std::set<std::string> defaults;
  for (const auto &tensor : graph.initializer())
    defaults.insert(tensor.name());
  std::vector<std::string> names;
  for (const auto &input : graph.input())
    if (!defaults.contains(input.name()))
      names.push_back(input.name());
  return names;
}

/// Of inputs and outputs that have any.
static std::map<std::string, std::vector<std::string>>
symbolicDims(const onnx::GraphProto &graph) {
  std::map<std::string, std::vector<std::string>> dims;
  for (const auto *list : {&graph.input(), &graph.output()})
    for (const auto &value : *list) {
      std::vector<std::string> names;
      for (const auto &dim : value.type().tensor_type().shape().dim())
        names.push_back(symbolOf(dim));
      if (std::ranges::any_of(names, [](auto &name) { return !name.empty(); }))
        dims[value.name()] = std::move(names);
    }
  return dims;
}

/// From a graph of the file to plain structs.
static Expected<Graph> readGraph(ModelFile &file, const Opsets &opsets,
                                 const LoadOptions &options, const Updates &updates) {
  auto expanded = expandFunctions(file.proto, opsets, options.kept, options.keepLoops);
  if (!expanded)
    return tl::unexpected(expanded.error());
  Types types = std::move(expanded->types);
  ModulePaths modules = std::move(expanded->modules);
  CallInputs callInputs = std::move(expanded->callInputs);
  TensorReader reader(file, options.weights, options.dataFolders);
  auto graph = convertGraph(file, std::move(*expanded), reader);
  if (!graph)
    return graph;
  graph->updates = updates;
  if (auto sorted = sortGraph(*graph); !sorted)
    return tl::unexpected(sorted.error());
  graph->modules = std::move(modules);
  graph->callInputs = std::move(callInputs);
  nameParameters(*graph);
  if (auto normal = normalizeGraph(*graph, std::move(types)); !normal)
    return tl::unexpected(normal.error());
  // The normaliser leaves constants behind that nothing uses any more.
  if (auto sorted = sortGraph(*graph); !sorted)
    return tl::unexpected(sorted.error());
  if (options.wide)
    widenFloats(*graph);
  return graph;
}

/// Of a training step the program that makes what it begins with.
static Expected<void> readInitialization(const ModelFile &file, const Opsets &opsets,
                                         const LoadOptions &options, Model &model) {
  auto made = initializationOf(file, *options.trainingInfo);
  if (!made)
    return tl::unexpected(made.error());
  auto graph = readGraph(*made->file, opsets, options, {});
  if (!graph)
    return makeError("the initialization of training step " +
                     std::to_string(*options.trainingInfo) + ": " +
                     graph.error().message);
  model.initialization = std::move(*graph);
  model.initialized = std::move(made->initializers);
  return {};
}

/// Tensors say the file themselves: they may lie in another one.
static Error failureIn(const std::string &path, Error error) {
  if (!error.message.starts_with("'" + path + "': "))
    error.message.insert(0, "'" + path + "': ");
  return error;
}

static Expected<Model> load(const std::string &path, const LoadOptions &options) {
  auto file = readModelFile(path);
  if (!file)
    return tl::unexpected(file.error());
  auto opsets = checkVersions(**file);
  if (!opsets)
    return tl::unexpected(opsets.error());
  auto fail = [&](const Error &error) { return tl::unexpected(failureIn(path, error)); };
  onnx::ModelProto &proto = (*file)->proto;
  Model model;
  Updates updates;
  if (options.trainingInfo) {
    if (auto ok = readInitialization(**file, *opsets, options, model); !ok)
      return fail(ok.error());
    auto joined = joinTrainingStep(proto, *options.trainingInfo);
    if (!joined)
      return fail(joined.error());
    updates = std::move(*joined);
  }
  model.inputNames = namesOfInputs(proto.graph());
  model.dims = symbolicDims(proto.graph());
  std::vector<ShapeBinding> shapes = options.shapes;
  if (auto bound = bindConstants(**file, options.constants, shapes); !bound)
    return fail(bound.error());
  if (auto bound = bindShapes(proto, shapes); !bound)
    return fail(bound.error());
  auto graph = readGraph(**file, *opsets, options, updates);
  if (!graph)
    return fail(graph.error());
  model.path = path;
  model.producer = proto.producer_name();
  if (!proto.producer_version().empty())
    model.producer += " " + proto.producer_version();
  model.irVersion = proto.ir_version();
  for (const auto &property : proto.metadata_props())
    model.metadata[property.key()] = property.value();
  model.opsets = std::move(*opsets);
  model.keepsLoops = options.keepLoops;
  model.graph = std::move(*graph);
  return model;
}

static Expected<OpenDims> findOpen(const std::string &path, const LoadOptions &options) {
  auto file = readModelFile(path);
  if (!file)
    return tl::unexpected(file.error());
  if (auto opsets = checkVersions(**file); !opsets)
    return tl::unexpected(opsets.error());
  return findOpenDims(**file, options).map_error([&](const Error &error) {
    return failureIn(path, error);
  });
}

/// Exceptions of the ONNX library become errors, and names are fit to be printed.
static auto guarded(const std::string &path, auto read) -> decltype(read()) {
  try {
    return read().map_error([](Error error) {
      error.message = printable(error.message);
      return error;
    });
  } catch (const std::exception &error) {
    return makeError(printable("'" + path + "': " + error.what()));
  }
}

Expected<Model> onnx_model::loadModel(const std::string &path,
                                      const LoadOptions &options) {
  return guarded(path, [&] { return load(path, options); });
}

Expected<OpenDims> onnx_model::openDims(const std::string &path,
                                        const LoadOptions &options) {
  return guarded(path, [&] { return findOpen(path, options); });
}
