//===- PlanModel.cpp - The fastest plan of a model on a cluster -----------===//
#include "passes/Pipelines/PlanModel.h"

#include "dialects/Dist/PlanAttributes.h"
#include "partita/Base/Files/File.h"
#include "partita/Base/Units.h"
#include "partita/Rule/Decide/ReadyRules.h"
#include "partita/Rule/Decide/ResolveHints.h"
#include "partita/Search/Meshes.h"
#include "partita/Search/OverlapBound.h"
#include "partita/Search/PlanName.h"
#include "passes/Pipelines/Accumulation.h"
#include "passes/Pipelines/Compiler.h"
#include "passes/Pipelines/Pipelines.h"
#include "passes/Pipelines/PlanReport.h"
#include "passes/Pipelines/PlanText.h"
#include "passes/Pipelines/Recompute.h"
#include "passes/Shard/OptimizerStates.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <limits>
#include <map>

using namespace mlir;
using namespace partita;
using search::RecomputeChoice;

/// Meshes on which choices are tried, and how many on each of one plan.
static constexpr size_t mostChoiceMeshes = 6;
static constexpr int mostChoices = 4;
/// Searches after which no other mesh is tried, where time is no limit.
static constexpr int mostSearches = 8;

namespace {
class Planner {
public:
  Planner(const PlanOptions &options, const Progress &progress, StopFlag stop)
      : options(options), job(options.request, progress, stop), compiler(job) {}

  Expected<PlannedModel> run();

private:
  using Flow = std::unique_ptr<dist::ProgramFlow>;
  /// What one of `parts` equal parts of the time or work may take.
  void limit(search::SearchOptions &search, int parts) const {
    search.timeLimit = options.timeLimit / parts;
    if (options.workLimit)
      search.workLimit = std::max<int64_t>(1, options.workLimit / parts);
  }
  search::SearchOptions searchOptions() const {
    search::SearchOptions search;
    search.memoryLimit = target.memoryLimit;
    limit(search, 1);
    search.threads = static_cast<int>(options.threads);
    search.stop = job.stop;
    search.enough = options.enough;
    search.log = options.log;
    return search;
  }
  /// The program's flow graph on a mesh, and what hints ask of it.
  struct Program {
    Flow flow;
    Placement placement;
    search::Pins pins = {};
    const FlowGraph &graph() const { return flow->graph; }
  };
  Expected<Program> programOn(const Mesh &mesh);
  /// Pins that hints ask of a program.
  Expected<search::Pins> pinsOf(FlowGraph &graph);
  /// In one of `parts` equal parts of what the search may take.
  Expected<std::vector<MeshResult>> searchOn(const std::vector<Mesh> &meshes,
                                             int parts = 1);
  using Outcome = tl::expected<search::Found, search::NotFound>;
  /// Searches again with states in parts for ranks that hold the same, if the training
  /// step asks for it; `notes` say of each candidate what stays whole.
  void withParts(const std::vector<Program> &programs,
                 std::vector<search::Candidate> &candidates,
                 const search::SearchOptions &search, std::vector<Outcome> &all,
                 std::vector<std::vector<std::string>> &notes);
  /// The program on a mesh, planned without a limit; its strategies.
  Expected<search::FreeStep> unlimitedOn(const Mesh &mesh,
                                         std::vector<Strategy> &strategies);
  /// Makes the program the step with so many micro-batches that computes this again.
  Expected<void> derive(std::optional<int64_t> accumulation,
                        std::optional<PlanRecompute> recompute);
  /// What is faster than the best plan under a limit, if there is one, with what the
  /// specification leaves open: what is computed again, the number of micro-batches. The
  /// program then is that step, and the bound of a mesh one for any such choice.
  Expected<void> withChoices(std::optional<size_t> &best);
  class Forms;
  struct Chosen {
    MeshResult mesh;
    std::optional<PlanRecompute> recompute;
    std::optional<int64_t> accumulation;
    std::vector<std::string> said; ///< of it
  };
  /// Whether a mesh's plans under the limit are slower than the best one could be, given
  /// that, so that computing something again may pay.
  bool isLimitFelt(const MeshResult &result, std::optional<size_t> best) const;
  /// Proposes what is computed again in so many bytes, with such strategies, or any.
  Expected<std::optional<RecomputeChoice>>
  proposeOn(const Mesh &mesh, int64_t memory, const std::vector<Strategy> *strategies,
            bool repeatsNecks);
  /// Makes the bounds of such meshes those of steps with any recompute.
  Expected<void> boundAnyRecompute(std::optional<size_t> best);
  /// Meshes on which choices are worth a try, those first that may be the fastest.
  std::vector<size_t> meshesToChooseOn(std::optional<size_t> best) const;
  /// The same on the mesh of a result, if it fits and takes less than `seconds`.
  Expected<std::optional<Chosen>> chooseOn(MeshResult &result,
                                           std::optional<double> seconds);
  /// Keeps what comes nearest to a limit that nothing meets.
  void note(const Mesh &mesh, const search::NotFound &reason);
  Error infeasible(const Mesh &mesh, const search::NotFound &reason);
  /// An error where sums over the program say that nothing fits.
  Expected<void> checkNecessary(const Mesh &mesh);
  using KnownPlans = std::vector<search::KnownPlan>;
  /// Begins to price, on another thread, plans that people write for the program on each
  /// of the meshes.
  Expected<std::future<KnownPlans>> startKnown(const MeshResult &chosen);
  Expected<PlannedModel> finish(size_t best);
  /// With --overlap: the plan of a mesh that is the fastest so, if there is one.
  Expected<void> overlap(const search::Candidate &candidate, MeshResult &result);
  /// What is told of overlap: as it was searched for, else of the plan on its mesh.
  Expected<OverlapTime> overlapOf(search::Timing &timing, const search::Model &model,
                                  const MeshResult &chosen) const;
  size_t mostAxes() const { return static_cast<size_t>(options.mostAxes); }
  func::FuncOp function() { return compiler.module->lookupSymbol<func::FuncOp>("main"); }

  const PlanOptions &options;
  Job job;
  Compiler compiler;
  std::vector<std::string> said; ///< of what was chosen
  std::string refused;           ///< as search::StepFitter::refused
  PlanTarget target;
  std::vector<MeshResult> results;
  /// What comes nearest where nothing fits.
  std::optional<std::pair<Mesh, search::NotFound>> tightest;
  /// Whether the bounds of results are of steps with any recompute.
  bool isAnyBounded = false;
  bool isAnyChosen = false; ///< whether plans were looked at with something chosen
  double importSeconds = 0, searchSeconds = 0;
  int searches = 0;
};
} // namespace

Expected<Planner::Program> Planner::programOn(const Mesh &mesh) {
  if (job.stop.isRaised())
    return makeError("cancelled");
  (*compiler.module)
      ->setAttr(dist::meshAttr, dist::MeshAttr::get(&compiler.context, mesh));
  auto flow = dist::buildFlow(function(), mesh, dist::Callees::Inlined);
  if (failed(flow))
    return makeError("the program has an op without a rule");
  (*flow)->graph.finalize();
  auto placement = Placement::create((*flow)->graph.mesh, target.topology);
  if (!placement)
    return tl::unexpected(placement.error());
  Program program{std::move(*flow), std::move(*placement)};
  if (!job.request.hints)
    return std::move(program);
  auto pins = pinsOf(program.flow->graph);
  if (!pins)
    return tl::unexpected(pins.error());
  program.pins = std::move(*pins);
  return std::move(program);
}

Expected<search::Pins> Planner::pinsOf(FlowGraph &graph) {
  auto hints = job.request.hints->on(graph);
  if (!hints)
    return tl::unexpected(hints.error());
  if (!hints->stages.empty())
    return makeError(hints->file + ": stages are made by partita compile of a model");
  if (!hints->kept.empty())
    return makeError(hints->file + " says how weights are kept, which a search decides "
                                   "by itself; use compile");
  auto seeds = resolveHints(graph, *hints);
  if (!seeds)
    return tl::unexpected(seeds.error());
  search::Pins pins;
  for (const Seed &seed : *seeds) {
    if (!seed.blocks.empty())
      return makeError(seed.origin + " gives blocks, which a search does not follow; use "
                                     "compile --mode semi-auto");
    // A source is asked through its readers.
    const int32_t op = graph.atoms[static_cast<size_t>(seed.atom)].op;
    if (!graph.ops[static_cast<size_t>(op)].isSource())
      pins[seed.atom] = seed.axes;
  }
  return pins;
}

Expected<void> Planner::derive(std::optional<int64_t> accumulation,
                               std::optional<PlanRecompute> recompute) {
  auto nodesOf = [](const std::optional<PlanRecompute> &it) {
    return it ? std::pair(it->exactly, it->nodes)
              : std::pair(false, std::vector<std::vector<std::string>>());
  };
  if (compiler.module &&
      accumulation.value_or(1) == job.feedback.microBatches.value_or(1) &&
      nodesOf(recompute) == nodesOf(job.feedback.recompute)) {
    job.feedback.recompute = std::move(recompute);
    job.feedback.microBatches = accumulation;
    return {};
  }
  job.feedback.microBatches = accumulation;
  job.feedback.recompute = std::move(recompute);
  auto ok = compiler.import();
  if (!ok)
    compiler.module = {};
  return ok;
}

Expected<search::FreeStep> Planner::unlimitedOn(const Mesh &mesh,
                                                std::vector<Strategy> &strategies) {
  ++searches;
  search::SearchOptions search = searchOptions();
  limit(search, mostChoices);
  search.memoryLimit.reset();
  auto program = programOn(mesh);
  if (!program)
    return tl::unexpected(program.error());
  search.pins = program->pins;
  auto found = search::search(program->graph(), program->placement, search,
                              parametersOf(function(), *program->flow));
  if (!found)
    return makeError("no plan: " + found.error().message);
  strategies = found->plan.strategies;
  return search::FreeStep{found->memory.peak(),
                          static_cast<double>(found->cost.total()) * 1e-12,
                          static_cast<double>(found->lowerBound) * 1e-12, compiler.rows};
}

Expected<std::vector<MeshResult>> Planner::searchOn(const std::vector<Mesh> &meshes,
                                                    int parts) {
  ++searches;
  std::vector<Program> programs;
  for (const Mesh &mesh : meshes) {
    auto program = programOn(mesh);
    if (!program)
      return tl::unexpected(program.error());
    programs.push_back(std::move(*program));
  }
  std::vector<search::Candidate> candidates;
  for (const Program &it : programs)
    candidates.push_back(
        {it.graph(), it.placement, it.pins, parametersOf(function(), *it.flow)});
  search::SearchOptions search = searchOptions();
  limit(search, parts);
  auto all = search::searchAll(candidates, search);
  std::vector<std::vector<std::string>> notes(all.size());
  withParts(programs, candidates, search, all, notes);
  std::vector<MeshResult> results;
  for (size_t i = 0; i < meshes.size(); ++i) {
    MeshResult result{meshes[i], std::nullopt, {}, std::nullopt, std::move(notes[i])};
    if (all[i]) {
      result.lowerBound = all[i]->lowerBound;
      result.found = std::move(*all[i]);
    } else {
      result.reason = std::move(all[i].error());
      if (!result.reason.proved || result.reason.isSlower)
        result.lowerBound = result.reason.lowerBound;
    }
    if (options.overlap)
      if (auto ok = overlap(candidates[i], result); !ok)
        return tl::unexpected(ok.error());
    results.push_back(std::move(result));
  }
  return results;
}

void Planner::withParts(const std::vector<Program> &programs,
                        std::vector<search::Candidate> &candidates,
                        const search::SearchOptions &search, std::vector<Outcome> &all,
                        std::vector<std::vector<std::string>> &notes) {
  std::vector<search::Candidate> again;
  std::vector<size_t> which;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i])
      continue;
    auto homes = homesInParts(function(), *programs[i].flow, all[i]->plan.strategies, {},
                              notes[i]);
    if (!homes)
      return;
    for (auto &[atom, axes] : pinsFor(programs[i].graph(), *homes))
      candidates[i].pins.insert_or_assign(atom, axes);
    again.push_back(candidates[i]);
    which.push_back(i);
  }
  search::SearchOptions whole = search;
  whole.enough = {}; // there is no plan without
  auto found = search::searchAll(again, whole);
  for (size_t i = 0; i < which.size(); ++i)
    all[which[i]] = std::move(found[i]);
}

Expected<void> Planner::checkNecessary(const Mesh &mesh) {
  if (!target.memoryLimit)
    return {};
  auto program = programOn(mesh);
  if (!program)
    return tl::unexpected(program.error());
  const search::Timing timing(program->graph(), program->placement,
                              /*anyRecompute=*/true);
  const bool countsWork = !choosesAccumulation(job);
  const int64_t leastDevices =
      search::leastDevices(timing, *target.memoryLimit, countsWork);
  if (leastDevices <= mesh.numRanks())
    return {};
  return makeError("no plan fits: whatever is chosen, each of " +
                   std::to_string(mesh.numRanks()) + " devices (" +
                   target.topology.device.name + ") needs " +
                   search::necessaryText(
                       search::necessaryMemory(timing, mesh.numRanks(), countsWork)) +
                   "; the limit is " + bytesText(*target.memoryLimit) + "; " +
                   std::to_string(leastDevices) + " devices or more are needed");
}

Error Planner::infeasible(const Mesh &mesh, const search::NotFound &reason) {
  std::string message = "no plan on mesh " + mesh.str() + ": " + reason.message;
  if (reason.least && target.memoryLimit) {
    message += "; every device (" + target.topology.device.name + ") has " +
               bytesText(*target.memoryLimit) + ", and the plan of least memory" +
               (isAnyChosen    ? " that was found, whatever is chosen,"
                : isAnyBounded ? " that computes nothing again"
                               : "") +
               " needs " + bytesText(reason.least->peak()) + ": " +
               search::kindsText(*reason.least) + "; largest: ";
    std::string list;
    for (const search::MemoryShare &share : reason.least->largest)
      list +=
          (list.empty() ? "" : ", ") + ("'" + share.name + "' ") + bytesText(share.bytes);
    message += list;
    message +=
        "; a memory of " + bytesText(reason.least->peak()) + " per device would do";
  }
  return {message};
}

Expected<void> Planner::overlap(const search::Candidate &candidate, MeshResult &result) {
  // A mesh whose plans are slower when work takes turns may have the fastest now.
  if (!result.found && result.reason.proved && !result.reason.isSlower)
    return {};
  const auto begin = std::chrono::steady_clock::now();
  search::Timing timing(candidate.graph, candidate.placement);
  search::SearchOptions search = searchOptions();
  search.pins = candidate.pins;
  size_t tiedLayers = 0;
  auto model = search::modelOf(timing, search, search::Rows::Most, &tiedLayers);
  if (!model)
    return tl::unexpected(model.error());
  std::vector<search::Decided> known;
  if (result.found)
    known.push_back(result.found->plan);
  if (search.pins.empty())
    for (search::KnownPlan &plan :
         search::knownPlans(candidate.graph, candidate.placement, candidate.parameters))
      if (plan.plan && (!search.memoryLimit || plan.memory <= *search.memoryLimit))
        known.push_back(std::move(*plan.plan));
  auto best = search::planOverlapped(timing, *model, known, search);
  if (!best)
    return tl::unexpected(best.error());
  result.overlap = OverlapTime{best->time, best->lowerBound};
  if (!best->plan)
    return {};
  if (!result.found) {
    result.found.emplace();
    result.found->lowerBound = result.reason.lowerBound;
    result.found->variables = model->problem.variables.size();
    result.found->edges = model->problem.edges.size();
    result.found->tiedLayers = tiedLayers;
  }
  search::Found &found = *result.found;
  found.plan = std::move(*best->plan);
  found.cost = search::evaluate(timing, found.plan);
  found.memory = search::memoryOf(timing, found.plan);
  found.proved = found.proved && found.cost.total() == found.lowerBound;
  found.solveSeconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return {};
}

Expected<OverlapTime> Planner::overlapOf(search::Timing &timing,
                                         const search::Model &model,
                                         const MeshResult &chosen) const {
  if (chosen.overlap) {
    OverlapTime overlap = *chosen.overlap;
    for (const MeshResult &it : results)
      if (it.overlap && !isAnyChosen) // else of other forms of the step
        overlap.lowerBound = std::min(overlap.lowerBound, it.overlap->lowerBound);
    return overlap;
  }
  auto bound = search::overlapBound(timing, model);
  if (!bound)
    return tl::unexpected(bound.error());
  return OverlapTime{search::simulate(timing, chosen.found->plan).time, *bound};
}

Expected<std::future<Planner::KnownPlans>> Planner::startKnown(const MeshResult &chosen) {
  std::vector<const MeshResult *> order{&chosen};
  for (const MeshResult &it : results)
    if (it.lowerBound && &it != &chosen)
      order.push_back(&it);
  std::stable_sort(order.begin() + 1, order.end(),
                   [](auto *a, auto *b) { return *a->lowerBound < *b->lowerBound; });
  struct OnMesh {
    Program program;
    std::vector<ParameterOps> parameters;
    search::Picos lowerBound;
  };
  auto all = std::make_shared<std::vector<OnMesh>>();
  for (const MeshResult *it : order) {
    auto program = programOn(it->mesh);
    if (!program)
      return tl::unexpected(program.error());
    auto parameters = parametersOf(function(), *program->flow);
    all->push_back(
        {std::move(*program), std::move(parameters), it->lowerBound.value_or(0)});
  }
  return std::async(std::launch::async,
                    [all, first = chosen.found->known, limit = target.memoryLimit] {
                      std::vector<search::MeshProgram> meshes;
                      for (const OnMesh &it : *all)
                        meshes.push_back({it.lowerBound, it.program.graph(),
                                          it.program.placement, it.parameters});
                      return search::knownPlans(meshes, limit, first.get());
                    });
}

Expected<PlannedModel> Planner::finish(size_t best) {
  MeshResult &chosen = results[best];
  auto pricing = startKnown(chosen); // beside what else is told
  if (!pricing)
    return tl::unexpected(pricing.error());
  auto program = programOn(chosen.mesh);
  if (!program)
    return tl::unexpected(program.error());
  const Flow &flow = program->flow;
  search::Timing timing(flow->graph, program->placement);
  PlanStory story{results, best, target, {}, {}, {}, importSeconds, said};
  search::SearchOptions again = searchOptions();
  again.pins = program->pins;
  // What was chosen may be outside of the space of the bound.
  if (isAnyBounded && chosen.lowerBound)
    chosen.lowerBound = std::min(*chosen.lowerBound, chosen.found->cost.total());
  story.reshards = search::costliestReshards(timing, chosen.found->plan, 5);
  auto model = search::modelOf(timing, again);
  if (!model)
    return tl::unexpected(model.error());
  auto overlapped = overlapOf(timing, *model, chosen);
  if (!overlapped)
    return tl::unexpected(overlapped.error());
  story.overlap = *overlapped;
  story.runnersUp = search::runnersUp(timing, *model, again, story.reshards);
  story.isForOverlap = options.overlap && !isAnyChosen;
  story.known = pricing->get();
  story.name = search::planName(flow->graph, chosen.found->plan.strategies);
  story.rates = ratesOf(*flow, *chosen.found, target);
  std::string text = planText(story);
  if (!options.hintsOutput.empty()) {
    job.progress("shortening hints");
    auto said = writeHints(options.hintsOutput, flow->graph, program->placement,
                           chosen.found->plan, chosen.found->cost.total());
    if (!said)
      return tl::unexpected(said.error());
    text += *said;
  }
  if (!options.report.empty()) {
    std::string page = planReport(story, timing, job.request.model.file);
    if (auto ok = writeFile(options.report, page); !ok)
      return tl::unexpected(ok.error());
    text += "wrote " + options.report + "\n";
  }
  writeFound(function(), *flow, *chosen.found, target);
  auto known = dist::certificateOf(*compiler.module);
  if (!known)
    return tl::unexpected(known.error());
  PlanCertificate &certificate = **known;
  certificate.lowerBoundSeconds = static_cast<double>(boundOf(results)) * 1e-12;
  certificate.gap = certificate.stepSeconds == 0
                        ? 0
                        : 1 - certificate.lowerBoundSeconds / certificate.stepSeconds;
  certificate.proved = certificate.lowerBoundSeconds == certificate.stepSeconds;
  certificate.overlapped = {static_cast<double>(story.overlap->time) * 1e-12,
                            static_cast<double>(story.overlap->lowerBound) * 1e-12};
  certificate.searchSeconds = searchSeconds;
  dist::setCertificate(*compiler.module, certificate);
  compiler.report.notes = {searchNote(*chosen.found, target)};
  llvm::append_range(compiler.report.notes, chosen.notes);
  llvm::append_range(compiler.report.notes, said);
  auto ok = compiler.stateFacts()
                .and_then([&] {
                  return compiler.runPasses("", [](OpPassManager &manager) {
                    buildConversionsPipeline(manager, "");
                  });
                })
                .and_then([&] { return compiler.recordPlan(); });
  if (!ok)
    return tl::unexpected(ok.error());
  PlannedModel planned{std::move(text), compiler.plan.json()};
  if (options.output.empty())
    return planned;
  if (auto ok = writeFile(options.output, planned.json); !ok)
    return tl::unexpected(ok.error());
  planned.text += "wrote " + options.output + "\n";
  return planned;
}

/// Forms of the step on one mesh, planned by a search.
class Planner::Forms : public search::FormSource {
public:
  Forms(Planner &planner, const MeshResult &result) : planner(planner), result(result) {}

  Expected<search::FormedStep> formed(const search::StepForm &form) override {
    if (isPlain(form))
      return stepOf(result);
    planner.isAnyChosen = true;
    auto ok = planner.derive(countOf(form.microBatches), planRecompute(form.recompute));
    if (!ok)
      return tl::unexpected(ok.error());
    auto all = planner.searchOn({result.mesh}, mostChoices);
    if (!all)
      return tl::unexpected(all.error());
    MeshResult &now = all->front();
    if (!now.found)
      planner.note(now.mesh, now.reason);
    auto step = stepOf(now);
    if (step)
      made.emplace_back(form, std::move(now));
    return step;
  }

  Expected<search::FreeStep> unlimited(int64_t microBatches) override {
    return planner.derive(countOf(microBatches), std::nullopt).and_then([&] {
      return planner.unlimitedOn(result.mesh, free[microBatches]);
    });
  }

  Expected<std::optional<RecomputeChoice>> propose(int64_t microBatches, int64_t bytes,
                                                   search::ProposalSpace space) override {
    return planner.derive(countOf(microBatches), std::nullopt).and_then([&] {
      return planner.proposeOn(result.mesh, bytes,
                               space.ofFreePlan ? &free.at(microBatches) : nullptr,
                               space.repeatsNecks);
    });
  }

  /// The plan of a form that was planned; absent: that is the result.
  std::optional<MeshResult> take(const search::StepForm &form) {
    for (auto &[other, plan] : made)
      if (other.microBatches == form.microBatches && other.recompute == form.recompute)
        return std::move(plan);
    return std::nullopt;
  }

private:
  std::optional<int64_t> countOf(int64_t microBatches) const {
    return microBatches == 1 ? std::nullopt : std::optional(microBatches);
  }
  static bool isPlain(const search::StepForm &form) {
    return form.microBatches == 1 && form.recompute.nodes.empty();
  }
  static Expected<search::FormedStep> stepOf(const MeshResult &it) {
    if (!it.found)
      return makeError(it.reason.message);
    return search::FormedStep{it.found->memory.peak(),
                              static_cast<double>(it.found->cost.total()) * 1e-12,
                              {},
                              static_cast<double>(it.found->freeLowerBound) * 1e-12};
  }

  Planner &planner;
  const MeshResult &result;
  std::vector<std::pair<search::StepForm, MeshResult>> made;
  std::map<int64_t, std::vector<Strategy>> free; ///< without a limit, by micro-batches
};

Expected<std::optional<Planner::Chosen>>
Planner::chooseOn(MeshResult &result, std::optional<double> seconds) {
  Job one = job;
  one.feedback.microBatches.reset();
  one.feedback.recompute.reset();
  Forms forms(*this, result);
  auto wanted = wantedOf(one, *target.memoryLimit);
  wanted.enough = options.enough;
  wanted.timeLimit = options.workLimit == 0 ? options.timeLimit : wanted.timeLimit;
  wanted.log = options.log;
  search::StepFitter fitter(forms, wanted);
  if (auto ok = fitter.run(seconds); !ok)
    return tl::unexpected(ok.error());
  if (refused.empty())
    refused = fitter.refused;
  // No number of micro-batches is faster than that.
  if (wanted.choosesMicroBatches && fitter.lowerBoundSeconds)
    result.lowerBound = search::picosOf(*fitter.lowerBoundSeconds);
  if (!fitter.best || (seconds && *seconds <= fitter.best->seconds))
    return std::nullopt;
  const search::StepForm &form = fitter.best->form;
  auto made = forms.take(form);
  if (!made)
    return std::nullopt;
  Chosen chosen{std::move(*made), planRecompute(form.recompute), std::nullopt, {}};
  if (chosen.recompute) {
    chosen.recompute->savedBytes =
        fitter.withoutLimit.at(form.microBatches) - fitter.best->step.bytes;
    chosen.said.push_back("recompute: " + textOf(form.recompute, fitter.freeSeconds) +
                          "; the bound is of steps with any recompute or none");
  }
  if (fitter.rows)
    chosen.accumulation = form.microBatches;
  if (isAnyBounded)
    chosen.mesh.lowerBound = result.lowerBound;
  else if (fitter.lowerBoundSeconds)
    chosen.mesh.lowerBound = search::picosOf(*fitter.lowerBoundSeconds);
  return chosen;
}

void Planner::note(const Mesh &mesh, const search::NotFound &reason) {
  if (reason.least &&
      (!tightest || reason.least->peak() < tightest->second.least->peak()))
    tightest.emplace(mesh, reason);
}

bool Planner::isLimitFelt(const MeshResult &result, std::optional<size_t> best) const {
  const search::Picos free =
      result.found ? result.found->freeLowerBound : result.reason.freeLowerBound;
  if (result.found ? !result.found->isLimitFelt : free == 0)
    return false;
  return !best || static_cast<double>(results[*best].found->cost.total()) >
                      (1 + search::goodEnough) * static_cast<double>(free);
}

Expected<std::optional<RecomputeChoice>>
Planner::proposeOn(const Mesh &mesh, int64_t memory,
                   const std::vector<Strategy> *strategies, bool repeatsNecks) {
  search::SearchOptions search = searchOptions();
  limit(search, mostChoices);
  search.model.repeatsNecks = repeatsNecks;
  search.model.given = strategies;
  search.memoryLimit = memory;
  auto program = programOn(mesh);
  if (!program)
    return tl::unexpected(program.error());
  search.pins = program->pins;
  return search::proposeRecompute(program->graph(), program->placement, search);
}

Expected<void> Planner::boundAnyRecompute(std::optional<size_t> best) {
  for (MeshResult &result : results) {
    // What is chosen has a bound of the same kind.
    if (!isLimitFelt(result, best) && !(best && &result == &results[*best]))
      continue;
    job.progress("bounding steps with any recompute on mesh " + result.mesh.str());
    search::SearchOptions search = searchOptions();
    // The bound of the only mesh has the time of its search.
    if (results.size() > 1)
      limit(search, mostChoices);
    auto program = programOn(result.mesh);
    if (!program)
      return tl::unexpected(program.error());
    search.pins = program->pins;
    auto bound =
        search::boundOfAnyRecompute(program->graph(), program->placement, search);
    if (!bound)
      return tl::unexpected(bound.error());
    result.lowerBound = *bound;
    if (!*bound && !result.found) {
      result.reason.isSlower = false;
      result.reason.proved = true;
      result.reason.message = "no step fits, whatever it computes again";
    }
  }
  return {};
}

std::vector<size_t> Planner::meshesToChooseOn(std::optional<size_t> best) const {
  std::vector<size_t> order;
  for (size_t i = 0; i < results.size(); ++i)
    if (!isAnyBounded || (results[i].lowerBound && isLimitFelt(results[i], best)))
      order.push_back(i);
  if (isAnyBounded)
    std::ranges::stable_sort(order, {}, [&](size_t i) { return results[i].lowerBound; });
  order.resize(std::min(order.size(), mostChoiceMeshes));
  return order;
}

Expected<void> Planner::withChoices(std::optional<size_t> &best) {
  const std::optional<int64_t> rows = compiler.rows;
  std::optional<PlanRecompute> recompute;
  std::optional<int64_t> accumulation;
  const auto begin = std::chrono::steady_clock::now();
  const int before = searches;
  const bool isOpen =
      target.memoryLimit && choosesStep(job) && !options.enough.isRaised();
  auto isFelt = [&](const MeshResult &it) { return isLimitFelt(it, best); };
  isAnyBounded = isOpen && choosesRecompute(job) && !choosesAccumulation(job) &&
                 std::ranges::any_of(results, isFelt);
  if (isAnyBounded)
    if (auto ok = boundAnyRecompute(best); !ok)
      return ok;
  std::vector<size_t> order;
  if (isOpen && (isAnyBounded || choosesAccumulation(job)))
    order = meshesToChooseOn(best);
  for (size_t i : order) {
    // Meshes that are left may still be the only ones that fit.
    std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    if (best && (options.workLimit ? searches - before >= mostSearches
                                   : spent.count() > options.timeLimit))
      break;
    std::optional<double> seconds;
    if (best)
      seconds = static_cast<double>(results[*best].found->cost.total()) * 1e-12;
    if (isAnyBounded && seconds &&
        search::picosOf(*seconds / (1 + search::goodEnough)) <= *results[i].lowerBound)
      break;
    auto tried = chooseOn(results[i], seconds);
    if (!tried)
      return tl::unexpected(tried.error());
    if (!*tried)
      continue;
    results[i] = std::move((*tried)->mesh);
    said = std::move((*tried)->said);
    recompute = std::move((*tried)->recompute);
    accumulation = (*tried)->accumulation;
    best = i;
  }
  if (isAnyBounded && best && !recompute)
    said.push_back("recompute: none; the bound is of steps with any recompute or none");
  if (rows && best)
    said.insert(said.begin(),
                accumulationText(accumulation.value_or(1), *rows) +
                    "; the bound is of steps with any number of micro-batches" +
                    (refused.empty() ? "" : "; " + refused));
  return derive(accumulation, std::move(recompute));
}

Expected<PlannedModel> Planner::run() {
  using Clock = std::chrono::steady_clock;
  auto begin = Clock::now();
  auto since = [&] {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const Mesh wanted = job.request.mesh();
  auto read = planTarget(wanted, job.request.machine);
  if (!read)
    return tl::unexpected(read.error());
  target = std::move(*read);
  std::vector<Mesh> meshes = job.request.meshes;
  if (meshes.empty())
    meshes = search::meshesOf(target.topology, mostAxes());
  else if (auto placement = Placement::create(wanted, target.topology); !placement)
    return tl::unexpected(placement.error());
  job.sources->keepsSteps = choosesStep(job);
  if (auto ok = compiler.import(); !ok)
    return tl::unexpected(ok.error());
  importSeconds = since();
  begin = Clock::now();
  if (auto ok = checkNecessary(meshes.front()); !ok)
    return tl::unexpected(ok.error());
  std::optional<size_t> best;
  for (const Mesh &mesh : meshes)
    job.progress("searching mesh " + mesh.str());
  auto all = searchOn(meshes);
  if (!all)
    return tl::unexpected(all.error());
  results = std::move(*all);
  for (size_t i = 0; i < results.size(); ++i) {
    const auto &found = results[i].found;
    auto timeOf = [&](const MeshResult &it) {
      return options.overlap ? it.overlap->time : it.found->cost.total();
    };
    if (found && (!best || timeOf(results[i]) < timeOf(results[*best])))
      best = i;
  }
  if (auto ok = withChoices(best); !ok)
    return tl::unexpected(ok.error());
  if (options.enough.isRaised())
    said.push_back("interrupted: the best plan of those that were found until then");
  searchSeconds = since();
  if (!best) {
    for (const MeshResult &it : results)
      note(it.mesh, it.reason);
    Error error = tightest ? infeasible(tightest->first, tightest->second)
                           : infeasible(results.front().mesh, results.front().reason);
    error.message += refused.empty() ? "" : "; " + refused;
    error.message += options.enough.isRaised() ? "; the search was interrupted" : "";
    return tl::unexpected(std::move(error));
  }
  return finish(*best);
}

Expected<PlannedModel> partita::planModel(const PlanOptions &options,
                                          const Progress &progress, StopFlag stop) {
  return Planner(options, progress, stop).run();
}
