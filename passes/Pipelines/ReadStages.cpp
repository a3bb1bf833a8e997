//===- ReadStages.cpp - A pipeline from the files of its ranks ------------===//
#include "passes/Pipelines/ReadStages.h"

#include "dialects/Graph/Graph.h"
#include "partita/Onnx/MergeRanks.h"
#include "passes/Import/MarkStates.h"
#include "passes/Pipelines/Pipelines.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <charconv>

using namespace mlir;
using namespace partita;
using onnx_model::Model;
using onnx_model::StagedModels;

//===-- Ends --------------------------------------------------------------===//

/// The number that all files say; 0: none does.
static Expected<int64_t> saidMicroBatches(const StagedModels &models) {
  constexpr int64_t most = 65536; // as of --micro-batches
  int64_t said = -1;
  for (const Model &model : models.stages) {
    int64_t own = 0;
    auto found = model.metadata.find(std::string(onnx_model::microBatchesKey));
    if (found != model.metadata.end()) {
      const std::string &text = found->second;
      auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), own);
      if (failure != std::errc() || end != text.data() + text.size() || own < 1 ||
          own > most)
        return makeError("'" + model.path + "': property '" +
                         std::string(onnx_model::microBatchesKey) + "' is \"" + text +
                         "\", which is no number of micro-batches from 1 to " +
                         std::to_string(most));
    }
    if (said >= 0 && own != said)
      return makeError("'" + models.stages[0].path + "' and '" + model.path +
                       "' do not say the same number of micro-batches");
    said = own;
  }
  return said;
}

/// Puts names in an order; those that it does not have come last.
static void sortBy(const std::vector<std::string> &order,
                   std::vector<std::string> &names) {
  std::ranges::stable_sort(names, {}, [&](const std::string &name) {
    return std::ranges::find(order, name) - order.begin();
  });
}

/// Outputs in the model's order, if the files say it; else stage by stage.
static Expected<std::vector<std::string>>
outputsOf(const StagedModels &models, const std::set<std::string> &crossing) {
  std::vector<std::string> all;
  for (const Model &model : models.stages)
    for (const std::string &output : model.graph.outputs) {
      if (crossing.contains(output))
        continue;
      if (llvm::is_contained(all, output))
        return makeError("'" + model.path + "': output '" + output +
                         "' is one of an earlier stage, too");
      all.push_back(output);
    }
  std::vector<std::string> order = linesOf(models.stages[0], onnx_model::outputsKey);
  for (const std::string &name : order)
    if (!llvm::is_contained(all, name))
      return makeError("'" + models.stages[0].path + "': property '" +
                       std::string(onnx_model::outputsKey) + "' names output '" + name +
                       "', which no stage gives");
  sortBy(order, all);
  return all;
}

/// Inputs of the model, in the order in which stages name them first.
static Expected<std::vector<std::pair<std::string, onnx_model::ValueInfo>>>
inputsOf(const StagedModels &models, const std::set<std::string> &crossing) {
  std::vector<std::pair<std::string, onnx_model::ValueInfo>> inputs;
  for (const Model &model : models.stages)
    for (const onnx_model::ValueInfo &input : model.graph.inputs) {
      if (crossing.contains(input.name))
        continue;
      auto known = std::ranges::find(inputs, input.name,
                                     [](const auto &each) { return each.first; });
      if (known == inputs.end())
        inputs.emplace_back(input.name, input);
      else if (known->second.type != input.type || known->second.shape != input.shape)
        return makeError("'" + model.path + "': input '" + input.name + "' is " +
                         onnx_model::typeText(input.type, input.shape) +
                         ", and in an earlier stage " +
                         onnx_model::typeText(known->second.type, known->second.shape));
    }
  return inputs;
}

Expected<StagedEnds> partita::endsOf(const StagedModels &models, int64_t asked) {
  std::set<std::string> crossing, sliced;
  for (const StagedModels::Crossing &each : models.crossings)
    crossing.insert(each.name);
  auto said = saidMicroBatches(models);
  if (!said)
    return tl::unexpected(said.error());
  if (*said > 0 && asked > 1 && asked != *said)
    return makeError("'" + models.stages[0].path + "' is the program of one of " +
                     std::to_string(*said) + " micro-batches, and --micro-batches is " +
                     std::to_string(asked));
  StagedEnds ends;
  ends.microBatches = *said > 0 ? *said : asked;
  auto outputs = outputsOf(models, crossing);
  if (!outputs)
    return tl::unexpected(outputs.error());
  ends.outputs = std::move(*outputs);
  for (const Model &model : models.stages)
    for (const std::string &name : linesOf(model, onnx_model::slicedKey))
      sliced.insert(name);
  auto inputs = inputsOf(models, crossing);
  if (!inputs)
    return tl::unexpected(inputs.error());
  for (const auto &[name, input] : *inputs) {
    ends.inputs.push_back(name);
    if (!input.shape.empty())
      ends.sliced.insert(name);
  }
  sortBy(linesOf(models.stages[0], onnx_model::inputsKey), ends.inputs);
  ends.sliced.insert(ends.outputs.begin(), ends.outputs.end());
  if (*said > 1)
    for (const std::string &output : ends.outputs)
      if (!sliced.contains(output))
        return makeError("'" + models.stages[0].path + "': property '" +
                         std::string(onnx_model::slicedKey) + "' does not name output '" +
                         output + "', of which each of " + std::to_string(*said) +
                         " micro-batches gives its own");
  if (*said > 0)
    ends.sliced = std::move(sliced);
  return ends;
}

//===-- Programs ----------------------------------------------------------===//

Expected<void> partita::importStage(Compiler &product, const Model &model,
                                    const Mesh &mesh) {
  auto imported = importModel(&product.context, model, nullptr, nullptr, mesh);
  if (!imported)
    return tl::unexpected(imported.error());
  product.module = std::move(imported->module);
  product.weights.insert(std::make_move_iterator(imported->weights.begin()),
                         std::make_move_iterator(imported->weights.end()));
  if (auto ok = markModelStates(*product.module, {}, model); !ok)
    return ok;
  if (auto ok = product.runPasses("00-imported", buildImportedPipeline); !ok)
    return ok;
  product.module->walk([&](Operation *op) {
    product.report.numOps += isa<graph::GraphDialect>(op->getDialect());
  });
  if (llvm::range_size(product.module->getOps<func::FuncOp>()) > 1)
    return makeError("'" + model.path +
                     "' has a loop or a branch that stays one, which "
                     "a stage of a pipeline cannot have");
  return {};
}

/// The type of an argument or result of @main by its name; null: there is none.
static Type typeOf(ModuleOp module, const std::string &name, bool isResult) {
  auto function = module.lookupSymbol<func::FuncOp>("main");
  const unsigned count = isResult ? function.getNumResults() : function.getNumArguments();
  for (unsigned i = 0; i < count; ++i) {
    auto own = isResult ? function.getResultAttrOfType<StringAttr>(i, "graph.name")
                        : function.getArgAttrOfType<StringAttr>(i, "graph.name");
    if (own && own.getValue() == name)
      return isResult ? function.getResultTypes()[i] : function.getArgumentTypes()[i];
  }
  return {};
}

Expected<void> partita::checkSliced(const std::set<std::string> &sliced,
                                    const std::vector<OwningOpRef<ModuleOp>> &stages) {
  for (const std::string &name : sliced)
    for (const OwningOpRef<ModuleOp> &stage : stages)
      for (bool isResult : {false, true})
        if (auto type =
                dyn_cast_if_present<RankedTensorType>(typeOf(*stage, name, isResult));
            type && type.getRank() == 0)
          return makeError(std::string(isResult ? "output '" : "input '") + name +
                           "' has no dims, and no slice of it for each of several "
                           "micro-batches");
  return {};
}

Expected<std::vector<StageCrossing>>
partita::crossingsOf(const StagedModels &models,
                     const std::vector<OwningOpRef<ModuleOp>> &stages) {
  std::vector<StageCrossing> crossings;
  for (const StagedModels::Crossing &each : models.crossings) {
    Type sent = typeOf(*stages[static_cast<size_t>(each.from)], each.name, true);
    for (int32_t to : each.to)
      if (Type taken = typeOf(*stages[static_cast<size_t>(to)], each.name, false);
          taken && taken != sent) {
        std::string text = "value '" + each.name + "' is ";
        llvm::raw_string_ostream(text)
            << sent << " where stage " << each.from << " sends it, and " << taken
            << " where stage " << to << " receives it";
        return makeError(text);
      }
    crossings.push_back({each.name, each.from, each.to});
  }
  return crossings;
}
