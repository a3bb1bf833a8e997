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
#include "passes/Pipelines/StagePlaces.h"
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
                           : trains()                    ? importStep()
                                                         : import();
                  })
                  .and_then([&] { return planStages(); });
    return ok && request.levels.to >= Level::L4 ? assemble() : ok;
  }

  /// Gives away all that a run up to L3 has made.
  PartitionedStages take() {
    PartitionedStages made;
    for (int64_t group : places.order.groupOf)
      made.ranks.push_back(places.devices().ranksOf(group));
    made.program = std::move(program);
    made.order = places.order;
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
  /// Tells whether the stages are of a training step: its evaluation is a pipeline that
  /// infers.
  bool trains() const { return request.train && !request.evaluates; }

  /// What a pipeline cannot do yet is said before the work.
  Expected<void> check() {
    if (!request.told.hints.empty())
      return makeError("--write-hints and stages of a pipeline do not go together: each "
                       "stage has hints of its own");
    // Stages that a request names are of the step, whose places an evaluation has.
    if (const Feedback &step = now.feedback; request.evaluates && !step.groups.empty())
      places.besideStep(step);
    if (request.plan)
      return places.follow(request.plan->file, request.plan->entry());
    // Hints may make more stages, and place them.
    return places.order.groupOf.empty() && request.cut.stages > 1 && hints.stages.empty()
               ? places.place(request.cut.stages)
               : Expected<void>();
  }

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
      std::map<std::string, int32_t> homes;
      for (const auto &[state, home] : now.feedback.states)
        homes[state] = home.stage;
      program =
          splitStages(product.module->lookupSymbol<func::FuncOp>("main"), stages, homes);
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
    if (places.order.groupOf.empty())
      if (auto ok = places.place(places.wanted()); !ok)
        return ok;
    std::vector<Mesh> own;
    std::vector<std::vector<int64_t>> ranks;
    for (int64_t group : places.order.groupOf) {
      own.push_back(places.devices().meshOf(group));
      ranks.push_back(places.devices().ranksOf(group));
    }
    auto models = now.sources->readStages(now.request, now.form, own, ranks);
    if (!models)
      return tl::unexpected(models.error());
    auto ends = endsOf(*models, request.cut.microBatches);
    if (!ends)
      return tl::unexpected(ends.error());
    places.order.microBatches = request.cut.microBatches = ends->microBatches;
    product.inputNames = ends->inputs;
    outputs = ends->outputs;
    if (places.order.microBatches > 1)
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
      places.order.microBatches = request.cut.microBatches = spec.accumulation;
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
    auto made =
        splitStep(*product.module, static_cast<int32_t>(places.order.groupOf.size()));
    if (!made)
      return tl::unexpected(made.error());
    program = std::move(*made);
    return {};
  }

  /// Makes the order of the step's parts, which a file or a schedule's name says.
  Expected<void> orderStep() {
    const auto stages = static_cast<int64_t>(places.order.groupOf.size());
    if (!request.cut.order) {
      const StepSchedule other{places.order.numGroups() < stages
                                   ? ScheduleKind::Interleaved
                                   : ScheduleKind::OneForwardOneBackward};
      return makeStep(request.cut.schedule.value_or(other), places.order.groupOf,
                      request.cut.microBatches)
          .map([&](PipelineStep made) { step = std::move(made); });
    }
    step = *request.cut.order;
    auto count = [](int64_t number, const std::string &what) {
      return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
    };
    if (step.stages() != stages || step.groups() != places.order.numGroups() ||
        step.microBatches != request.cut.microBatches)
      return makeError("--schedule: the file has " + count(step.stages(), "stage") +
                       " on " + count(step.groups(), "rank") + " and " +
                       count(step.microBatches, "micro-batch") + ", the step has " +
                       count(stages, "stage") + " on " +
                       count(places.order.numGroups(), "group") + " and " +
                       std::to_string(request.cut.microBatches));
    if (step.groupOf != places.order.groupOf)
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
    return !now.feedback.stages.empty() || !places.planned.empty() ||
           !hints.stages.empty();
  }

  /// The stage of every op of an evaluation: that of the step, or of a plan.
  Expected<std::vector<int32_t>> stagesBesideStep(const FlowGraph &graph) const {
    const Feedback &step = now.feedback;
    std::map<std::string, int32_t> homes;
    for (const auto &[state, home] : step.states)
      homes[state] = home.stage;
    auto stages = search::stagesBeside(
        graph, step.stages.empty() ? places.planned : step.stages, homes);
    for (size_t s = 0; s < places.order.groupOf.size(); ++s)
      if (!llvm::is_contained(stages, static_cast<int32_t>(s)))
        return makeError("stage " + std::to_string(s) +
                         " of the training step has nothing to evaluate");
    return stages;
  }

  /// The stage of every op: that of another entry, of a plan, of hints, or by work.
  Expected<std::vector<int32_t>> assignStages(const FlowGraph &graph) {
    if (request.evaluates)
      return stagesBesideStep(graph);
    if (!now.feedback.stages.empty())
      return search::stagesByName(graph, now.feedback.stages, "stages");
    if (!places.planned.empty())
      return search::stagesByName(graph, places.planned, request.plan->file);
    std::vector<std::pair<std::string, int32_t>> globs;
    for (const StageHint &hint : hints.stages)
      globs.emplace_back(hint.glob, hint.stage);
    if (!globs.empty())
      return search::stagesByGlob(graph, globs, hints.file);
    // The cut depends on the ranks of each stage.
    return places.place(places.wanted())
        .and_then([&] { return places.devices().costOf(graph); })
        .and_then([&](const search::StageCost &cost) {
          return search::cutIntoStages(graph, cost, places.wanted());
        });
  }

  Expected<void> checkCount(int64_t made) {
    if (request.plan && static_cast<int64_t>(places.order.groupOf.size()) != made)
      return makeError("'" + request.plan->file +
                       "' is not a plan for this model: it has " +
                       std::to_string(places.order.groupOf.size()) +
                       " stages, its nodes are in " + std::to_string(made));
    if (request.cut.stages > 1 && request.cut.stages != made)
      return makeError("--stages is " + std::to_string(request.cut.stages) +
                       ", the hints make " + std::to_string(made));
    return request.plan || request.evaluates ? Expected<void>() : places.place(made);
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
    auto cost = places.devices().costOf(graph);
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
        places.place(places.wanted()).and_then([&] { return orderStep(); }).and_then([&] {
          return places.devices().cut(*product.module, forward->graph, step,
                                      sharesStates);
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

  /// Notes the stages and their places for other entries, and says what they do.
  void tellStages(const search::StageCost &cost, const std::vector<int32_t> &stages) {
    const FlowGraph &graph = forward->graph;
    product.next.groups = places.order.groupOf;
    product.next.meshes = places.meshes;
    product.next.microBatches = now.feedback.microBatches;
    for (size_t i = 0; i < graph.ops.size(); ++i)
      if (stages[i] >= 0)
        product.next.stages.emplace(graph.ops[i].name, stages[i]);
    auto told = places.devices().notesOf(graph, cost, stages);
    notes.insert(notes.end(), told.begin(), told.end());
  }

  /// What an earlier stage of the group has in memory lies as it does there.
  void keepShared(ModuleOp module, size_t stage) {
    auto function = module.lookupSymbol<func::FuncOp>("main");
    const auto &known = layouts[places.order.groupOf[stage]];
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (auto name = function.getArgAttrOfType<StringAttr>(i, "graph.name"))
        if (auto found = known.find(name.str()); found != known.end())
          function.setArgAttr(i, dist::layoutAttr, found->second);
  }

  void recordShared(ModuleOp module, size_t stage) {
    auto function = module.lookupSymbol<func::FuncOp>("main");
    auto &known = layouts[places.order.groupOf[stage]];
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
    const int64_t group = places.order.groupOf[s];
    now.request.meshes = {places.devices().meshOf(group)};
    now.stage = static_cast<int>(s);
    Machine &machine = now.request.machine;
    if (limit)
      machine = request.machine.limitedTo(
          std::max<int64_t>(1, *limit / std::ranges::count(places.order.groupOf, group)));
    if (request.machine.cluster)
      machine.cluster =
          partOf(*request.machine.cluster, places.devices().ranksOf(group).front(),
                 places.devices().meshOf(group).numRanks());
    if (request.plan)
      if (const auto &links = request.plan->entry().calls.hierarchical)
        now.request.plan->entry().calls.hierarchical =
            linksOf(partOf(topologyOf(*links), places.devices().ranksOf(group).front(),
                           places.devices().meshOf(group).numRanks()));
    if (!request.levels.dump.empty())
      now.request.levels.dump = request.levels.dump + "/stage" + std::to_string(s);
    product.module = std::move(program.stages[s]);
    keepShared(*product.module, s);
    if (trains()) {
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
      collective.times *= trains() ? 1 : request.cut.microBatches;
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
        if (!trains()) // a step's segments are no function any more
          recordShared(*product.module, s);
        product.plan.entry().stages[0].ranks =
            places.devices().ranksOf(places.order.groupOf[s]);
        if (const auto &certificate = product.plan.entry().certificate)
          planned[places.order.groupOf[s]] += certificate->memoryPerDevice;
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
    if (auto &links = product.plan.entry().calls.hierarchical)
      links = request.machine.cluster && request.hierarchical
                  ? linksOf(*request.machine.cluster)
                  : request.plan->entry().calls.hierarchical;
    product.plan.entry().certificate.reset();
    product.report.memoryLimit = limit;
    for (const auto &[group, bytes] : planned)
      product.report.plannedMemory = std::max(product.report.plannedMemory, bytes);
    notes.insert(notes.end(), stageNotes.begin(), stageNotes.end());
    product.report.notes = notes;
    product.plan.entry().notes = request.plan ? request.plan->entry().notes : notes;
    product.report.collectives = std::move(collectives);
    product.plan.entry().microBatches = request.cut.microBatches;
    product.plan.entry().round = places.order.round;
    if (trains())
      product.plan.entry().schedule =
          step.schedule.empty() ? stepText(step) : step.schedule;
    now.request.levels.dump = request.levels.dump;
    return request.levels.to >= Level::L2 ? product.dumpPlan() : Expected<void>();
  }

  Expected<void> assemble() {
    product.context.loadDialect<task_ir::TaskDialect>(); // made before any pass
    if (trains()) {
      auto made = assembleStep(program, step, sliced, outputs);
      if (!made)
        return tl::unexpected(made.error());
      product.module = std::move(*made);
    } else {
      product.module = assembleStages(program, {places.order, sliced, outputs});
    }
    return product.runPasses("04-scheduled", [&](OpPassManager &manager) {
      buildCompleteSchedulesPipeline(manager, product.communication());
    });
  }

  Request request; ///< as given, with the number of micro-batches of a plan
  const Hints hints;
  Job now; ///< of the stage at hand
  Compiler product;
  StagePlaces places{request, hints};
  PipelineStep step; ///< the order of a training step
  /// The program before its step is derived, and as it is cut.
  std::unique_ptr<dist::ProgramFlow> forward;
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
