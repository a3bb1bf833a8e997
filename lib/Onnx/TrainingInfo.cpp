//===- TrainingInfo.cpp - Training steps that an ONNX file has ------------===//
//
// A step is a graph, the algorithm, that is joined to the model's: both see each other's
// values. Bindings say which initializers of the two become which values.
//
//===----------------------------------------------------------------------===//
#include "Internal.h"

#include <algorithm>
#include <unordered_set>

using namespace partita;
using namespace partita::onnx_model;

static std::string called(size_t number) {
  return "training step " + std::to_string(number);
}

static Expected<const onnx::TrainingInfoProto *> stepOf(const onnx::ModelProto &model,
                                                        size_t number) {
  if (number < static_cast<size_t>(model.training_info_size()))
    return &model.training_info(static_cast<int>(number));
  return makeError("the file has no " + called(number) + " (it has " +
                   std::to_string(model.training_info_size()) +
                   "; they are numbered from 0)");
}

/// An error that names an initializer that is bound twice or does not exist.
static Expected<void> checkInitializer(const std::string &name,
                                       const onnx::GraphProto &graph,
                                       std::unordered_set<std::string> &bound,
                                       const std::string &what) {
  if (!bound.insert(name).second)
    return makeError(what + " binds initializer '" + name + "' twice");
  if (std::ranges::none_of(graph.initializer(),
                           [&](auto &tensor) { return tensor.name() == name; }))
    return makeError(what + " binds '" + name + "', which is no initializer");
  return {};
}

Expected<Updates> onnx_model::joinTrainingStep(onnx::ModelProto &model, size_t number) {
  auto step = stepOf(model, number);
  if (!step)
    return tl::unexpected(step.error());
  onnx::GraphProto &graph = *model.mutable_graph();
  const onnx::GraphProto &algorithm = (*step)->algorithm();
  graph.mutable_node()->MergeFrom(algorithm.node());
  graph.mutable_input()->MergeFrom(algorithm.input());
  graph.mutable_initializer()->MergeFrom(algorithm.initializer());
  graph.mutable_sparse_initializer()->MergeFrom(algorithm.sparse_initializer());
  Updates updates;
  std::unordered_set<std::string> bound, values;
  for (const auto &binding : (*step)->update_binding()) {
    if (auto ok = checkInitializer(binding.key(), graph, bound,
                                   called(number) + ": its update");
        !ok)
      return tl::unexpected(ok.error());
    updates.emplace_back(binding.key(), binding.value());
    values.insert(binding.value());
  }
  if (updates.empty())
    return makeError(called(number) + " updates no initializer");
  // What an initializer becomes is a state; the rest (a loss) is given.
  for (const onnx::ValueInfoProto &output : algorithm.output())
    if (!values.count(output.name()))
      *graph.add_output() = output;
  return updates;
}

Expected<Initialization> onnx_model::initializationOf(const ModelFile &file,
                                                      size_t number) {
  auto step = stepOf(file.proto, number);
  if (!step)
    return tl::unexpected(step.error());
  Initialization result;
  result.file = std::make_unique<ModelFile>();
  result.file->path = file.path;
  onnx::ModelProto &model = result.file->proto;
  model.set_ir_version(file.proto.ir_version());
  *model.mutable_opset_import() = file.proto.opset_import();
  *model.mutable_functions() = file.proto.functions();
  *model.mutable_graph() = (*step)->initialization();
  model.mutable_graph()->clear_output();
  onnx::GraphProto both = (*step)->algorithm();
  both.mutable_initializer()->MergeFrom(file.proto.graph().initializer());
  std::unordered_set<std::string> bound;
  for (const auto &binding : (*step)->initialization_binding()) {
    if (auto ok = checkInitializer(binding.key(), both, bound,
                                   called(number) + ": its initialization");
        !ok)
      return tl::unexpected(ok.error());
    const auto tensor = std::ranges::find_if(
        both.initializer(), [&](auto &t) { return t.name() == binding.key(); });
    onnx::ValueInfoProto &output = *model.mutable_graph()->add_output();
    output.set_name(binding.value());
    output.mutable_type()->mutable_tensor_type()->set_elem_type(tensor->data_type());
    result.initializers.push_back(binding.key());
  }
  if (model.graph().input_size() > 0)
    return makeError(called(number) + ": its initialization has an input, '" +
                     model.graph().input(0).name() + "'");
  return result;
}
