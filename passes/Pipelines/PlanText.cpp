//===- PlanText.cpp - What a search has found, for people -----------------===//
#include "passes/Pipelines/PlanText.h"

#include "partita/Base/Files/File.h"
#include "partita/Search/AsHints.h"

#include "partita/Base/Units.h"

#include <algorithm>
#include <cstdio>

using namespace partita;
using namespace partita::search;

static std::string timeText(Picos time) {
  return durationText(static_cast<double>(time) * 1e-12);
}

static std::string memoryText(const Found &found, const PlanTarget &target) {
  std::string result = "memory per device: " + bytesText(found.memory.peak()) + " (" +
                       kindsText(found.memory) + ")";
  if (target.memoryLimit)
    result += " of " + bytesText(*target.memoryLimit) +
              (found.memory.peak() > *target.memoryLimit ? ", which does not fit" : "");
  result += "\n";
  if (const MemoryReserve &reserve = target.reserve; reserve.total() > 0)
    result += "  of the device's " + bytesText(target.topology.device.memory) + " " +
              reserveText(reserve.context, reserve.communicators, reserve.fragmentation) +
              "\n";
  for (const MemoryShare &share : found.memory.largest)
    result += "  " + bytesText(share.bytes) +
              (share.isWeight ? "  weight " : "  value ") + "'" + share.name + "'\n";
  return result;
}

/// The best plan that does without a conversion.
static std::string runnerUpText(const std::optional<RunnerUp> &other, Picos total) {
  if (!other)
    return "    without it no plan was found in time\n";
  std::string instead;
  for (const std::string &conversion : other->instead)
    instead += (instead.empty() ? "" : ", then ") + conversion;
  return formatted("    without it %s, %.4f of ours: ", timeText(other->time).c_str(),
                   static_cast<double>(other->time) /
                       static_cast<double>(std::max<Picos>(1, total))) +
         (instead.empty() ? "the value is not converted" : instead) + "\n";
}

static std::string reshardText(const PlanStory &story, Picos total) {
  const std::vector<Reshard> &reshards = story.reshards;
  if (reshards.empty())
    return "no conversions\n";
  std::string result = "conversions that take longest:\n";
  for (size_t i = 0; i < reshards.size(); ++i) {
    const Reshard &it = reshards[i];
    result += "  " + timeText(it.time * it.copies) +
              (it.copies > 1 ? " in " + std::to_string(it.copies) : "") + "  '" +
              it.value + (it.node == it.value ? "'" : "' of '" + it.node + "'") +
              " from " + it.from + " to " + it.to + ": " +
              std::to_string(it.receivedBytes) + " B received (at least " +
              std::to_string(it.lowerBoundBytes) + ")\n";
    if (i < story.runnersUp.size())
      result += runnerUpText(story.runnersUp[i], total);
  }
  return result;
}

static std::string knownText(const PlanStory &story, const Found &found) {
  std::string result;
  for (const KnownPlan &plan : story.known) {
    bool fits = !story.target.memoryLimit || plan.memory <= *story.target.memoryLimit;
    const bool isElsewhere = plan.mesh != story.best().mesh.str();
    result += formatted("  %-14s %s, %.3f of ours, %s%s%s\n", plan.name.c_str(),
                        timeText(plan.time).c_str(),
                        static_cast<double>(plan.time) /
                            static_cast<double>(std::max<Picos>(1, found.cost.total())),
                        bytesText(plan.memory).c_str(), fits ? "" : ", does not fit",
                        isElsewhere ? (", on " + plan.mesh).c_str() : "");
  }
  return result.empty() ? result : "other plans, priced alike:\n" + result;
}

std::string partita::meshText(const NodeResult &mesh) {
  if (mesh.found)
    return timeText(mesh.found->cost.total());
  if (!mesh.bound)
    return mesh.reason.message;
  const std::string least = "at least " + timeText(mesh.bound->time);
  if (mesh.reason.isSlower)
    return least;
  return (mesh.reason.proved ? "fits only if something is computed again, "
                             : mesh.reason.message + ", ") +
         least;
}

static std::string meshesText(const PlanStory &story) {
  if (story.result.nodes.size() < 2)
    return "";
  std::string result = "meshes:\n";
  for (const NodeResult &it : story.result.nodes)
    result +=
        "  " + it.mesh.str() + ": " + meshText(it) +
        (it.found && !it.found->proved ? ", at least " + timeText(it.bound->time) : "") +
        "\n";
  return result;
}

std::string partita::overlapText(const PlanStory &story) {
  if (!story.overlap)
    return "";
  const auto &[time, bound] = *story.overlap;
  double gap = time <= bound.time
                   ? 0
                   : static_cast<double>(time - bound.time) / static_cast<double>(time);
  return "with overlap: " + timeText(time) + " simulated, at least " +
         timeText(bound.time) + (bound.within & Bound::OneMesh ? " on this mesh" : "") +
         (bound.ignores & Bound::Memory ? " with any memory" : "") +
         formatted(" (a gap of %.2f%%)", 100 * gap) +
         ", were collectives in flight while kernels run";
}

/// "a, b and c".
static std::string listText(const std::vector<std::string> &items) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i)
    text += (i == 0 ? "" : i + 1 < items.size() ? ", " : " and ") + items[i];
  return text;
}

std::string partita::boundText(const Bound &bound, Picos total) {
  const double gap = static_cast<double>(total - bound.time) /
                     static_cast<double>(std::max<Picos>(1, total));
  std::string text = "lower bound: " + timeText(bound.time);
  text += bound.time == total  ? ": no plan is faster"
          : bound.time < total ? formatted(", a gap of %.2f%%", 100 * gap)
                               : ": this plan is faster than any in its space";
  std::string space = bound.within ? "of plans that " + listText(withinTexts(bound)) : "";
  if (bound.ignores && bound.time < total)
    space +=
        (space.empty() ? "it ignores " : "; it ignores ") + listText(ignoresTexts(bound));
  if (!space.empty())
    text += "\n  (" + space + ")";
  return text;
}

/// Times of the passes of a plan that was priced.
static std::string passesText(const PlanCost &cost) {
  std::string text;
  for (size_t i = 0; i < cost.passes.size(); ++i)
    text += (i > 0 ? ", " : "") + std::string(passNames[i]) + " " +
            timeText(cost.passes[i].device) + " in " +
            std::to_string(cost.passes[i].launches) + " launches";
  return text;
}

/// Communication that runs beside kernels.
static std::string hiddenText(const PlanCost &cost) {
  return cost.calls == 0
             ? ""
             : "; of " + timeText(cost.conversions) + " of communication in " +
                   std::to_string(cost.calls) + " calls " + timeText(cost.hidden) +
                   " beside kernels, in the order that compile gives a step";
}

std::string partita::storyBoundText(const PlanStory &story) {
  const PlanCost &cost = story.best().found->cost;
  return story.result.isGiven
             ? "priced as it is given, by its kernels: " + passesText(cost) +
                   hiddenText(cost) + "; nothing was searched, and there is no bound"
             : boundText(boundOf(story.result.nodes), cost.total());
}

static std::string withStack(const PlanTarget &target) {
  const std::string &name = target.topology.stack.name;
  return name.empty() ? "" : " with " + name;
}

std::string partita::planText(const PlanStory &story) {
  const NodeResult &best = story.best();
  const Found &found = *best.found;
  double build = 0, solve = 0;
  for (const NodeResult &it : story.result.nodes) {
    if (it.found) {
      build += it.found->buildSeconds;
      solve += it.found->solveSeconds;
    }
  }
  Picos total = found.cost.total();
  std::string result = "mesh " + best.mesh.str() + " of " +
                       std::to_string(best.mesh.numRanks()) + " x " +
                       story.target.topology.device.name + withStack(story.target) + "\n";
  result += "step: " + timeText(total) + " = " + timeText(found.cost.compute) +
            " of work + " + timeText(found.cost.conversions - found.cost.hidden) +
            " of exposed communication" +
            (found.cost.waiting > 0
                 ? " + " + timeText(found.cost.waiting) + " of waiting for the host"
                 : "") +
            " (" + std::to_string(found.cost.receivedBytes) + " B received in " +
            std::to_string(found.cost.collectives) + " collectives per rank)\n";
  if (const auto &request = story.request)
    result += "request: " + durationText(request->seconds()) + " = " +
              durationText(request->tasks) + " of tasks as they are emitted" +
              (request->isNear ? ", which a core's own caches hold, + " : " + ") +
              durationText(request->beside.copies) +
              " of copies of its inputs and outputs + " +
              durationText(request->beside.runtime) + " of the runtime\n";
  if (!story.name.empty())
    result += "parallelism: " + story.name + "\n";
  if (std::string text = ratesText(story.rates); !text.empty())
    result += "throughput: " + text + "\n";
  result += storyBoundText(story) + "\n";
  if (std::string text = overlapText(story); !text.empty())
    result += text + "\n";
  result += memoryText(found, story.target);
  result += reshardText(story, total);
  result += knownText(story, found);
  result += meshesText(story);
  if (!story.result.isGiven)
    result += formatted("searched %zu variables and %zu edges, %zu layers tied: import "
                        "%s, problem %s, solving %s\n",
                        found.variables, found.edges, found.tiedLayers,
                        durationText(story.importSeconds).c_str(),
                        durationText(build).c_str(), durationText(solve).c_str());
  if (const Stack &stack = story.target.topology.stack;
      !story.result.isGiven && stack.launch + stack.backwardLaunch > 0)
    result += "the host of " + stack.name +
              " may be slower than the device, which a search does not know and --price "
              "does\n";
  for (const std::string &note : best.notes)
    result += note + "\n";
  for (const std::string &choice : story.result.notes)
    result += choice + "\n";
  return result;
}

Expected<std::string> partita::writeHints(const std::string &file, const FlowGraph &graph,
                                          const Placement &placement,
                                          const search::Decided &plan,
                                          search::Picos time) {
  auto hints = search::asHints(graph, placement, plan);
  if (!hints)
    return tl::unexpected(hints.error());
  if (auto ok = writeFile(file, hints->json); !ok)
    return tl::unexpected(ok.error());
  std::string text =
      "hints: " + std::to_string(hints->hints.tensors.size()) + " entries lead to ";
  if (hints->differing == 0)
    text += "the strategies of all " + std::to_string(hints->ops) + " ops";
  else
    text += "the strategies of " + std::to_string(hints->ops - hints->differing) +
            " of " + std::to_string(hints->ops) + " ops, not of '" +
            hints->firstDiffering + "'";
  char ratio[48];
  std::snprintf(ratio, sizeof ratio, ", and take %.4f of the plan's time\n",
                static_cast<double>(hints->cost.total()) /
                    static_cast<double>(std::max<search::Picos>(1, time)));
  if (!hints->isShortest)
    text += " (fewer might do: not all were tried)";
  return text + ratio + "wrote " + file + "\n";
}
