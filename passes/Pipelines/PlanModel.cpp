//===- PlanModel.cpp - The fastest plan of a model on a cluster -----------===//
#include "passes/Pipelines/PlanModel.h"

#include "partita/Base/Files/File.h"
#include "partita/Base/Units.h"
#include "partita/Rule/Decide/ReadyRules.h"
#include "partita/Rule/Decide/ResolveHints.h"
#include "partita/Search/AsHints.h"
#include "partita/Search/Meshes.h"
#include "passes/Pipelines/Compiler.h"
#include "passes/Pipelines/PlanReport.h"
#include "passes/Pipelines/PlanText.h"
#include "passes/Pipelines/Recompute.h"
#include "passes/Shard/OptimizerStates.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>

using namespace mlir;
using namespace partita;

namespace {
class Planner {
public:
  Planner(const PlanOptions &given, const Progress &progress)
      : options(given), progress(progress), compiler(options.model, progress) {}

  Expected<std::string> run();

private:
  using Flow = std::unique_ptr<dist::ProgramFlow>;
  search::SearchOptions searchOptions() const {
    search::SearchOptions search;
    search.memoryLimit = target.memoryLimit;
    search.timeLimit = options.timeLimit;
    search.threads = options.threads;
    return search;
  }
  /// The program's flow graph on a mesh, and what hints ask of it.
  Expected<Flow> flowOn(const Mesh &mesh, search::Pins &pins);
  Expected<std::vector<MeshResult>> searchOn(const std::vector<Mesh> &meshes);
  /// Where no mesh has a plan: the best with something computed again. The program then
  /// is that step, and the bound of a mesh one for any such choice.
  Expected<void> withRecompute(std::optional<size_t> &best);
  /// The same on one mesh; the result and what is computed again, if it fits.
  Expected<std::optional<std::pair<MeshResult, PlanRecompute>>>
  recomputeOn(const Mesh &mesh);
  Error infeasible(const Mesh &mesh, const search::NotFound &reason);
  /// How many times as many devices would do, along the outermost level; 0: unknown.
  int64_t factorThatFits();
  Expected<std::string> finish(size_t best);
  /// What there is to say about the hints file.
  Expected<std::string> writeHints(const FlowGraph &graph, const Placement &placement,
                                   const search::Found &found);

  func::FuncOp function() { return compiler.module->lookupSymbol<func::FuncOp>("main"); }

  PlanOptions options;
  const Progress &progress;
  Compiler compiler;
  std::string recomputed; ///< what is to be said of it
  PlanTarget target;
  std::vector<MeshResult> results;
  double importSeconds = 0, searchSeconds = 0;
};
} // namespace

Expected<Planner::Flow> Planner::flowOn(const Mesh &mesh, search::Pins &pins) {
  (*compiler.module)
      ->setAttr(dist::meshAttr, dist::MeshAttr::get(&compiler.context, mesh));
  auto flow = dist::buildFlow(function(), mesh, dist::Callees::Inlined);
  if (failed(flow))
    return makeError("the program has an op without a rule");
  (*flow)->graph.finalize();
  if (options.model.hints.empty())
    return std::move(*flow);
  auto hints = givenHints((*flow)->graph, options.model.hints);
  if (!hints)
    return tl::unexpected(hints.error());
  if (!hints->stages.empty())
    return makeError(hints->file + ": stages are made by partita compile of a model");
  if (!hints->kept.empty())
    return makeError(hints->file + " says how weights are kept, which a search decides "
                                   "by itself; use compile");
  auto seeds = resolveHints((*flow)->graph, *hints);
  if (!seeds)
    return tl::unexpected(seeds.error());
  for (const Seed &seed : *seeds) {
    if (!seed.blocks.empty())
      return makeError(seed.origin + " gives blocks, which a search does not follow; use "
                                     "compile --mode semi-auto");
    // What a source is asked for is asked of whoever reads it.
    if (!(*flow)
             ->graph
             .ops[static_cast<size_t>(
                 (*flow)->graph.atoms[static_cast<size_t>(seed.atom)].op)]
             .isSource())
      pins[seed.atom] = seed.axes;
  }
  return std::move(*flow);
}

Expected<std::vector<MeshResult>> Planner::searchOn(const std::vector<Mesh> &meshes) {
  std::vector<Flow> flows;
  std::vector<Placement> placements;
  std::vector<search::Pins> pins(meshes.size());
  for (size_t i = 0; i < meshes.size(); ++i) {
    auto flow = flowOn(meshes[i], pins[i]);
    if (!flow)
      return tl::unexpected(flow.error());
    auto placement = Placement::create(meshes[i], target.topology);
    if (!placement)
      return tl::unexpected(placement.error());
    flows.push_back(std::move(*flow));
    placements.push_back(std::move(*placement));
  }
  std::vector<search::Candidate> candidates;
  for (size_t i = 0; i < meshes.size(); ++i)
    candidates.push_back({flows[i]->graph, placements[i], std::move(pins[i])});
  auto all = search::searchAll(candidates, searchOptions());
  std::vector<MeshResult> results;
  for (size_t i = 0; i < meshes.size(); ++i) {
    MeshResult result{meshes[i], std::nullopt, {}, std::nullopt};
    if (all[i]) {
      result.lowerBound = all[i]->lowerBound;
      result.found = std::move(*all[i]);
    } else {
      result.reason = std::move(all[i].error());
      if (!result.reason.proved || result.reason.isSlower)
        result.lowerBound = result.reason.lowerBound;
    }
    results.push_back(std::move(result));
  }
  return results;
}

int64_t Planner::factorThatFits() {
  for (int64_t factor = 2; factor <= 64; factor *= 2) {
    Topology larger = target.topology;
    if (larger.levels.empty())
      return 0;
    larger.levels.back().size *= factor;
    std::swap(larger, target.topology);
    auto result = searchOn(search::meshesOf(target.topology, options.mostAxes));
    std::swap(larger, target.topology);
    if (result && std::any_of(result->begin(), result->end(),
                              [](const MeshResult &it) { return it.found.has_value(); }))
      return factor;
  }
  return 0;
}

Error Planner::infeasible(const Mesh &mesh, const search::NotFound &reason) {
  std::string message = "no plan on mesh " + mesh.str() + ": " + reason.message;
  if (reason.least && target.memoryLimit) {
    message += "; every device (" + target.topology.device.name + ") has " +
               bytesText(*target.memoryLimit) + ", and the plan of least memory needs " +
               bytesText(reason.least->peak()) + ": " + bytesText(reason.least->weights) +
               " of weights, " + bytesText(reason.least->activations) +
               " of activations; largest: ";
    std::string list;
    for (const search::MemoryShare &share : reason.least->largest)
      list +=
          (list.empty() ? "" : ", ") + ("'" + share.name + "' ") + bytesText(share.bytes);
    message += list;
    if (int64_t factor = factorThatFits())
      message += "; it fits on " + std::to_string(factor * target.topology.numDevices()) +
                 " devices";
    else
      message +=
          "; memory of " + bytesText(reason.least->peak()) + " per device would do";
  }
  return {message};
}

Expected<std::string> Planner::writeHints(const FlowGraph &graph,
                                          const Placement &placement,
                                          const search::Found &found) {
  progress("shortening hints");
  auto hints = search::asHints(graph, placement, found.plan);
  if (!hints)
    return tl::unexpected(hints.error());
  if (auto ok = writeFile(options.hintsOutput, hints->json); !ok)
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
                    static_cast<double>(std::max<search::Picos>(1, found.cost.total())));
  if (!hints->isShortest)
    text += " (fewer might do: not all were tried)";
  return text + ratio + "wrote " + options.hintsOutput + "\n";
}

Expected<std::string> Planner::finish(size_t best) {
  MeshResult &chosen = results[best];
  search::Pins pins;
  auto flow = flowOn(chosen.mesh, pins);
  if (!flow)
    return tl::unexpected(flow.error());
  auto placement = Placement::create(chosen.mesh, target.topology);
  search::Timing timing((*flow)->graph, *placement);
  PlanStory story{results, best, target, {}, {}, {}, importSeconds};
  story.known =
      search::knownPlans((*flow)->graph, *placement, parametersOf(function(), **flow));
  story.reshards = search::costliestReshards(timing, chosen.found->plan, 5);
  search::SearchOptions again = searchOptions();
  again.pins = std::move(pins);
  story.runnersUp = search::runnersUp(timing, again, story.reshards);
  std::string text = planText(story) + recomputed;
  if (!options.hintsOutput.empty()) {
    auto said = writeHints((*flow)->graph, *placement, *chosen.found);
    if (!said)
      return said;
    text += *said;
  }
  if (!options.report.empty()) {
    std::string page = planReport(story, timing, options.model.model);
    if (auto ok = writeFile(options.report, page); !ok)
      return tl::unexpected(ok.error());
    text += "wrote " + options.report + "\n";
  }
  if (options.output.empty())
    return text;
  writeFound(function(), **flow, *chosen.found, target);
  compiler.recordPlan();
  PlanCertificate &certificate = *compiler.plan.certificate;
  certificate.lowerBoundSeconds = static_cast<double>(boundOf(results)) * 1e-12;
  certificate.gap = certificate.stepSeconds == 0
                        ? 0
                        : 1 - certificate.lowerBoundSeconds / certificate.stepSeconds;
  certificate.proved = certificate.lowerBoundSeconds == certificate.stepSeconds;
  certificate.searchSeconds = searchSeconds;
  if (auto ok = writeFile(options.output, compiler.plan.json()); !ok)
    return tl::unexpected(ok.error());
  return text + "wrote " + options.output + "\n";
}

/// Meshes on which recompute is tried, each with some searches.
static constexpr size_t mostRecomputeMeshes = 6;

Expected<std::optional<std::pair<MeshResult, PlanRecompute>>>
Planner::recomputeOn(const Mesh &mesh) {
  CompileOptions one = options.model;
  one.mesh = mesh.str();
  one.to = Level::L2;
  one.recompute.reset();
  auto choices = RecomputeChoices::create(one, progress);
  if (!choices)
    return tl::unexpected(choices.error());
  // The search counts bytes at most, a choice those of one plan: room is left for that.
  int64_t room = *target.memoryLimit;
  for (int tries = 0; tries < 5; ++tries, room -= room / 24) {
    auto choice = (*choices)->choose(room);
    if (!choice)
      choice = (*choices)->choose(room = (*choices)->least());
    if (!choice)
      break;
    options.model.recompute =
        PlanRecompute{choice->nodes, static_cast<double>(choice->time) * 1e-12,
                      choice->before - choice->peak};
    if (auto ok = compiler.import(); !ok)
      return tl::unexpected(ok.error());
    auto all = searchOn({mesh});
    if (!all)
      return tl::unexpected(all.error());
    if (MeshResult &result = all->front(); result.found) {
      if (auto bound = (*choices)->lowerBoundSeconds)
        result.lowerBound = search::picosOf(*bound);
      recomputed = recomputeText(*choice, (*choices)->seconds) +
                   "; the bound is of steps with any recompute or none\n";
      return std::pair(std::move(result), *options.model.recompute);
    }
    if (room == (*choices)->least())
      break;
  }
  return std::nullopt;
}

Expected<void> Planner::withRecompute(std::optional<size_t> &best) {
  if (!target.memoryLimit || !choosesRecompute(options.model))
    return {};
  std::optional<PlanRecompute> chosen;
  std::string said;
  for (size_t i = 0; i < results.size() && i < mostRecomputeMeshes; ++i) {
    auto tried = recomputeOn(results[i].mesh);
    if (!tried)
      return tl::unexpected(tried.error());
    if (!*tried)
      continue;
    results[i] = std::move((*tried)->first);
    if (best && results[*best].found->cost.total() <= results[i].found->cost.total())
      continue;
    best = i;
    chosen = std::move((*tried)->second);
    said = recomputed;
  }
  options.model.recompute = std::move(chosen);
  recomputed = std::move(said);
  return compiler.import();
}

Expected<std::string> Planner::run() {
  using Clock = std::chrono::steady_clock;
  auto begin = Clock::now();
  auto since = [&] {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  auto wanted = Mesh::parse(options.model.mesh);
  if (!wanted)
    return tl::unexpected(wanted.error());
  auto read = planTarget(*wanted, {options.model.cluster, options.model.memory});
  if (!read)
    return tl::unexpected(read.error());
  target = std::move(*read);
  std::vector<Mesh> meshes{*wanted};
  if (options.model.mesh.empty())
    meshes = search::meshesOf(target.topology, options.mostAxes);
  else if (auto placement = Placement::create(*wanted, target.topology); !placement)
    return tl::unexpected(placement.error());
  if (auto ok = compiler.import(); !ok)
    return tl::unexpected(ok.error());
  importSeconds = since();
  begin = Clock::now();
  std::optional<size_t> best;
  for (const Mesh &mesh : meshes)
    progress("searching mesh " + mesh.str());
  auto all = searchOn(meshes);
  if (!all)
    return tl::unexpected(all.error());
  results = std::move(*all);
  for (size_t i = 0; i < results.size(); ++i) {
    const auto &found = results[i].found;
    if (found && (!best || found->cost.total() < results[*best].found->cost.total()))
      best = i;
  }
  if (!best)
    if (auto ok = withRecompute(best); !ok)
      return tl::unexpected(ok.error());
  searchSeconds = since();
  if (!best) {
    // The mesh that is nearest to fitting.
    auto missing = [](const MeshResult &it) {
      return it.reason.least ? it.reason.least->peak()
                             : std::numeric_limits<int64_t>::max();
    };
    const MeshResult &nearest = *std::min_element(
        results.begin(), results.end(), [&](const MeshResult &a, const MeshResult &b) {
          return missing(a) < missing(b);
        });
    return tl::unexpected(infeasible(nearest.mesh, nearest.reason));
  }
  return finish(*best);
}

Expected<std::string> partita::planModel(const PlanOptions &options,
                                         const Progress &progress) {
  return Planner(options, progress).run();
}
