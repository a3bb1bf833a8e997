//===- PlanModel.cpp - The fastest plan of a model on a cluster -----------===//
#include "passes/Pipelines/PlanModel.h"

#include "dialects/Dist/PlanAttributes.h"
#include "partita/Base/Files/File.h"
#include "partita/Rule/Decide/Decide.h"
#include "partita/Rule/Decide/OptimizerParallel.h"
#include "partita/Rule/Decide/ReadyRules.h"
#include "partita/Rule/Decide/ResolveHints.h"
#include "partita/Search/BestPlan.h"
#include "partita/Search/Meshes.h"
#include "partita/Search/PlanName.h"
#include "passes/Pipelines/Accumulation.h"
#include "passes/Pipelines/Compiler.h"
#include "passes/Pipelines/Pipelines.h"
#include "passes/Pipelines/PlanReport.h"
#include "passes/Pipelines/PlanText.h"
#include "passes/Pipelines/Recompute.h"
#include "passes/Shard/OptimizerStates.h"
#include "passes/Shard/Regather.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <map>

using namespace mlir;
using namespace partita;

namespace {
/// A step and its flow graph in the program.
struct FlowProgram : search::StepProgram {
  FlowProgram(std::unique_ptr<dist::ProgramFlow> flow, Placement placement)
      : StepProgram(flow->graph, std::move(placement)), flow(std::move(flow)) {}
  std::unique_ptr<dist::ProgramFlow> flow;
};

/// The program of a model file, of which a compiler derives forms.
class ModelSteps : public search::StepSource {
public:
  ModelSteps(Job &job, Compiler &compiler, const Topology &topology)
      : job(job), compiler(compiler), topology(topology) {}

  Expected<std::shared_ptr<const search::StepProgram>>
  step(const Mesh &mesh, const search::StepForm &form) override {
    return derive(form.microBatches == 1 ? std::nullopt
                                         : std::optional(form.microBatches),
                  planRecompute(form.recompute))
        .and_then([&] { return programOn(mesh); });
  }

  std::optional<search::Pins> statesInParts(const search::StepProgram &step,
                                            const std::vector<Strategy> &strategies,
                                            std::vector<std::string> &notes) override {
    auto homes = homesInParts(function(), *static_cast<const FlowProgram &>(step).flow,
                              strategies, {}, notes);
    return homes ? std::optional(pinsFor(step.graph, *homes)) : std::nullopt;
  }

  std::optional<int64_t> rows() const override { return compiler.rows; }

  /// Makes the program the step with so many micro-batches that computes this again.
  Expected<void> derive(std::optional<int64_t> microBatches,
                        std::optional<PlanRecompute> recompute);
  /// The program's flow graph on a mesh, and what hints ask of it; the module has the
  /// mesh then.
  Expected<std::shared_ptr<const FlowProgram>> programOn(const Mesh &mesh);
  /// The plan to which hints lead with batches over the axes that they leave, and states
  /// in parts as the specification asks; `notes` say what stays whole. The program on
  /// that mesh is then the plan's.
  Expected<search::Decided> givenPlan(const Mesh &mesh, std::vector<std::string> &notes);
  func::FuncOp function() { return compiler.module->lookupSymbol<func::FuncOp>("main"); }

private:
  /// The module as it is on a mesh, which it has then.
  Expected<std::shared_ptr<FlowProgram>> build(const Mesh &mesh);
  /// Pins that hints ask of a program.
  Expected<search::Pins> pinsOf(FlowGraph &graph);

  Job &job;
  Compiler &compiler;
  const Topology &topology;
  /// Programs of the module as it is, by mesh.
  std::map<std::string, std::shared_ptr<const FlowProgram>> programs;
};

class Planner {
public:
  Planner(const PlanOptions &options, const Progress &progress, StopFlag stop)
      : options(options), job(options.request, progress, stop), compiler(job),
        steps(job, compiler, target.topology) {}

  Expected<PlannedModel> run();

private:
  /// Meshes that may be taken: the one that is wanted, or all of the cluster.
  Expected<std::vector<Mesh>> meshes();
  search::Wanted wantedOn(std::vector<Mesh> meshes) const;
  /// The plan that is wanted on the meshes: the fastest, or the one that is given.
  Expected<search::PlanResult> plan(std::vector<Mesh> meshes);
  Expected<search::PlanResult> price(const Mesh &mesh);
  using KnownPlans = std::vector<search::KnownPlan>;
  /// Begins to price, on another thread, plans that people write for the program on each
  /// of the meshes.
  Expected<std::future<KnownPlans>> startKnown();
  /// Finds out what is told of the best plan beside itself.
  Expected<void> completeStory(PlanStory &story, search::Timing &timing,
                               const FlowProgram &program);
  /// Writes the files that were asked for; says so.
  Expected<std::string> writeFiles(const PlanStory &story, search::Timing &timing,
                                   const FlowProgram &program);
  /// Writes the plan into the program; plan.json.
  Expected<std::string> record(const PlanStory &story, const FlowProgram &program);
  Expected<PlannedModel> finish();
  const search::NodeResult &chosen() const { return result.nodes[result.best]; }

  const PlanOptions &options;
  Job job;
  Compiler compiler;
  PlanTarget target;
  ModelSteps steps;
  search::PlanResult result;
  double importSeconds = 0, searchSeconds = 0;
};
} // namespace

Expected<void> ModelSteps::derive(std::optional<int64_t> microBatches,
                                  std::optional<PlanRecompute> recompute) {
  auto nodesOf = [](const std::optional<PlanRecompute> &it) {
    return it ? std::pair(it->exactly, it->nodes)
              : std::pair(false, std::vector<std::vector<std::string>>());
  };
  const bool isThere =
      compiler.module &&
      microBatches.value_or(1) == job.feedback.microBatches.value_or(1) &&
      nodesOf(recompute) == nodesOf(job.feedback.recompute);
  job.feedback.microBatches = microBatches;
  job.feedback.recompute = std::move(recompute);
  if (isThere)
    return {};
  programs.clear();
  auto ok = compiler.import();
  if (!ok)
    compiler.module = {};
  return ok;
}

Expected<std::shared_ptr<FlowProgram>> ModelSteps::build(const Mesh &mesh) {
  auto flow = dist::buildFlow(function(), mesh, dist::Callees::Inlined);
  if (failed(flow))
    return makeError("the program has an op without a rule");
  (*flow)->graph.finalize();
  auto placement = Placement::create((*flow)->graph.mesh, topology);
  if (!placement)
    return tl::unexpected(placement.error());
  auto program = std::make_shared<FlowProgram>(std::move(*flow), std::move(*placement));
  program->parameters = parametersOf(function(), *program->flow);
  return program;
}

Expected<std::shared_ptr<const FlowProgram>> ModelSteps::programOn(const Mesh &mesh) {
  if (job.stop.isRaised())
    return makeError("cancelled");
  (*compiler.module)
      ->setAttr(dist::meshAttr, dist::MeshAttr::get(&compiler.context, mesh));
  std::shared_ptr<const FlowProgram> &known = programs[mesh.str()];
  if (known)
    return known;
  auto program = build(mesh);
  if (!program)
    return tl::unexpected(program.error());
  if (job.request.hints) {
    auto pins = pinsOf((*program)->flow->graph);
    if (!pins)
      return tl::unexpected(pins.error());
    (*program)->pins = std::move(*pins);
  }
  return known = std::move(*program);
}

Expected<search::Decided> ModelSteps::givenPlan(const Mesh &mesh,
                                                std::vector<std::string> &notes) {
  (*compiler.module)
      ->setAttr(dist::meshAttr, dist::MeshAttr::get(&compiler.context, mesh));
  auto program = build(mesh);
  if (!program)
    return tl::unexpected(program.error());
  FlowGraph &graph = (*program)->flow->graph;
  auto hints =
      job.request.hints ? job.request.hints->on(graph) : Expected<Hints>(Hints());
  if (!hints)
    return tl::unexpected(hints.error());
  if (!hints->stages.empty() || !hints->kept.empty())
    return makeError(hints->file + ": stages, and how weights are kept, are followed by "
                                   "partita compile of a model");
  auto decision = decide(graph, ShardMode::DataParallel, *hints);
  if (!decision)
    return tl::unexpected(decision.error());
  llvm::append_range(notes, decision->notes);
  auto homes =
      homesInParts(function(), *(*program)->flow, decision->strategies, {}, notes);
  if (homes)
    placeOptimizer(graph, *homes, (*program)->parameters, *decision);
  regather(function(), *(*program)->flow, decision->strategies, decision->servings);
  programs[mesh.str()] = std::move(*program);
  return search::Decided{std::move(decision->strategies), std::move(decision->servings)};
}

Expected<search::Pins> ModelSteps::pinsOf(FlowGraph &graph) {
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

search::Wanted Planner::wantedOn(std::vector<Mesh> meshes) const {
  search::Wanted wanted;
  wanted.meshes = std::move(meshes);
  wanted.search.memoryLimit = target.memoryLimit;
  wanted.search.timeLimit = options.timeLimit;
  if (options.workLimit)
    wanted.search.workLimit = options.workLimit;
  wanted.search.threads = static_cast<int>(options.threads);
  wanted.search.stop = job.stop;
  wanted.search.enough = options.enough;
  wanted.search.log = options.log;
  if (choosesStep(job)) {
    wanted.choosesMicroBatches = choosesAccumulation(job);
    wanted.choosesRecompute = choosesRecompute(job);
  }
  wanted.overlap = options.overlap;
  wanted.progress = job.progress;
  return wanted;
}

Expected<std::vector<Mesh>> Planner::meshes() {
  const Mesh wanted = job.request.mesh();
  auto read = planTarget(wanted, job.request.machine);
  if (!read)
    return tl::unexpected(read.error());
  target = std::move(*read);
  if (job.request.meshes.empty())
    return search::meshesOf(target.topology, static_cast<size_t>(options.mostAxes));
  auto placement = Placement::create(wanted, target.topology);
  if (!placement)
    return tl::unexpected(placement.error());
  return job.request.meshes;
}

Expected<std::future<Planner::KnownPlans>> Planner::startKnown() {
  std::vector<const search::NodeResult *> order{&chosen()};
  for (const search::NodeResult &it : result.nodes)
    if (it.bound && &it != &chosen())
      order.push_back(&it);
  std::stable_sort(order.begin() + 1, order.end(),
                   [](auto *a, auto *b) { return a->bound->time < b->bound->time; });
  struct OnMesh {
    std::shared_ptr<const FlowProgram> program;
    search::Picos lowerBound;
  };
  std::vector<OnMesh> all;
  for (const search::NodeResult *it : order) {
    auto program = steps.programOn(it->mesh);
    if (!program)
      return tl::unexpected(program.error());
    all.push_back({std::move(*program), it->bound.value_or(search::Bound()).time});
  }
  return std::async(
      std::launch::async,
      [all = std::move(all), first = chosen().found->known, limit = target.memoryLimit] {
        std::vector<search::MeshProgram> meshes;
        for (const OnMesh &it : all)
          meshes.push_back({it.lowerBound, it.program->graph, it.program->placement,
                            it.program->parameters});
        return search::knownPlans(meshes, limit, first.get());
      });
}

Expected<void> Planner::completeStory(PlanStory &story, search::Timing &timing,
                                      const FlowProgram &program) {
  story.name = search::planName(program.graph, chosen().found->plan.strategies);
  story.request = search::requestOf(program.graph, target.topology, chosen().found->plan);
  story.rates = ratesOf(*program.flow, *chosen().found, target);
  story.reshards = search::costliestReshards(timing, chosen().found->plan, 5);
  if (result.isGiven)
    return {};
  auto pricing = startKnown(); // beside what else is told
  if (!pricing)
    return tl::unexpected(pricing.error());
  search::SearchOptions again = wantedOn({}).search;
  again.pins = program.pins;
  size_t tiedLayers = 0;
  auto model = search::modelOf(timing, again, search::Rows::Most, &tiedLayers);
  if (!model)
    return tl::unexpected(model.error());
  auto overlapped = search::overlapOf(result, timing, *model, tiedLayers);
  if (!overlapped)
    return tl::unexpected(overlapped.error());
  story.overlap = *overlapped;
  story.runnersUp = search::runnersUp(timing, *model, again, story.reshards);
  story.known = pricing->get();
  return {};
}

Expected<std::string> Planner::writeFiles(const PlanStory &story, search::Timing &timing,
                                          const FlowProgram &program) {
  std::string text;
  if (!options.hintsOutput.empty()) {
    job.progress("shortening hints");
    auto said = writeHints(options.hintsOutput, program.graph, program.placement,
                           chosen().found->plan,
                           search::evaluate(timing, chosen().found->plan).total());
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
  return text;
}

Expected<std::string> Planner::record(const PlanStory &story,
                                      const FlowProgram &program) {
  writeFound(steps.function(), *program.flow, *chosen().found, story.request, target);
  auto known = dist::certificateOf(*compiler.module);
  if (!known)
    return tl::unexpected(known.error());
  PlanCertificate &certificate = **known;
  certificate.setBound(planBound(search::boundOf(result.nodes)));
  if (story.overlap)
    certificate.overlapped = {static_cast<double>(story.overlap->time) * 1e-12,
                              static_cast<double>(story.overlap->bound.time) * 1e-12};
  certificate.searchSeconds = searchSeconds;
  dist::setCertificate(*compiler.module, certificate);
  compiler.report.notes = {searchNote(*chosen().found, story.request, target)};
  llvm::append_range(compiler.report.notes, chosen().notes);
  llvm::append_range(compiler.report.notes, result.notes);
  return compiler.stateFacts()
      .and_then([&] {
        return compiler.runPasses(
            "", [](OpPassManager &manager) { buildConversionsPipeline(manager, ""); });
      })
      .and_then([&] { return compiler.recordPlan(); })
      .map([&] { return compiler.plan.json(); });
}

Expected<PlannedModel> Planner::finish() {
  auto program = steps.programOn(chosen().mesh);
  if (!program)
    return tl::unexpected(program.error());
  search::Timing timing((*program)->graph, (*program)->placement);
  PlanStory story{result, target, importSeconds};
  if (auto ok = completeStory(story, timing, **program); !ok)
    return tl::unexpected(ok.error());
  auto files = writeFiles(story, timing, **program);
  if (!files)
    return tl::unexpected(files.error());
  // The chosen mesh is the program's: other meshes' programs were asked for meanwhile.
  auto json = steps.programOn(chosen().mesh).and_then([&](const auto &it) {
    return record(story, *it);
  });
  if (!json)
    return tl::unexpected(json.error());
  PlannedModel planned{planText(story) + *files, std::move(*json)};
  if (options.output.empty())
    return planned;
  if (auto ok = writeFile(options.output, planned.json); !ok)
    return tl::unexpected(ok.error());
  planned.text += "wrote " + options.output + "\n";
  return planned;
}

Expected<search::PlanResult> Planner::price(const Mesh &mesh) {
  std::vector<std::string> notes;
  return steps.givenPlan(mesh, notes).and_then([&](search::Decided plan) {
    return steps.programOn(mesh).map([&](const auto &program) {
      search::Timing timing(program->graph, program->placement);
      search::PlanResult priced = search::pricedPlan(timing, std::move(plan));
      priced.notes = std::move(notes);
      return priced;
    });
  });
}

Expected<search::PlanResult> Planner::plan(std::vector<Mesh> meshes) {
  if (!options.price)
    return search::bestPlan(steps, wantedOn(std::move(meshes)));
  if (job.request.meshes.empty())
    return makeError("--price needs --mesh: one plan is priced, and nothing is searched");
  if (choosesAccumulation(job))
    return makeError("--price needs a number of micro-batches: \"accumulation\" of the "
                     "training step is \"auto\"");
  return price(meshes.front());
}

Expected<PlannedModel> Planner::run() {
  using Clock = std::chrono::steady_clock;
  auto begin = Clock::now();
  auto lap = [&] {
    return std::chrono::duration<double>(Clock::now() -
                                         std::exchange(begin, Clock::now()))
        .count();
  };
  auto all = meshes();
  if (!all)
    return tl::unexpected(all.error());
  job.sources->keepsSteps = choosesStep(job);
  if (auto ok = compiler.import(); !ok)
    return tl::unexpected(ok.error());
  importSeconds = lap();
  auto found = plan(std::move(*all));
  if (!found)
    return tl::unexpected(found.error());
  result = std::move(*found);
  auto recompute = planRecompute(result.form.recompute);
  if (recompute)
    recompute->savedBytes = result.savedBytes;
  const bool isCounted = compiler.rows && result.form != search::StepForm();
  if (auto ok =
          steps.derive(isCounted ? std::optional(result.form.microBatches) : std::nullopt,
                       std::move(recompute));
      !ok)
    return tl::unexpected(ok.error());
  searchSeconds = lap();
  return finish();
}

Expected<PlannedModel> partita::planModel(const PlanOptions &options,
                                          const Progress &progress, StopFlag stop) {
  return Planner(options, progress, stop).run();
}
