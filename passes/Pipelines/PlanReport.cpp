//===- PlanReport.cpp - What a search has found, as a page ----------------===//
#include "passes/Pipelines/PlanReport.h"

#include "partita/Base/Units.h"
#include "partita/Report/PlanPage.h"
#include "partita/Search/Profile.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <tuple>

using namespace partita;
using namespace partita::search;

static double secondsOf(Picos time) { return static_cast<double>(time) * 1e-12; }

/// "h.*.mlp.fc" for "h.12.mlp.fc": equal layers say the same.
static std::string layerless(const std::string &name) {
  std::string result;
  for (char c : name)
    if (!std::isdigit(static_cast<unsigned char>(c)))
      result += c;
    else if (result.empty() || result.back() != '*')
      result += '*';
  return result;
}

static std::vector<std::string> axesOf(const Mesh &mesh, const Strategy &strategy) {
  std::vector<std::string> axes;
  for (const AxisRef &axis : canonical(strategy.axes()))
    axes.push_back(mesh.str(axis));
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

static const char *kindText(const FlowOp &op) {
  switch (op.kind) {
  case FlowKind::Argument:
    return "input";
  case FlowKind::State:
    return "state";
  case FlowKind::Sink:
    return "output";
  default:
    return isMatmul(op) ? "product" : "kernel";
  }
}

static void addStrategies(report::PlanPage &page, const FlowGraph &graph,
                          const Decided &plan) {
  std::map<std::pair<std::string, std::string>, size_t> known;
  for (size_t o = 0; o < graph.ops.size(); ++o) {
    const FlowOp &op = graph.ops[o];
    if (op.kind == FlowKind::Source)
      continue;
    std::string strategy = plan.strategies[o].str(graph.mesh, op.rule);
    std::string node = layerless(op.name);
    auto [place, added] = known.try_emplace({node, strategy}, page.strategies.size());
    if (!added) {
      ++page.strategies[place->second].copies;
      continue;
    }
    page.strategies.push_back({node, kindText(op), std::move(strategy),
                               axesOf(graph.mesh, plan.strategies[o]), 1});
  }
}

static void addPlans(report::PlanPage &page, const PlanStory &story, const Found &found) {
  auto limit = story.target.memoryLimit;
  page.plans.push_back({"this plan", page.seconds, found.memory.peak(), true});
  for (const KnownPlan &plan : story.known)
    page.plans.push_back(
        {plan.name, secondsOf(plan.time), plan.memory, !limit || plan.memory <= *limit});
  for (const NodeResult &it : story.result.nodes)
    page.meshes.emplace_back(it.mesh.str(), meshText(it));
}

std::string partita::planReport(const PlanStory &story, Timing &timing,
                                const std::string &model) {
  const NodeResult &best = story.best();
  const Found &found = *best.found;
  const Topology &topology = story.target.topology;
  Profile profile = profileOf(timing, found.plan);
  report::PlanPage page;
  page.model = model;
  page.device = topology.device.name;
  for (const Mesh::Axis &axis : best.mesh.axes())
    page.axes.emplace_back(axis.name, axis.size);
  for (size_t l = 0; l < topology.levels.size(); ++l)
    page.levels.push_back({topology.levels[l].name, topology.levels[l].size,
                           topology.levels[l].bandwidth, profile.links[l]});
  page.seconds = secondsOf(found.cost.total());
  page.choices = story.result.notes;
  page.boundText = storyBoundText(story);
  if (std::string text = overlapText(story); !text.empty())
    page.choices.insert(page.choices.begin(), std::move(text));
  if (std::string text = ratesText(story.rates); !text.empty())
    page.choices.insert(page.choices.begin(), std::move(text));
  if (!story.name.empty())
    page.choices.insert(page.choices.begin(), "parallelism: " + story.name);
  if (story.result.isGiven) { // priced by kernels, whose times the profile has not
    for (size_t i = 0; i < passNames.size(); ++i)
      page.parts.push_back({passNames[i], secondsOf(found.cost.passes[i].device)});
    page.parts.push_back({"waiting for the host", secondsOf(found.cost.waiting)});
  } else {
    for (const auto &[name, time] : profile.parts)
      page.parts.push_back({name, secondsOf(time)});
  }
  page.memory = std::move(profile.memory);
  page.memoryLimit = story.target.memoryLimit;
  for (const MemoryShare &share : found.memory.largest)
    page.memoryNotes.push_back(bytesText(share.bytes) +
                               (share.isWeight ? "  weight " : "  value ") + share.name);
  for (const Reshard &it : story.reshards)
    page.conversions.push_back(durationText(secondsOf(it.time * it.copies)) + " in " +
                               std::to_string(it.copies) + ": " + it.value + " from " +
                               it.from + " to " + it.to);
  addStrategies(page, timing.graph, found.plan);
  addPlans(page, story, found);
  return report::htmlOf(page);
}
