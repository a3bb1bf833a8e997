//===- Sources.cpp - What tries of one request share ----------------------===//
#include "passes/Pipelines/Compiler.h"

#include "dialects/Dist/Dist.h"
#include "partita/Onnx/Load.h"
#include "partita/Onnx/MergeRanks.h"
#include "partita/Onnx/MergeStages.h"
#include "partita/Onnx/MergeStep.h"
#include "passes/Import/Import.h"
#include "passes/Pipelines/Passes.h"
#include "passes/Pipelines/Pipelines.h"
#include "passes/Pipelines/Training.h"

#include "mlir/IR/DialectRegistry.h"
#include "llvm/ADT/STLExtras.h"

#include <filesystem>

using namespace mlir;
using namespace partita;

static DialectRegistry allDialects() {
  DialectRegistry registry;
  registerPartitaDialects(registry);
  return registry;
}

Program Program::clone() const {
  return {module.get().clone(), weights, inputNames, dims, sizes, flags, rows};
}

Sources::Sources(bool weights) : context(allDialects()), weights(weights) {
  context.loadDialect<dist::DistDialect>(); // its attributes are made before any pass
  // Passes here are short and run on one function: threads would only cost start-up.
  context.disableMultithreading();
}

Job Job::upTo(Level level) const {
  Job job = *this;
  job.request.levels.to = level;
  job.request.levels.dump.clear();
  job.request.told = {};
  return job;
}

static Expected<std::vector<onnx_model::Model>>
loadFiles(const ModelSource &source, const onnx_model::LoadOptions &options) {
  std::vector<onnx_model::Model> files;
  for (size_t r = 0; r <= source.others.size(); ++r) {
    auto model =
        onnx_model::loadModel(r == 0 ? source.file : source.others[r - 1], options);
    if (!model)
      return tl::unexpected(model.error());
    files.push_back(std::move(*model));
  }
  return files;
}

/// The model, which may lie in a file per rank.
static Expected<onnx_model::Model> loadRanks(const Request &request,
                                             const onnx_model::LoadOptions &options) {
  const ModelSource &source = request.model;
  if (source.others.empty()) {
    auto model = onnx_model::loadModel(source.file, options);
    if (model && onnx_model::isOfStep(*model))
      return onnx_model::mergeStep({std::move(*model)}, request.mesh());
    if (model && request.mode == ShardMode::Manual)
      if (auto ok = onnx_model::checkRank(*model, 0, 1); !ok)
        return tl::unexpected(ok.error());
    return model;
  }
  if (request.mode != ShardMode::Manual && !request.plan)
    return makeError("'" + source.file + "' and " + std::to_string(source.others.size()) +
                     " other files are a program per rank, which --mode manual compiles");
  return loadFiles(source, options).and_then([&](std::vector<onnx_model::Model> files) {
    return onnx_model::isOfStep(files.front())
               ? onnx_model::mergeStep(std::move(files), request.mesh())
               : onnx_model::mergeRanks(std::move(files), request.mesh());
  });
}

static onnx_model::LoadOptions loadOptions(const Request &request, Sources::Form form,
                                           bool weights) {
  onnx_model::LoadOptions load;
  load.shapes = request.model.shapes;
  load.constants = request.model.constants;
  load.weights = weights;
  load.dataFolders = request.model.dataFolders;
  load.wide = form.wide;
  load.keepLoops = form.keepLoops;
  if (request.train && request.train->spec.trainingInfo)
    load.trainingInfo = static_cast<size_t>(*request.train->spec.trainingInfo);
  return load;
}

Expected<onnx_model::StagedModels>
Sources::readStages(const Request &request, Form form, const std::vector<Mesh> &meshes,
                    const std::vector<std::vector<int64_t>> &ranks) const {
  return loadFiles(request.model, loadOptions(request, form, weights))
      .and_then([&](std::vector<onnx_model::Model> files) {
        return onnx_model::mergeStages(std::move(files), meshes, ranks);
      });
}

Expected<std::shared_ptr<const onnx_model::Model>> Sources::read(const Request &request,
                                                                 Form form) {
  const ModelSource &source = request.model;
  std::string shapes;
  for (const onnx_model::ShapeBinding &binding : source.shapes)
    shapes += binding.str() + " ";
  auto &model = known[{shapes, form}];
  if (model)
    return model;
  std::error_code failure;
  if (std::filesystem::is_directory(source.file, failure))
    return makeError("'" + source.file +
                     "' is a folder; expected an ONNX file (`partita report` shows "
                     "bundles)");
  const onnx_model::LoadOptions load = loadOptions(request, form, weights);
  auto loaded = loadRanks(request, load);
  if (!loaded)
    return tl::unexpected(loaded.error());
  if (auto ok = initialize(&context, *loaded); !ok) {
    // An initialization may have a loop that cannot stay one.
    if (form.keepLoops)
      return read(request, {form.wide, /*keepLoops=*/false});
    return tl::unexpected(ok.error());
  }
  if (request.evaluates)
    dropNothing(*loaded);
  return model = std::make_shared<const onnx_model::Model>(std::move(*loaded));
}

Expected<ImportedModel>
partita::importLooped(const Job &job, std::shared_ptr<const onnx_model::Model> &model,
                      std::vector<UnsupportedNode> *unsupported,
                      const TrainingImport *training) {
  MLIRContext &context = job.sources->context;
  const Mesh mesh = job.request.mesh();
  bool hasLoops = llvm::any_of(model->graph.nodes, [](const onnx_model::Node &node) {
    return node.domain == onnx_model::ownDomain && node.opType == "RepeatEnd";
  });
  if (!hasLoops)
    return importModel(&context, *model, unsupported, training, mesh);
  if (auto imported = importModel(&context, *model, nullptr, training, mesh))
    return imported;
  // An iteration that needs its number known, or what is carried in one shape.
  auto again = job.sources->read(job.request, {job.form.wide, false});
  if (!again)
    return tl::unexpected(again.error());
  model = std::move(*again);
  return importModel(&context, *model, unsupported, training, mesh);
}
