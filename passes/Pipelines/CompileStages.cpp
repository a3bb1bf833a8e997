//===- CompileStages.cpp - From a model file to a pipeline ----------------===//
#include "passes/Pipelines/CompileStages.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Interfaces/ValueNames.h"
#include "dialects/Task/Task.h"
#include "partita/Base/Units.h"
#include "partita/Rule/Decide/ModuleNames.h"
#include "partita/Rule/Decide/ReadyRules.h"
#include "partita/Rule/Decide/ResolveHints.h"
#include "partita/Search/StepCut.h"
#include "partita/Topology/Part.h"
#include "partita/Train/Spec.h"
#include "passes/Pipelines/Compiler.h"
#include "passes/Pipelines/MicroBatch.h"
#include "passes/Pipelines/Pipelines.h"
#include "passes/Pipelines/ReadStages.h"
#include "passes/Pipelines/StageMachine.h"
#include "passes/Shard/SearchPlan.h"
#include "passes/Stage/Stages.h"

#include <algorithm>

using namespace mlir;
using namespace partita;

/// A rule looks for the blocks of each stage by itself.
static const Hints &fileOf(const Request &request) {
  static const Hints none;
  return request.hints && request.hints->file ? *request.hints->file : none;
}

/// Says before the work what a pipeline that trains cannot do.
static Expected<void> checkStagedTraining(const Request &request, const Hints &hints) {
  const train::Spec &spec = request.train->spec;
  const std::string file = "--train " + request.train->file + ": ";
  // Phases of a step that the file has are not known.
  if (spec.trainingInfo)
    return makeError(file + "a step that the model's file has (\"training_info\") is not "
                            "cut into stages");
  if (spec.accumulation > 1 && request.cut.microBatches > 1)
    return makeError(file + "\"accumulation\" is " + std::to_string(spec.accumulation) +
                     " and --micro-batches is " +
                     std::to_string(request.cut.microBatches) +
                     ": one of them says how many micro-batches a step has");
  if (spec.choosesAccumulation && request.cut.microBatches == 1 && !request.plan)
    return makeError(file +
                     "\"accumulation\" is \"auto\", which is not chosen for a step "
                     "of several stages: --micro-batches says into how many its "
                     "batch is cut");
  if (!request.model.states.empty())
    return makeError(file + "--state and stages of a training step do not go together");
  return {};
}

Expected<bool> partita::wantsStages(const Request &request) {
  const Cut &cut = request.cut;
  const Hints &hints = fileOf(request);
  const std::optional<Plan> &plan = request.plan;
  if (request.levels.from > Level::L0)
    return false;
  const bool hasStages = cut.stages > 1 || cut.groups > 0 || request.meshes.size() > 1 ||
                         (plan && plan->entry().stages.size() > 1) ||
                         !hints.stages.empty() || !hints.groups.empty();
  if (!hasStages && (cut.schedule || cut.order))
    return makeError(
        "--schedule orders the stages of a pipeline, and there is one stage: "
        "--stages cuts the model");
  const bool hasSlices = cut.microBatches > 1 || (plan && plan->entry().microBatches > 1);
  if (!request.train)
    return hasStages || hasSlices;
  if (hasStages)
    return checkStagedTraining(request, hints).map([] { return true; });
  if (cut.microBatches > 1)
    return makeError("--micro-batches: a training step of one stage takes them from "
                     "\"accumulation\" in " +
                     request.train->file);
  return false;
}

namespace {
/// Inputs and outputs of the whole model, and which of them have the batch.
struct Interface {
  using Shapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;
  Shapes inputs, outputs;
  Shapes states; ///< by what they come in
};

class StageCompiler : public EntryCompiler {
public:
  explicit StageCompiler(const Job &given)
      : request(given.request), hints(fileOf(request)), now(given), product(now) {
    now.form.keepLoops = false; // iterations can be in several stages
  }

  Compiler &compiler() override { return product; }

  Expected<void> run() override {
    auto ok = check()
                  .and_then([&] {
                    return !request.model.others.empty() ? importFiles()
                           : request.train               ? importStep()
                                                         : import();
                  })
                  .and_then([&] { return planStages(); });
    return ok && request.levels.to >= Level::L4 ? assemble() : ok;
  }

  /// Gives away all that a run up to L3 has made.
  PartitionedStages take() {
    PartitionedStages made;
    for (int64_t group : order.groupOf)
      made.ranks.push_back(devices().ranksOf(group));
    made.program = std::move(program);
    made.order = order;
    made.sliced = sliced;
    made.inputs = product.inputNames;
    made.outputs = outputs;
    made.weights = product.weights;
    return made;
  }

  /// Gives away the step that a run up to L4 has made.
  ScheduledStep takeStep() {
    ScheduledStep made{std::move(product.module), {}, outputs, product.weights};
    for (const auto &[name, shape] : full.inputs)
      made.inputs.push_back(name);
    return made;
  }

private:
  /// What a pipeline cannot do yet is said before the work.
  Expected<void> check() {
    if (!request.told.hints.empty())
      return makeError("--write-hints and stages of a pipeline do not go together: each "
                       "stage has hints of its own");
    order.microBatches = request.cut.microBatches;
    if (request.plan)
      return followPlan(request.plan->file, request.plan->entry());
    // Hints may make more stages, and place them.
    return request.cut.stages > 1 && hints.stages.empty()
               ? placeStages(request.cut.stages)
               : Expected<void>();
  }

  /// Stages, groups of ranks, meshes and order of a plan. What else is said of them must
  /// be the same.
  Expected<void> followPlan(const std::string &file, const PlanEntry &plan) {
    auto differs = [&](const std::string &has, const std::string &given) {
      return makeError("'" + file + "' is a plan with " + has + ", not " + given);
    };
    auto count = [](int64_t number, const char *what) {
      return std::to_string(number) + " " + what +
             (number == 1                             ? ""
              : std::string_view(what).ends_with("h") ? "es"
                                                      : "s");
    };
    auto stages = static_cast<int64_t>(plan.stages.size());
    order = orderOf(plan);
    if (request.cut.microBatches > 1 && plan.microBatches != request.cut.microBatches)
      return differs(count(plan.microBatches, "micro-batch"),
                     count(request.cut.microBatches, "micro-batch"));
    request.cut.microBatches = plan.microBatches;
    if (request.cut.stages > 1 && request.cut.stages != stages)
      return differs(count(stages, "stage"), count(request.cut.stages, "stage"));
    if (request.cut.groups > 0 && request.cut.groups != order.numGroups())
      return differs(count(order.numGroups(), "group"),
                     count(request.cut.groups, "group"));
    if (!plan.schedule.empty()) {
      const bool isNamed = stepScheduleOf(plan.schedule).has_value();
      const std::string given = request.cut.order      ? stepText(*request.cut.order)
                                : request.cut.schedule ? name(*request.cut.schedule)
                                                       : plan.schedule;
      if (given != plan.schedule)
        return differs(isNamed ? "schedule " + plan.schedule : "a schedule of a file",
                       request.cut.order ? "that of --schedule" : given);
      auto ok = isNamed ? readSchedule(plan.schedule, request.cut)
                        : readStepText(plan.schedule, file).map([&](PipelineStep step) {
                            request.cut.order = std::move(step);
                          });
      if (!ok)
        return ok;
    }
    if (const int64_t parts = request.train ? request.train->spec.accumulation : 1;
        parts > 1 && parts != plan.microBatches)
      return differs(count(plan.microBatches, "micro-batch"),
                     count(parts, "micro-batch") + " (\"accumulation\")");
    std::vector<Mesh> own(static_cast<size_t>(order.numGroups()));
    for (size_t s = 0; s < plan.stages.size(); ++s) {
      auto mesh = Mesh::parse(plan.stages[s].mesh);
      if (!mesh)
        return tl::unexpected(mesh.error());
      own[static_cast<size_t>(order.groupOf[s])] = std::move(*mesh);
      for (const PlanNode &node : plan.stages[s].nodes)
        // A source is wherever it is read, and gradients follow.
        if (!node.strategy.empty() && node.phase == Phase::Forward)
          plannedStages.emplace(node.name, static_cast<int32_t>(s));
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

  /// The group of ranks of every stage, and the mesh of every group.
  Expected<void> placeStages(int64_t stages) {
    order.groupOf = hints.groups;
    if (!hints.groups.empty() && static_cast<int64_t>(hints.groups.size()) != stages)
      return makeError(hints.file + ": groups: expected one number for each of the " +
                       std::to_string(stages) + " stages, got " +
                       std::to_string(hints.groups.size()));
    if (request.cut.order && request.cut.order->stages() == stages) {
      order.groupOf = request.cut.order->groupOf;
    } else if (hints.groups.empty()) {
      auto placed = placedStages(request.cut.schedule.value_or(StepSchedule()), stages,
                                 request.cut.groups);
      if (!placed)
        return tl::unexpected(placed.error());
      order.groupOf = std::move(*placed);
    }
    int64_t groups = order.numGroups();
    if (request.cut.groups > 0 && request.cut.groups != groups)
      return makeError("--groups is " + std::to_string(request.cut.groups) +
                       (hints.groups.empty()
                            ? ", there are " + std::to_string(stages) + " stages"
                            : ", the hints make " + std::to_string(groups)));
    if (meshes.size() > 1 && meshes.size() != static_cast<size_t>(groups))
      return makeError("--mesh has " + std::to_string(meshes.size()) +
                       " meshes, there are " + std::to_string(groups) +
                       (groups == stages ? " stages" : " groups of ranks"));
    const bool isGpipe = request.cut.schedule == StepSchedule{ScheduleKind::Gpipe};
    if (request.cut.order && !request.train)
      return makeError("--schedule: a file has the order of a training step (--train)");
    if (request.cut.schedule && !request.train && !isGpipe &&
        request.cut.schedule != StepSchedule{ScheduleKind::Interleaved})
      return makeError("--schedule " + name(*request.cut.schedule) +
                       " orders the backward pass of a training step (--train)");
    if (groups == stages && request.cut.schedule && !request.train)
      return makeError("--schedule " + name(*request.cut.schedule) +
                       " is for groups of ranks with several stages (--groups), of which "
                       "there are none: it would have no effect");
    // One stage in each: the order is that of the micro-batches.
    order.round = groups == stages ? 1 : isGpipe ? request.cut.microBatches : groups;
    return {};
  }

  StageMachine devices() const { return {request.machine, order, meshes}; }

  Interface interfaceOf(func::FuncOp function) const {
    Interface out;
    auto add = [](Interface::Shapes &list, Attribute name, Type type) {
      list.emplace_back(cast<StringAttr>(name).str(),
                        cast<RankedTensorType>(type).getShape().vec());
    };
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      add(dist::argumentState(function, i) ? out.states : out.inputs,
          function.getArgAttr(i, "graph.name"), function.getArgumentTypes()[i]);
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      if (!dist::resultState(function, i))
        add(out.outputs, function.getResultAttr(i, "graph.name"),
            function.getResultTypes()[i]);
    return out;
  }

  /// Several inputs begin with a dim of the batch's size. Where another dim of an input
  /// has that size too, the one may be that dim instead, as a mask of [sequence,
  /// sequence] is, and a slice of it would give wrong numbers.
  Expected<void> checkBatch(int64_t batch) const {
    std::vector<std::string> first, other;
    for (const auto &[name, shape] : full.inputs)
      for (size_t d = 0; d < shape.size(); ++d)
        if (shape[d] == batch)
          (d == 0 ? first : other).push_back(name);
    if (first.size() < 2 || other.empty())
      return {};
    return makeError("--micro-batches: the batch of " + std::to_string(batch) +
                     " is also the size of another dim of '" + other[0] +
                     "', so it cannot be told whether '" + first[1] +
                     "' has a batch; give it another size");
  }

  Expected<void> import() {
    auto ok = product.timed(Level::L0, "import", &Compiler::import);
    if (!ok)
      return ok;
    full = interfaceOf(product.module->lookupSymbol<func::FuncOp>("main"));
    for (const auto &[name, shape] : full.outputs)
      outputs.push_back(name);
    if (request.cut.microBatches > 1)
      ok = findBatch().and_then([&] { return slice(); });
    return ok.and_then([&] { return cut(); }).map([&](const auto &stages) {
      program = splitStages(product.module->lookupSymbol<func::FuncOp>("main"), stages);
    });
  }

  /// A pipeline that files per rank are written for: its stages are programs already, of
  /// one micro-batch.
  Expected<void> importFiles() {
    if (request.train || !request.model.states.empty())
      return makeError("files of the ranks of several stages go with neither --train nor "
                       "--state");
    if (request.mode != ShardMode::Manual && !request.plan)
      return makeError("'" + request.model.file + "' and " +
                       std::to_string(request.model.others.size()) +
                       " other files are a program per rank, which --mode manual "
                       "compiles");
    if (order.groupOf.empty())
      if (auto ok = placeStages(wantedStages()); !ok)
        return ok;
    std::vector<Mesh> own;
    std::vector<std::vector<int64_t>> ranks;
    for (int64_t group : order.groupOf) {
      own.push_back(devices().meshOf(group));
      ranks.push_back(devices().ranksOf(group));
    }
    auto models = now.sources->readStages(now.request, now.form, own, ranks);
    if (!models)
      return tl::unexpected(models.error());
    auto ends = endsOf(*models, request.cut.microBatches);
    if (!ends)
      return tl::unexpected(ends.error());
    order.microBatches = request.cut.microBatches = ends->microBatches;
    product.inputNames = ends->inputs;
    outputs = ends->outputs;
    if (order.microBatches > 1)
      sliced = ends->sliced;
    for (size_t s = 0; s < own.size(); ++s) {
      if (!request.levels.dump.empty())
        now.request.levels.dump = request.levels.dump + "/stage" + std::to_string(s);
      if (auto ok = importStage(product, models->stages[s], own[s]); !ok)
        return ok;
      program.stages.push_back(std::move(product.module));
    }
    if (auto ok = checkSliced(sliced, program.stages); !ok)
      return ok;
    return crossingsOf(*models, program.stages).map([&](auto crossings) {
      program.crossings = std::move(crossings);
    });
  }

  /// The training step as a step per stage. Its forward ops get their stages before it is
  /// derived, and gradients inherit them.
  Expected<void> importStep() {
    train::Spec &spec = now.request.train->spec;
    if (spec.accumulation == 1 && request.cut.microBatches > 1) {
      spec.choosesAccumulation = true;
      now.feedback.microBatches = request.cut.microBatches;
    } else {
      order.microBatches = request.cut.microBatches = spec.accumulation;
    }
    const bool isSaid = saysStages();
    product.onImported = [&]() -> Expected<void> {
      if (isSaid)
        return cut().map([&](const auto &stages) { markStages(stages); });
      return readForward().map([&] { markStages(numbers()); });
    };
    auto ok = product.timed(Level::L0, "import", &Compiler::import).and_then([&] {
      return isSaid ? orderStep() : cutStep();
    });
    if (!ok)
      return ok;
    product.cutsStep = true;
    product.partsWeights = step.partsWeights;
    full = interfaceOf(product.module->lookupSymbol<func::FuncOp>("main"));
    for (const auto &[name, shape] : full.outputs)
      outputs.push_back(name);
    for (const auto &[name, shape] : full.inputs)
      if (!shape.empty())
        sliced.insert(name);
    auto flow = dist::buildFlow(product.module->lookupSymbol<func::FuncOp>("main"),
                                *Mesh::parse(""), dist::Callees::Inlined);
    if (failed(flow))
      return makeError("the step has an op without a rule");
    (*flow)->graph.finalize();
    if (ok = checkHintNames((*flow)->graph); !ok)
      return ok;
    auto made = splitStep(*product.module, static_cast<int32_t>(order.groupOf.size()));
    if (!made)
      return tl::unexpected(made.error());
    program = std::move(*made);
    return {};
  }

  /// Makes the order of the step's parts, which a file or a schedule's name says.
  Expected<void> orderStep() {
    const auto stages = static_cast<int64_t>(order.groupOf.size());
    if (!request.cut.order) {
      const StepSchedule other{order.numGroups() < stages
                                   ? ScheduleKind::Interleaved
                                   : ScheduleKind::OneForwardOneBackward};
      return makeStep(request.cut.schedule.value_or(other), order.groupOf,
                      request.cut.microBatches)
          .map([&](PipelineStep made) { step = std::move(made); });
    }
    step = *request.cut.order;
    auto count = [](int64_t number, const std::string &what) {
      return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
    };
    if (step.stages() != stages || step.groups() != order.numGroups() ||
        step.microBatches != request.cut.microBatches)
      return makeError("--schedule: the file has " + count(step.stages(), "stage") +
                       " on " + count(step.groups(), "rank") + " and " +
                       count(step.microBatches, "micro-batch") + ", the step has " +
                       count(stages, "stage") + " on " +
                       count(order.numGroups(), "group") + " and " +
                       std::to_string(request.cut.microBatches));
    if (step.groupOf != order.groupOf)
      return makeError("--schedule: the file has other stages on a rank than the hints");
    return {};
  }

  /// Says on each op in which stage it is, and sorts the ops by stage: cotangents are
  /// summed in the order in which the backward pass meets the ops that read a value.
  void markStages(const std::vector<int32_t> &stages) {
    mlir::Block &block = product.module->lookupSymbol<func::FuncOp>("main").front();
    std::vector<std::vector<Operation *>> byStage(
        static_cast<size_t>(1 + *std::ranges::max_element(stages)));
    Builder builder(&product.context);
    for (auto [op, stage] : llvm::zip_equal(block.without_terminator(), stages))
      if (stage >= 0) {
        op.setAttr(stageAttr, builder.getI64IntegerAttr(stage));
        byStage[static_cast<size_t>(stage)].push_back(&op);
      }
    for (const auto &ops : byStage)
      for (Operation *op : ops)
        op->moveBefore(block.getTerminator());
  }

  /// The extent of the batch: the first dim of the first input that has one.
  Expected<void> findBatch() {
    auto first = std::ranges::find_if(full.inputs,
                                      [](const auto &it) { return !it.second.empty(); });
    if (first == full.inputs.end())
      return makeError("--micro-batches: the model has no input with a batch");
    batch = first->second[0];
    if (batch % request.cut.microBatches != 0)
      return makeError("--micro-batches: the batch of " + std::to_string(batch) +
                       " (dim 0 of '" + first->first + "') does not divide by " +
                       std::to_string(request.cut.microBatches));
    if (auto ok = checkBatch(batch); !ok)
      return ok;
    for (const auto &[output, sizes] : product.dims)
      for (const std::string &size : sizes)
        if (llvm::is_contained(product.sizes, size))
          return makeError("--micro-batches: output '" + output +
                           "' is as long as the data say, and has no slice per "
                           "micro-batch");
    // Each micro-batch has its rows of a state.
    for (const auto &[name, shape] : full.states)
      if (shape.empty() || shape[0] != batch)
        return makeError("--micro-batches: state '" + name +
                         "' does not have the batch as its first dim, so that every "
                         "micro-batch would change it");
    for (const auto &[name, shape] : full.outputs)
      if (shape.empty() || shape[0] != batch)
        return makeError("--micro-batches: output '" + name +
                         "' does not have the batch as its first dim");
    return {};
  }

  /// The program becomes that of one micro-batch. All inputs whose first dim is as long
  /// as the batch have it, and so have all states and outputs: these have a slot per
  /// micro-batch.
  Expected<void> slice() {
    auto main = product.module->lookupSymbol<func::FuncOp>("main");
    BatchInterface has;
    for (unsigned i = 0; i < main.getNumArguments(); ++i) {
      auto shape = cast<RankedTensorType>(main.getArgumentTypes()[i]).getShape();
      if (!shape.empty() && shape[0] == batch)
        has.arguments.push_back(i);
    }
    for (unsigned i = 0; i < main.getNumResults(); ++i)
      has.results.push_back(i);
    for (unsigned i : has.arguments)
      sliced.insert(main.getArgAttrOfType<StringAttr>(i, "graph.name").str());
    sliced.insert(outputs.begin(), outputs.end());
    if (auto ok = takeMicroBatch(product, has, request.cut.microBatches); !ok)
      return makeError("--micro-batches " + std::to_string(request.cut.microBatches) +
                       ": " + ok.error().message);
    return {};
  }

  /// A name of a hint, or one that is to be explained, must be somewhere in the whole.
  Expected<void> checkHintNames(FlowGraph &graph) const {
    auto known = hintsFor(graph, hints);
    auto count = [](const Hints &it) {
      return it.nodes.size() + it.tensors.size() + it.subgraphs.size() + it.kept.size();
    };
    if (count(known) != count(hints))
      return resolveHints(graph, hints).map([](const auto &) {});
    if (const std::string &glob = request.told.explain;
        !glob.empty() && std::ranges::none_of(graph.ops, [&](const FlowOp &op) {
          return isNamed(graph, op, glob);
        }))
      return makeError("no node and no module is named '" + glob + "'" +
                       nearMisses(graph, glob));
    for (const DatasetHint &hint : hints.dataset)
      if (std::ranges::none_of(known.dataset,
                               [&](auto &it) { return it.glob == hint.glob; }))
        return makeError(hints.file + ": dataset: no input and no output is named '" +
                         hint.glob + "'");
    return {};
  }

  /// Tells whether another entry, a plan or hints say the stages.
  bool saysStages() const {
    return !now.feedback.stages.empty() || !plannedStages.empty() ||
           !hints.stages.empty();
  }

  int32_t wantedStages() const {
    return std::max<int32_t>({static_cast<int32_t>(request.cut.stages),
                              static_cast<int32_t>(meshes.size()),
                              static_cast<int32_t>(hints.groups.size())});
  }

  /// The stage of every op: that of another entry, of a plan, of hints, or by work.
  Expected<std::vector<int32_t>> assignStages(const FlowGraph &graph) {
    if (!now.feedback.stages.empty())
      return search::stagesByName(graph, now.feedback.stages, "stages");
    if (!plannedStages.empty())
      return search::stagesByName(graph, plannedStages, request.plan->file);
    std::vector<std::pair<std::string, int32_t>> globs;
    for (const StageHint &hint : hints.stages)
      globs.emplace_back(hint.glob, hint.stage);
    if (!globs.empty())
      return search::stagesByGlob(graph, globs, hints.file);
    // The cut depends on the ranks of each stage.
    return placeStages(wantedStages())
        .and_then([&] { return devices().costOf(graph); })
        .and_then([&](const search::StageCost &cost) {
          return search::cutIntoStages(graph, cost, wantedStages());
        });
  }

  Expected<void> checkCount(int64_t made) {
    if (request.plan && static_cast<int64_t>(order.groupOf.size()) != made)
      return makeError("'" + request.plan->file +
                       "' is not a plan for this model: it has " +
                       std::to_string(order.groupOf.size()) +
                       " stages, its nodes are in " + std::to_string(made));
    if (request.cut.stages > 1 && request.cut.stages != made)
      return makeError("--stages is " + std::to_string(request.cut.stages) +
                       ", the hints make " + std::to_string(made));
    return request.plan ? Expected<void>() : placeStages(made);
  }

  /// Reads the program before its step is derived as a flow graph.
  Expected<void> readForward() {
    auto function = product.module->lookupSymbol<func::FuncOp>("main");
    auto flow = dist::buildFlow(function, *Mesh::parse(""));
    if (failed(flow))
      return makeError("the program has an op without a rule");
    forward = std::move(*flow);
    if (forward->hasCalls)
      return makeError("a program with loops or branches (graph.repeat, graph.if) is not "
                       "cut into stages");
    forward->graph.finalize();
    // The step has all names that hints may give (importStep).
    return request.train ? Expected<void>() : checkHintNames(forward->graph);
  }

  /// Stages by operation of the function that was read.
  std::vector<int32_t> byOperation(const std::vector<int32_t> &byOp) const {
    std::vector<int32_t> result;
    for (size_t i = 0; i < forward->operations.size(); ++i)
      if (forward->operations[i])
        result.push_back(byOp[i]);
    return result;
  }

  /// The number of its flow op for a stage of every op, whose gradients inherit it.
  std::vector<int32_t> numbers() const {
    std::vector<int32_t> all(forward->graph.ops.size(), -1);
    for (size_t i = 0; i < all.size(); ++i)
      if (forward->graph.ops[i].kind == FlowKind::Compute)
        all[i] = static_cast<int32_t>(i);
    return byOperation(all);
  }

  /// The stage of every op; −1: it has no operands.
  Expected<std::vector<int32_t>> cut() {
    if (auto ok = readForward(); !ok)
      return tl::unexpected(ok.error());
    const FlowGraph &graph = forward->graph;
    auto stages = assignStages(graph);
    if (!stages)
      return tl::unexpected(stages.error());
    auto made = 1 + *std::ranges::max_element(*stages);
    if (auto ok = checkCount(made); !ok)
      return tl::unexpected(ok.error());
    auto cost = devices().costOf(graph);
    if (!cost)
      return tl::unexpected(cost.error());
    tellStages(*cost, *stages);
    return byOperation(*stages);
  }

  /// Cuts the step by what its parts cost, and gives each op the stage of its number.
  Expected<void> cutStep() {
    const bool sharesStates = request.mode != ShardMode::DataParallel ||
                              request.train->spec.optimizerParallel.enable;
    auto made =
        placeStages(wantedStages()).and_then([&] { return orderStep(); }).and_then([&] {
          return devices().cut(*product.module, forward->graph, step, sharesStates);
        });
    if (!made)
      return tl::unexpected(made.error());
    tellStages(made->cost, made->stages);
    if (!made->note.empty())
      notes.push_back(made->note);
    Builder builder(&product.context);
    product.module->walk([&](Operation *op) {
      if (auto number = op->getAttrOfType<IntegerAttr>(stageAttr))
        op->setAttr(stageAttr, builder.getI64IntegerAttr(
                                   made->stages[static_cast<size_t>(number.getInt())]));
    });
    // Equal ops of one stage become one, as in a step whose stages a plan says.
    return product.runPasses("", buildImportedPipeline);
  }

  /// Notes the stages for other entries, and says what they do.
  void tellStages(const search::StageCost &cost, const std::vector<int32_t> &stages) {
    const FlowGraph &graph = forward->graph;
    for (size_t i = 0; i < graph.ops.size(); ++i)
      if (stages[i] >= 0)
        product.next.stages.emplace(graph.ops[i].name, stages[i]);
    auto told = devices().notesOf(graph, cost, stages);
    notes.insert(notes.end(), told.begin(), told.end());
  }

  /// What an earlier stage of the group has in memory lies as it does there.
  void keepShared(ModuleOp module, size_t stage) {
    auto function = module.lookupSymbol<func::FuncOp>("main");
    const auto &known = layouts[order.groupOf[stage]];
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (auto name = function.getArgAttrOfType<StringAttr>(i, "graph.name"))
        if (auto found = known.find(name.str()); found != known.end())
          function.setArgAttr(i, dist::layoutAttr, found->second);
  }

  void recordShared(ModuleOp module, size_t stage) {
    auto function = module.lookupSymbol<func::FuncOp>("main");
    auto &known = layouts[order.groupOf[stage]];
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (!dist::argumentState(function, i))
        known.emplace(cast<StringAttr>(function.getArgAttr(i, "graph.name")).str(),
                      dist::argumentLayout(function, i));
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      if (!dist::resultState(function, i))
        known.emplace(cast<StringAttr>(function.getResultAttr(i, "graph.name")).str(),
                      dist::resultLayout(function, i));
  }

  /// Options by which `product` compiles a stage. `limit`: memory of a rank; a group's
  /// stages share it.
  void choose(size_t s, const std::optional<int64_t> &limit) {
    const int64_t group = order.groupOf[s];
    now.request.meshes = {devices().meshOf(group)};
    now.stage = static_cast<int>(s);
    Machine &machine = now.request.machine;
    if (limit)
      machine = request.machine.limitedTo(
          std::max<int64_t>(1, *limit / std::ranges::count(order.groupOf, group)));
    if (request.machine.cluster)
      machine.cluster = partOf(*request.machine.cluster, devices().ranksOf(group).front(),
                               devices().meshOf(group).numRanks());
    if (!request.levels.dump.empty())
      now.request.levels.dump = request.levels.dump + "/stage" + std::to_string(s);
    product.module = std::move(program.stages[s]);
    keepShared(*product.module, s);
    if (request.train) {
      const int64_t kept = keptMicroBatches(step)[s];
      product.module->lookupSymbol<func::FuncOp>("main")->setAttr(
          dist::keptMicroBatchesAttr, Builder(&product.context).getI64IntegerAttr(kept));
    }
    product.report.notes.clear();
    product.report.collectives.clear();
  }

  /// Strategies and one rank's program of the stage that was chosen, left in `product`.
  Expected<void> planStage() {
    auto ok = product.timed(Level::L2, "strategies", &Compiler::annotate).and_then([&] {
      return product.timed(Level::L3, "partition", &Compiler::partition);
    });
    // Each micro-batch goes through all of the stage; a step says itself what is in its
    // loop.
    for (PlanCollective &collective : product.report.collectives)
      collective.times *= request.train ? 1 : request.cut.microBatches;
    if (!ok || request.levels.to < Level::L2)
      return ok;
    product.plan.entry().stages[0].collectives = product.report.collectives;
    return product.dumpPlan();
  }

  /// Strategies and one rank's program of every stage.
  Expected<void> planStages() {
    const std::optional<int64_t> limit = request.machine.memory;
    std::map<int64_t, int64_t> planned; // by group
    std::vector<PlanStage> plans;
    std::vector<std::string> stageNotes;
    for (size_t s = 0; s < program.stages.size(); ++s) {
      std::string prefix = "stage " + std::to_string(s) + ": ";
      choose(s, limit);
      if (auto ok = planStage(); !ok)
        return makeError(prefix + ok.error().message);
      if (request.levels.to >= Level::L2) {
        if (!request.train) // a step's segments are no function any more
          recordShared(*product.module, s);
        product.plan.entry().stages[0].ranks = devices().ranksOf(order.groupOf[s]);
        if (const auto &certificate = product.plan.entry().certificate)
          planned[order.groupOf[s]] += certificate->memoryPerDevice;
      }
      for (const std::string &text : product.report.notes)
        stageNotes.push_back(prefix + text);
      collectives.insert(collectives.end(), product.report.collectives.begin(),
                         product.report.collectives.end());
      if (request.levels.to >= Level::L2)
        plans.push_back(std::move(product.plan.entry().stages[0]));
      program.stages[s] = std::move(product.module);
    }
    product.plan.entry().stages = std::move(plans);
    product.plan.entry().certificate.reset();
    product.report.memoryLimit = limit;
    for (const auto &[group, bytes] : planned)
      product.report.plannedMemory = std::max(product.report.plannedMemory, bytes);
    notes.insert(notes.end(), stageNotes.begin(), stageNotes.end());
    product.report.notes = notes;
    product.plan.entry().notes = request.plan ? request.plan->entry().notes : notes;
    product.report.collectives = std::move(collectives);
    product.plan.entry().microBatches = request.cut.microBatches;
    product.plan.entry().round = order.round;
    if (request.train)
      product.plan.entry().schedule =
          step.schedule.empty() ? stepText(step) : step.schedule;
    now.request.levels.dump = request.levels.dump;
    return request.levels.to >= Level::L2 ? product.dumpPlan() : Expected<void>();
  }

  Expected<void> assemble() {
    product.context.loadDialect<task_ir::TaskDialect>(); // made before any pass
    if (request.train) {
      auto made = assembleStep(program, step, sliced, outputs);
      if (!made)
        return tl::unexpected(made.error());
      product.module = std::move(*made);
    } else {
      product.module = assembleStages(program, {order, sliced, outputs});
    }
    return product.runPasses("04-scheduled", [&](OpPassManager &manager) {
      buildCompleteSchedulesPipeline(manager,
                                     request.train ? now.communication() : std::nullopt);
    });
  }

  Request request; ///< as given, with the number of micro-batches of a plan
  const Hints hints;
  Job now; ///< of the stage at hand
  Compiler product;
  /// One for all groups of ranks, or by group.
  std::vector<Mesh> meshes =
      request.meshes.empty() ? std::vector{Mesh()} : request.meshes;
  StageOrder order;
  PipelineStep step; ///< the order of a training step
  /// The program before its step is derived, and as it is cut.
  std::unique_ptr<dist::ProgramFlow> forward;
  std::map<std::string, int32_t> plannedStages; ///< by node, of a plan that is given
  /// By group and name the layout of what its stages read or make.
  std::map<int64_t, std::map<std::string, dist::LayoutAttr>> layouts;
  Interface full; ///< with the whole batch
  int64_t batch = 1;
  std::set<std::string> sliced;
  std::vector<std::string> outputs; ///< in the model's order
  SplitProgram program;
  std::vector<std::string> notes;
  std::vector<PlanCollective> collectives;
};
} // namespace

std::unique_ptr<EntryCompiler> partita::stageCompiler(const Job &job) {
  return std::make_unique<StageCompiler>(job);
}

Expected<PartitionedStages> partita::partitionStages(const Job &job) {
  StageCompiler compiler(job);
  return compiler.run().map([&] { return compiler.take(); });
}

Expected<ScheduledStep> partita::scheduleStep(const Job &job) {
  StageCompiler compiler(job);
  return compiler.run().map([&] { return compiler.takeStep(); });
}
