//===- StagePlaces.cpp - The groups of ranks of a pipeline ----------------===//
#include "passes/Pipelines/StagePlaces.h"

#include <algorithm>

using namespace partita;

StagePlaces::StagePlaces(Request &request, const Hints &hints)
    : meshes(request.meshes.empty() ? std::vector{Mesh()} : request.meshes),
      request(request), hints(hints) {
  order.microBatches = request.cut.microBatches;
}

int32_t StagePlaces::wanted() const {
  return std::max<int32_t>({static_cast<int32_t>(request.cut.stages),
                            static_cast<int32_t>(meshes.size()),
                            static_cast<int32_t>(hints.groups.size())});
}

void StagePlaces::besideStep(const Feedback &step) {
  order = {step.groups, /*microBatches=*/1, /*round=*/1};
  meshes = step.meshes;
}

/// "1 stage", "2 micro-batches".
static std::string countText(int64_t number, std::string_view what) {
  const char *plural = number == 1 ? "" : what.ends_with("h") ? "es" : "s";
  return std::to_string(number) + " " + std::string(what) + plural;
}

static tl::unexpected<Error> differs(const std::string &file, const std::string &has,
                                     const std::string &given) {
  return makeError("'" + file + "' is a plan with " + has + ", not " + given);
}

Expected<void> StagePlaces::follow(const std::string &file, const PlanEntry &plan) {
  order = orderOf(plan);
  const auto stages = static_cast<int64_t>(plan.stages.size());
  Cut &cut = request.cut;
  if (cut.microBatches > 1 && plan.microBatches != cut.microBatches)
    return differs(file, countText(plan.microBatches, "micro-batch"),
                   countText(cut.microBatches, "micro-batch"));
  cut.microBatches = plan.microBatches;
  if (cut.stages > 1 && cut.stages != stages)
    return differs(file, countText(stages, "stage"), countText(cut.stages, "stage"));
  if (cut.groups > 0 && cut.groups != order.numGroups())
    return differs(file, countText(order.numGroups(), "group"),
                   countText(cut.groups, "group"));
  return followOrder(file, plan).and_then([&] { return followMeshes(file, plan); });
}

Expected<void> StagePlaces::followOrder(const std::string &file, const PlanEntry &plan) {
  Cut &cut = request.cut;
  if (!plan.schedule.empty()) {
    const bool isNamed = stepScheduleOf(plan.schedule).has_value();
    const std::string given = cut.order      ? stepText(*cut.order)
                              : cut.schedule ? name(*cut.schedule)
                                             : plan.schedule;
    if (given != plan.schedule)
      return differs(file, isNamed ? "schedule " + plan.schedule : "a schedule of a file",
                     cut.order ? "that of --schedule" : given);
    auto ok = isNamed ? readSchedule(plan.schedule, cut)
                      : readStepText(plan.schedule, file).map([&](PipelineStep step) {
                          cut.order = std::move(step);
                        });
    if (!ok)
      return ok;
  }
  const bool trains = request.train && !request.evaluates;
  if (const int64_t parts = trains ? request.train->spec.accumulation : 1;
      parts > 1 && parts != plan.microBatches)
    return differs(file, countText(plan.microBatches, "micro-batch"),
                   countText(parts, "micro-batch") + " (\"accumulation\")");
  return {};
}

Expected<void> StagePlaces::followMeshes(const std::string &file, const PlanEntry &plan) {
  std::vector<Mesh> own(static_cast<size_t>(order.numGroups()));
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    auto mesh = Mesh::parse(plan.stages[s].mesh);
    if (!mesh)
      return tl::unexpected(mesh.error());
    own[static_cast<size_t>(order.groupOf[s])] = std::move(*mesh);
    for (const PlanNode &node : plan.stages[s].nodes)
      // A source is wherever it is read, and gradients follow.
      if (!node.strategy.empty() && node.phase == Phase::Forward)
        planned.emplace(node.name, static_cast<int32_t>(s));
  }
  if (!request.meshes.empty() && meshes != own &&
      !(meshes.size() == 1 &&
        std::ranges::all_of(own, [&](const Mesh &mesh) { return mesh == meshes[0]; })))
    return makeError("'" + file + "' is a plan for other meshes than --mesh \"" +
                     str(request.meshes) + "\"");
  meshes = std::move(own);
  for (size_t s = 0; s < plan.stages.size(); ++s)
    if (const auto &ranks = plan.stages[s].ranks;
        !ranks.empty() && ranks != devices().ranksOf(order.groupOf[s]))
      return makeError("'" + file + "': stage " + std::to_string(s) +
                       " is on ranks that its mesh does not have there");
  return {};
}

Expected<void> StagePlaces::place(int64_t stages) {
  const Cut &cut = request.cut;
  order.groupOf = hints.groups;
  if (!hints.groups.empty() && static_cast<int64_t>(hints.groups.size()) != stages)
    return makeError(hints.file + ": groups: expected one number for each of the " +
                     std::to_string(stages) + " stages, got " +
                     std::to_string(hints.groups.size()));
  if (cut.order && cut.order->stages() == stages) {
    order.groupOf = cut.order->groupOf;
  } else if (hints.groups.empty()) {
    auto placed = placedStages(cut.schedule.value_or(StepSchedule()), stages, cut.groups);
    if (!placed)
      return tl::unexpected(placed.error());
    order.groupOf = std::move(*placed);
  }
  const int64_t groups = order.numGroups();
  if (cut.groups > 0 && cut.groups != groups)
    return makeError("--groups is " + std::to_string(cut.groups) +
                     (hints.groups.empty()
                          ? ", there are " + std::to_string(stages) + " stages"
                          : ", the hints make " + std::to_string(groups)));
  if (meshes.size() > 1 && meshes.size() != static_cast<size_t>(groups))
    return makeError("--mesh has " + std::to_string(meshes.size()) +
                     " meshes, there are " + std::to_string(groups) +
                     (groups == stages ? " stages" : " groups of ranks"));
  if (auto ok = checkOrder(stages); !ok)
    return ok;
  const bool isGpipe = cut.schedule == StepSchedule{ScheduleKind::Gpipe};
  // A group with one stage takes micro-batches in their order.
  order.round = groups == stages ? 1 : isGpipe ? cut.microBatches : groups;
  return {};
}

Expected<void> StagePlaces::checkOrder(int64_t stages) const {
  const Cut &cut = request.cut;
  if (request.train)
    return {};
  if (cut.order)
    return makeError("--schedule: a file has the order of a training step (--train)");
  if (!cut.schedule)
    return {};
  if (cut.schedule != StepSchedule{ScheduleKind::Gpipe} &&
      cut.schedule != StepSchedule{ScheduleKind::Interleaved})
    return makeError("--schedule " + name(*cut.schedule) +
                     " orders the backward pass of a training step (--train)");
  if (order.numGroups() == stages)
    return makeError("--schedule " + name(*cut.schedule) +
                     " is for groups of ranks with several stages (--groups), of which "
                     "there are none: it would have no effect");
  return {};
}
