//===- Training.cpp - How a model is imported to train --------------------===//
#include "passes/Pipelines/Training.h"

#include "dialects/Dist/Dist.h"
#include "partita/Rule/Decide/ModuleNames.h"
#include "passes/Reference/Evaluate.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <map>
#include <set>

using namespace partita;

/// A tensor of the file that may train.
static bool isFloatTensor(const onnx_model::Tensor &tensor) {
  if (!tensor.isInitializer)
    return false;
  return tensor.type == DType::F32 || tensor.type == DType::F64 ||
         tensor.type == DType::F16 || tensor.type == DType::BF16;
}

static bool anyMatches(const std::vector<std::string> &globs, const std::string &name) {
  return std::any_of(globs.begin(), globs.end(),
                     [&](const std::string &glob) { return matchesGlob(glob, name); });
}

/// A pattern that matches nothing is a mistake. `key`: "parameters: \"train\"".
static Expected<void> checkPatterns(const std::string &key,
                                    const std::vector<std::string> &globs,
                                    const onnx_model::Model &model) {
  for (const std::string &glob : globs) {
    const auto &all = model.graph.initializers;
    if (std::none_of(all.begin(), all.end(), [&](const onnx_model::Tensor &tensor) {
          return isFloatTensor(tensor) && matchesGlob(glob, tensor.name);
        }))
      return makeError(key + ": no float initializer is named '" + glob +
                       "' (partita inspect --weights lists them)");
  }
  return {};
}

/// Running moments are made, not learned, whether they run or stand still. One that runs
/// must be nothing else: exporters that look for equal tensors make one initializer of
/// the zeros of a mean and of a bias.
static Expected<std::set<std::string>> runningMoments(const train::Spec &spec,
                                                      const onnx_model::Model &model) {
  std::set<std::string> moments;
  std::map<std::string, std::pair<int, std::string>> uses; // how many, one of them
  for (const onnx_model::Node &node : model.graph.nodes)
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      auto &[count, where] = uses[node.inputs[i]];
      ++count;
      where = "input " + std::to_string(i) + " of '" + node.origin + "'";
      if (node.domain.empty() && node.opType == "BatchNormalization" && i >= 3 &&
          node.hasInput(i))
        moments.insert(node.inputs[i]);
    }
  for (const std::string &name : moments)
    if (spec.batchStatistics && uses[name].first > 1)
      return makeError("initializer '" + name + "' is a running moment of a " +
                       "BatchNormalization and " + uses[name].second +
                       " too: an exporter has merged equal tensors; export the model "
                       "for training (torch.onnx.TrainingMode.TRAINING), or say "
                       "\"batch_norm\": \"running\"");
  return moments;
}

Expected<TrainingImport> partita::trainingImport(const train::Spec &spec,
                                                 const onnx_model::Model &model,
                                                 bool evaluates) {
  for (auto [key, globs] : {std::pair{"parameters: \"train\"", &spec.parameters},
                            {"parameters: \"freeze\"", &spec.freeze},
                            {"optimizer: \"no_decay\"", &spec.optimizer.noDecay}})
    if (auto ok = checkPatterns(key, *globs, model); !ok)
      return tl::unexpected(ok.error());
  auto moments = runningMoments(spec, model);
  if (!moments)
    return tl::unexpected(moments.error());
  TrainingImport result;
  result.batchStatistics = spec.batchStatistics && !evaluates;
  result.seed = spec.seed;
  // Running moments are states of the step, which an evaluation reads.
  const bool readsMoments = spec.batchStatistics && evaluates;
  result.trains = [spec, readsMoments,
                   moments = *moments](const onnx_model::Tensor &tensor) {
    if (moments.count(tensor.name))
      return readsMoments;
    if (!isFloatTensor(tensor) || anyMatches(spec.freeze, tensor.name))
      return false;
    return spec.parameters.empty() ? !tensor.shape.empty()
                                   : anyMatches(spec.parameters, tensor.name);
  };
  return result;
}

void partita::dropNothing(onnx_model::Model &model) {
  std::vector<onnx_model::Tensor> no;
  for (onnx_model::Node &node : model.graph.nodes) {
    if (!node.domain.empty() || node.opType != "Dropout")
      continue;
    // A node that may drop has its mode as its third input.
    auto value = std::make_shared<std::vector<std::byte>>(1, std::byte{0});
    onnx_model::Tensor &mode = no.emplace_back();
    mode.name = node.name + "/no training";
    mode.type = DType::Bool;
    mode.bytes = *value;
    mode.owner = value;
    node.inputs.resize(3);
    node.inputs[2] = mode.name;
  }
  auto &all = model.graph.initializers;
  all.insert(all.end(), no.begin(), no.end());
}

/// "f32 [3, 4]".
static std::string typeText(DType type, const std::vector<int64_t> &shape) {
  std::string text;
  for (int64_t extent : shape)
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return std::string(name(type)) + " [" + text + "]";
}

StepFlags partita::flagsOf(mlir::FunctionOpInterface step) {
  StepFlags flags;
  for (unsigned i = 0; i < step.getNumResults(); ++i) {
    auto name = step.getResultAttrOfType<mlir::StringAttr>(i, "graph.name");
    if (!name || dist::resultState(step, i))
      continue;
    if (name.getValue() == train::skippedOutput)
      flags.skipped = name.str();
    if (name.getValue() == train::stopOutput)
      flags.stop = name.str();
  }
  return flags;
}

Expected<void> partita::initialize(mlir::MLIRContext *context, onnx_model::Model &model) {
  if (model.initialized.empty())
    return {};
  onnx_model::Model program;
  program.path = model.path;
  program.opsets = model.opsets;
  program.keepsLoops = model.keepsLoops;
  program.graph = std::move(model.initialization);
  program.graph.outputTypes.clear(); // compared below, with the initializers
  auto imported = importModel(context, program);
  if (!imported)
    return tl::unexpected(imported.error());
  auto weights = [&](llvm::StringRef name) -> Expected<HostTensor> {
    const onnx_model::Tensor &tensor = imported->weights.find(name)->second;
    return HostTensor{tensor.type, tensor.shape,
                      std::vector<std::byte>(tensor.bytes.begin(), tensor.bytes.end())};
  };
  auto made =
      evaluate(imported->module->lookupSymbol<mlir::func::FuncOp>("main"), {}, weights);
  if (!made)
    return makeError("'" + model.path + "': its initialization: " + made.error().message);
  for (size_t i = 0; i < made->size(); ++i) {
    auto tensor =
        std::find_if(model.graph.initializers.begin(), model.graph.initializers.end(),
                     [&](const auto &t) { return t.name == model.initialized[i]; });
    if (tensor == model.graph.initializers.end())
      continue; // nothing reads it
    HostTensor &value = (*made)[i];
    if (tensor->type != value.type || tensor->shape != value.shape)
      return makeError("'" + model.path + "': initializer '" + tensor->name + "' is " +
                       typeText(tensor->type, tensor->shape) +
                       ", but its initialization makes " +
                       typeText(value.type, value.shape));
    auto owner = std::make_shared<std::vector<std::byte>>(std::move(value.bytes));
    tensor->file.clear();
    tensor->offset = 0;
    tensor->bytes = *owner;
    tensor->owner = owner;
  }
  return {};
}
