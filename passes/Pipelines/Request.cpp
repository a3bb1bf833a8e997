//===- Request.cpp - What a person asks of the compiler -------------------===//
#include "passes/Pipelines/Request.h"

#include "partita/Base/Files/File.h"
#include "partita/Base/Units.h"

#include <limits>
#include <tuple>

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

Topology partita::topologyOf(const PlanLinks &links) {
  Topology topology;
  topology.device.launch = links.launch;
  for (const PlanLinks::Level &level : links.levels)
    topology.levels.push_back({.name = level.name,
                               .size = level.size,
                               .bandwidth = level.bandwidth,
                               .latency = level.latency,
                               .ramp = level.ramp,
                               .sharesMemory = level.sharesMemory});
  return topology;
}

PlanLinks partita::linksOf(const Topology &topology) {
  PlanLinks links{topology.device.launch, {}};
  for (const LinkLevel &level : topology.levels)
    links.levels.push_back({level.name, level.size, level.effective(), level.latency,
                            level.ramp, level.sharesMemory});
  return links;
}

/// "8 on 'host', 2 on 'network'": sizes and names of levels.
static std::string levelsText(const PlanLinks &links) {
  std::string text;
  for (const PlanLinks::Level &level : links.levels)
    text += (text.empty() ? "" : ", ") + std::to_string(level.size) + " on '" +
            level.name + "'";
  return text;
}

/// A number that an option and a plan may say, and must say alike.
static Expected<std::optional<int64_t>> saidBy(const char *option,
                                               const std::optional<int64_t> &given,
                                               const std::optional<int64_t> &planned,
                                               const std::string &plan) {
  if (given && planned && *given != *planned)
    return makeError(plan + " is a plan for " + option + " " + std::to_string(*planned) +
                     ", and this is " + option + " " + std::to_string(*given));
  return given ? given : planned;
}

/// Checks numbers that a plan says by the ranges of options and of cluster files.
static Expected<void> checkCalls(const PlanCalls &calls, const std::string &plan) {
  auto outside = [&](const char *member, double value, double least, double most) {
    return makeError(formatted("%s: \"%s\" is %.10g: expected %.10g to %.10g",
                               plan.c_str(), member, value, least, most));
  };
  for (auto [member, value, most] :
       {std::tuple("in_flight", calls.inFlight, Request::mostInFlight),
        std::tuple("reuse", calls.reuse, Request::mostReuse)})
    if (value && (*value < 0 || *value > most))
      return outside(member, static_cast<double>(*value), 0, static_cast<double>(most));
  if (!calls.hierarchical)
    return {};
  constexpr double most = std::numeric_limits<double>::max();
  constexpr int64_t mostDevices = 1 << 20;
  if (calls.hierarchical->levels.size() > Topology::maxLevels)
    return outside("levels", static_cast<double>(calls.hierarchical->levels.size()), 1,
                   Topology::maxLevels);
  int64_t devices = 1;
  for (const PlanLinks::Level &it : calls.hierarchical->levels) {
    if (it.size < 1 || it.size > mostDevices / devices)
      return outside("size", static_cast<double>(it.size), 1,
                     static_cast<double>(mostDevices / devices));
    devices *= it.size;
    if (!(it.bandwidth > 0))
      return outside("bandwidth", it.bandwidth, 1, most);
    for (auto [member, value] :
         {std::pair("latency", it.latency), std::pair("ramp", it.ramp)})
      if (!(value >= 0))
        return outside(member, value, 0, most);
  }
  if (!(calls.hierarchical->launch >= 0))
    return outside("launch", calls.hierarchical->launch, 0, most);
  return {};
}

Expected<PlanCalls> partita::callsOf(const Request &request, const PlanFacts *known) {
  const std::string plan =
      request.plan ? "'" + request.plan->file + "'" : "'" + request.levels.dump + "'";
  PlanCalls calls = known ? known->calls : PlanCalls();
  if (auto ok = checkCalls(calls, plan); !ok)
    return tl::unexpected(ok.error());
  auto inFlight = saidBy("--comm-in-flight", request.commInFlight, calls.inFlight, plan);
  auto reuse = saidBy("--comm-reuse", request.commReuse, calls.reuse, plan);
  for (const auto *said : {&inFlight, &reuse})
    if (!*said)
      return tl::unexpected(said->error());
  calls.inFlight = *inFlight;
  calls.reuse = *reuse;
  calls.allToAll = calls.allToAll && request.allToAll;
  if (!request.hierarchical)
    return calls;
  if (!request.machine.cluster && !calls.hierarchical)
    return makeError("--hierarchical needs --cluster, whose levels say which ranks are "
                     "near each other");
  if (request.machine.cluster) {
    PlanLinks links = linksOf(*request.machine.cluster);
    if (calls.hierarchical && *calls.hierarchical != links)
      return makeError(plan + " is a plan for --hierarchical with levels of " +
                       levelsText(*calls.hierarchical) + ", and --cluster " +
                       request.machine.file + " has other links: " + levelsText(links));
    calls.hierarchical = std::move(links);
  }
  return calls;
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
