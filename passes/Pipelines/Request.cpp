//===- Request.cpp - What a person asks of the compiler -------------------===//
#include "passes/Pipelines/Request.h"

#include "partita/Base/Files/File.h"

using namespace partita;

Expected<Training> partita::readTraining(const std::string &file) {
  auto text = readFile(file);
  if (!text)
    return tl::unexpected(text.error());
  return train::parseSpec(*text, file).map([&](train::Spec spec) {
    return Training{file, std::move(*text), std::move(spec)};
  });
}

Expected<std::vector<Mesh>> partita::readMeshes(const std::string &text) {
  std::vector<Mesh> meshes;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(';', begin), text.size());
    auto mesh = Mesh::parse(std::string_view(text).substr(begin, end - begin));
    if (!mesh)
      return tl::unexpected(mesh.error());
    if (mesh->axes().empty() && text.find(';') != std::string::npos)
      return makeError("--mesh \"" + text + "\": the mesh of stage " +
                       std::to_string(meshes.size()) +
                       " is empty; an axis of size 1 is one rank");
    meshes.push_back(std::move(*mesh));
    begin = end + 1;
  }
  return meshes;
}

Compute partita::computeOf(const Request &request) {
  return request.train ? request.train->spec.compute
                       : request.compute.value_or(Compute::F32);
}

std::vector<std::string> partita::keptOf(const Request &request) {
  return request.keepF32.empty() && request.plan ? request.plan->entry().keepF32
                                                 : request.keepF32;
}

std::optional<int64_t> partita::accuracyLevelOf(const Request &request) {
  return !request.accuracyLevel && request.plan ? request.plan->entry().accuracyLevel
                                                : request.accuracyLevel;
}

/// "--keep-f32 a --keep-f32 b"; "no --keep-f32".
static std::string keptText(const std::vector<std::string> &kept) {
  std::string text;
  for (const std::string &node : kept)
    text += (text.empty() ? "--keep-f32 " : " --keep-f32 ") + node;
  return text.empty() ? "no --keep-f32" : text;
}

Expected<void> partita::checkCompute(const Request &request) {
  const Compute compute = computeOf(request);
  const std::string type(name(compute));
  if (request.train && request.compute)
    return makeError("--compute " + std::string(name(*request.compute)) +
                     " and --train " + request.train->file +
                     " do not go together: \"compute\" of the specification says what a "
                     "training step computes in");
  if (request.train && !request.keepF32.empty())
    return makeError("--keep-f32 and --train " + request.train->file +
                     " do not go together: it is for --compute");
  if (request.train && request.accuracyLevel)
    return makeError("--accuracy-level " + std::to_string(*request.accuracyLevel) +
                     " and --train " + request.train->file +
                     " do not go together: a training step expands weights of 4 bits");
  if (compute == Compute::TF32)
    return makeError("--compute tf32: tf32 is a type of GPUs, and target '" +
                     request.target.name + "' is for CPUs; expected f32, bf16 or f16");
  if (compute == Compute::F32 && !request.keepF32.empty())
    return makeError(keptText(request.keepF32) +
                     ": the model computes in f32; expected --compute bf16 or f16");
  if (!request.plan)
    return {};
  const PlanEntry &plan = request.plan->entry();
  if (plan.compute != type)
    return makeError("'" + request.plan->file + "' is a plan for --compute " +
                     plan.compute + ", and this is --compute " + type);
  if (keptOf(request) != plan.keepF32)
    return makeError("'" + request.plan->file + "' is a plan for " +
                     keptText(plan.keepF32) + ", and this has " +
                     keptText(request.keepF32));
  const std::optional<int64_t> level = accuracyLevelOf(request);
  if (level != plan.accuracyLevel)
    return makeError("'" + request.plan->file + "' is a plan for " +
                     (plan.accuracyLevel
                          ? "--accuracy-level " + std::to_string(*plan.accuracyLevel)
                          : "no --accuracy-level") +
                     ", and this is --accuracy-level " + std::to_string(*level));
  return {};
}

std::string partita::str(const std::vector<Mesh> &meshes) {
  std::string text;
  for (const Mesh &mesh : meshes)
    text += (text.empty() ? "" : ";") + mesh.str();
  return text;
}

Expected<void> partita::readSchedule(const std::string &text, Cut &cut) {
  if (auto known = stepScheduleOf(text)) {
    cut.schedule = known;
    return {};
  }
  if (!text.ends_with(".csv"))
    return makeError("there is no schedule '" + text + "': expected " +
                     stepScheduleNames() + " or a file FILE.csv");
  return readFile(text)
      .and_then([&](const std::string &content) { return readStepText(content, text); })
      .map([&](PipelineStep order) { cut.order = std::move(order); });
}
