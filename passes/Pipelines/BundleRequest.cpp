//===- BundleRequest.cpp - What a bundle was compiled by ------------------===//
#include "passes/Pipelines/BundleRequest.h"

#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Bundle/Evaluation.h"

#include <filesystem>

using namespace partita;
namespace fs = std::filesystem;

/// The place of a file that came with the model and may have moved with it. Its name
/// alone comes last, as another file of this name may lie beside the model.
static std::string movedWith(const std::string &model, const std::string &recorded,
                             const std::string &path) {
  std::error_code unreadable;
  std::string folder = fs::path(model).parent_path().string();
  folder = folder.empty() ? "." : folder;
  std::string beside = relativePath(path, fs::path(recorded).parent_path().string());
  for (const std::string &place : {folder + "/" + beside, path})
    if (!beside.empty() && fs::is_regular_file(place, unreadable))
      return place;
  return findRecorded(folder, "", path);
}

static Expected<void> readBindings(ModelSource &model, const Plan &plan) {
  for (const std::string &text : plan.entry().shapes) {
    auto shape = onnx_model::parseShapeBinding(text);
    if (!shape)
      return tl::unexpected(shape.error());
    model.shapes.push_back(std::move(*shape));
  }
  for (const std::string &text : plan.constants) {
    size_t file = text.find('=') + 1;
    auto constant = onnx_model::readConstBinding(
        text.substr(0, file) + movedWith(model.file, plan.model, text.substr(file)));
    if (!constant)
      return tl::unexpected(constant.error());
    model.constants.push_back(std::move(*constant));
  }
  model.states = plan.states;
  return {};
}

/// A bundle has its specification with it, as older ones had not.
static Expected<void> readStep(Request &request, const std::string &bundle,
                               const Plan &plan) {
  std::error_code unreadable;
  const std::string own = bundle + "/" + specificationFileName;
  const std::string train = fs::exists(own, unreadable)
                                ? own
                                : movedWith(request.model.file, plan.model, plan.train);
  if (!fs::exists(train, unreadable))
    return makeError("the specification '" + plan.train +
                     "' of the bundle's training step is not there");
  auto read = readTraining(train);
  if (!read)
    return tl::unexpected(read.error());
  request.train = std::move(*read);
  request.evaluates = isEvaluation(plan.entry().name);
  return {};
}

Expected<Request> partita::requestOf(const std::string &bundle,
                                     const BundleSource &source) {
  auto file = planFile(bundle, source.entry);
  if (!file)
    return tl::unexpected(file.error());
  auto plan =
      readPlan(*file).and_then([&](const Plan &all) { return all.of(source.entry); });
  if (!plan)
    return tl::unexpected(plan.error());
  Request request;
  ModelSource &model = request.model;
  model.file = source.model.empty()
                   ? findRecorded(bundle, plan->modelRelative, plan->model)
                   : source.model;
  std::error_code unreadable; // a path that is too long is not there either
  if (!fs::exists(model.file, unreadable))
    return makeError("the bundle's model '" + model.file +
                     "' is not there; --model says where it is now");
  for (const std::string &other : plan->others)
    model.others.push_back(movedWith(model.file, plan->model, other));
  auto ok = readBindings(model, *plan);
  if (ok && plan->train.empty())
    request.compute = computeFromName(plan->entry().compute);
  request.keepF32 = plan->entry().keepF32;
  request.accuracyLevel = plan->entry().accuracyLevel;
  request.commInFlight = plan->entry().calls.inFlight;
  request.commReuse = plan->entry().calls.reuse;
  request.allToAll = plan->entry().calls.allToAll;
  if (ok && !plan->train.empty())
    ok = readStep(request, bundle, *plan);
  if (!ok)
    return tl::unexpected(ok.error());
  model.dataFolders = dataFolders(bundle, source.weightsDir);
  if (plan->entry().stages.size() > 1) {
    // An evaluation has the rows of a micro-batch, of which the plan would tell.
    if (source.plansStages)
      request.plan = std::move(*plan);
    else if (request.evaluates)
      request.cut.microBatches = plan->entry().accumulation.value_or(1);
    return request;
  }
  auto meshes = readMeshes(plan->entry().stages[0].mesh);
  if (!meshes)
    return tl::unexpected(meshes.error());
  request.meshes = std::move(*meshes);
  request.plan = std::move(*plan);
  return request;
}
