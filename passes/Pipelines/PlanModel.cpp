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
#include <map>

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
  Expected<std::vector<MeshResult>> searchOn(const std::vector<Mesh> &meshes,
                                             double timeLimit);
  /// What is faster than the best plan under a limit, if there is one, with something
  /// computed again. The program then is that step, and the bound of a mesh one for any
  /// such choice.
  Expected<void> withRecompute(std::optional<size_t> &best);
  struct Recomputed {
    MeshResult mesh;
    PlanRecompute recompute;
    std::string text; ///< what is to be said of it
  };
  /// The same on one mesh, if it fits and takes less than `seconds`.
  Expected<std::optional<Recomputed>> recomputeOn(const Mesh &mesh,
                                                  std::optional<double> seconds);
  /// Keeps what comes nearest to a limit that nothing meets.
  void note(const Mesh &mesh, const search::NotFound &reason);
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
  /// What comes nearest where nothing fits.
  std::optional<std::pair<Mesh, search::NotFound>> tightest;
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

Expected<std::vector<MeshResult>> Planner::searchOn(const std::vector<Mesh> &meshes,
                                                    double timeLimit) {
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
  search::SearchOptions search = searchOptions();
  search.timeLimit = timeLimit;
  auto all = search::searchAll(candidates, search);
  // A known plan may be faster than what was found: of all meshes, not of each.
  auto timeOf = [](const auto &it) {
    return it ? it->cost.total() : std::numeric_limits<search::Picos>::max();
  };
  const search::Picos least = timeOf(*std::ranges::min_element(all, {}, timeOf));
  for (size_t i = 0; i < meshes.size(); ++i)
    if (timeOf(all[i]) == least) {
      search::SearchOptions with = searchOptions();
      with.pins = candidates[i].pins;
      all[i] = search::orKnown(std::move(all[i]), flows[i]->graph, placements[i],
                               parametersOf(function(), *flows[i]), with);
    }
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
    auto result =
        searchOn(search::meshesOf(target.topology, options.mostAxes), options.timeLimit);
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
               bytesText(*target.memoryLimit) + ", and the plan of least memory" +
               (options.model.recompute ? " that was found with recompute" : "") +
               " needs " + bytesText(reason.least->peak()) + ": " +
               search::kindsText(*reason.least) + "; largest: ";
    std::string list;
    for (const search::MemoryShare &share : reason.least->largest)
      list +=
          (list.empty() ? "" : ", ") + ("'" + share.name + "' ") + bytesText(share.bytes);
    message += list;
    if (int64_t factor = factorThatFits())
      message += "; it fits on " + std::to_string(factor * target.topology.numDevices()) +
                 " devices";
    message +=
        "; a memory of " + bytesText(reason.least->peak()) + " per device would do";
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

/// Meshes on which recompute is tried, and choices on each of one plan.
static constexpr size_t mostRecomputeMeshes = 6;
static constexpr int mostChoices = 4;

Expected<std::optional<Planner::Recomputed>>
Planner::recomputeOn(const Mesh &mesh, std::optional<double> seconds) {
  CompileOptions one = options.model;
  one.mesh = mesh.str();
  one.to = Level::L2;
  one.recompute.reset();
  const int64_t limit = *target.memoryLimit;
  auto bases = recomputeBases(one, limit, progress);
  if (!bases)
    return tl::unexpected(bases.error());
  const RecomputeChoices &free = *bases->front();
  if (seconds && *seconds <= (1 + goodEnough) * free.seconds)
    return std::nullopt;
  std::map<std::vector<std::vector<std::string>>, MeshResult> made;
  auto measure = [&](const search::RecomputeChoice &choice) -> Expected<RecomputeForm> {
    options.model.recompute =
        PlanRecompute{choice.nodes, static_cast<double>(choice.time) * 1e-12,
                      choice.before - choice.peak};
    if (auto ok = compiler.import(); !ok)
      return tl::unexpected(ok.error());
    auto all = searchOn({mesh}, options.timeLimit / mostChoices);
    if (!all)
      return tl::unexpected(all.error());
    MeshResult &result = all->front();
    if (!result.found) {
      note(mesh, result.reason);
      return makeError(result.reason.message);
    }
    RecomputeForm form{result.found->memory.peak(),
                       static_cast<double>(result.found->cost.total()) * 1e-12,
                       {}};
    made.insert_or_assign(choice.nodes, std::move(result));
    return form;
  };
  RecomputeFitter fitter(limit, mostChoices, measure, progress);
  fitter.run(*bases, 0, seconds);
  if (!fitter.best || (seconds && *seconds <= fitter.best->seconds))
    return std::nullopt;
  const search::RecomputeChoice &choice = fitter.best->choice;
  Recomputed result{std::move(made.at(choice.nodes)),
                    {choice.nodes, static_cast<double>(choice.time) * 1e-12,
                     choice.before - choice.peak},
                    recomputeText(choice, free.seconds) +
                        "; the bound is of steps with any recompute or none\n"};
  if (free.lowerBoundSeconds)
    result.mesh.lowerBound = search::picosOf(*free.lowerBoundSeconds);
  return result;
}

void Planner::note(const Mesh &mesh, const search::NotFound &reason) {
  if (reason.least &&
      (!tightest || reason.least->peak() < tightest->second.least->peak()))
    tightest.emplace(mesh, reason);
}

Expected<void> Planner::withRecompute(std::optional<size_t> &best) {
  if (!target.memoryLimit || !choosesRecompute(options.model))
    return {};
  std::optional<PlanRecompute> chosen;
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < results.size() && i < mostRecomputeMeshes; ++i) {
    // Meshes that are left may still be the only ones that fit.
    std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    if (best && spent.count() > options.timeLimit)
      break;
    std::optional<double> seconds;
    if (best)
      seconds = static_cast<double>(results[*best].found->cost.total()) * 1e-12;
    auto tried = recomputeOn(results[i].mesh, seconds);
    if (!tried)
      return tl::unexpected(tried.error());
    if (!*tried)
      continue;
    results[i] = std::move((*tried)->mesh);
    recomputed = std::move((*tried)->text);
    chosen = std::move((*tried)->recompute);
    best = i;
  }
  const bool isThere = !options.model.recompute && !chosen;
  options.model.recompute = std::move(chosen);
  return isThere ? Expected<void>() : compiler.import();
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
  auto all = searchOn(meshes, options.timeLimit);
  if (!all)
    return tl::unexpected(all.error());
  results = std::move(*all);
  for (size_t i = 0; i < results.size(); ++i) {
    const auto &found = results[i].found;
    if (found && (!best || found->cost.total() < results[*best].found->cost.total()))
      best = i;
  }
  if (auto ok = withRecompute(best); !ok)
    return tl::unexpected(ok.error());
  searchSeconds = since();
  if (!best) {
    for (const MeshResult &it : results)
      note(it.mesh, it.reason);
    return tl::unexpected(tightest
                              ? infeasible(tightest->first, tightest->second)
                              : infeasible(results.front().mesh, results.front().reason));
  }
  return finish(*best);
}

Expected<std::string> partita::planModel(const PlanOptions &options,
                                         const Progress &progress) {
  return Planner(options, progress).run();
}
