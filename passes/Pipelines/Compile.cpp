//===- Compile.cpp - From a model file to a bundle ------------------------===//
#include "passes/Pipelines/Compiler.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Graph/Returned.h"
#include "dialects/Interfaces/Notes.h"
#include "dialects/Interfaces/ValueNames.h"
#include "dialects/Task/Task.h"
#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Files/File.h"
#include "partita/Onnx/Load.h"
#include "partita/Rule/Decide/Work.h"
#include "partita/Search/PlanName.h"
#include "partita/Train/Spec.h"
#include "passes/Import/Import.h"
#include "passes/Import/MarkStates.h"
#include "passes/Partition/Passes.h"
#include "passes/Pipelines/Accumulation.h"
#include "passes/Pipelines/CompileStages.h"
#include "passes/Pipelines/Entries.h"
#include "passes/Pipelines/Passes.h"
#include "passes/Pipelines/Pipelines.h"
#include "passes/Pipelines/Recompute.h"
#include "passes/Pipelines/Training.h"
#include "passes/Shard/SearchPlan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

using namespace mlir;
using namespace partita;

static DialectRegistry allDialects() {
  DialectRegistry registry;
  registerPartitaDialects(registry);
  return registry;
}

Compiler::Compiler(const CompileOptions &options, Progress progress)
    : context(allDialects()), options(options), progress(std::move(progress)) {
  context.loadDialect<dist::DistDialect>(); // its attributes are made before any pass
  // Passes here are short and run on one function: threads would only cost start-up.
  context.disableMultithreading();
  context.getDiagEngine().registerHandler([this](Diagnostic &diagnostic) {
    bool isError = diagnostic.getSeverity() == DiagnosticSeverity::Error;
    if (!isError)
      report.notes.push_back(diagnostic.str());
    else if (error.message.empty())
      error = errorOf(diagnostic);
    return success();
  });
}

Expected<onnx_model::Model> partita::readModel(const CompileOptions &options,
                                               bool weights) {
  std::error_code failure;
  if (std::filesystem::is_directory(options.model, failure))
    return makeError("'" + options.model +
                     "' is a folder; expected an ONNX file (`partita report` shows "
                     "bundles)");
  onnx_model::LoadOptions load;
  load.weights = weights;
  load.dataFolders = options.dataFolders;
  load.wide = options.wide;
  load.keepLoops = options.keepLoops;
  if (!options.train.empty()) {
    auto spec = train::readSpec(options.train);
    if (!spec)
      return tl::unexpected(spec.error());
    if (spec->trainingInfo)
      load.trainingInfo = static_cast<size_t>(*spec->trainingInfo);
  }
  for (const std::string &text : options.shapes) {
    auto binding = onnx_model::parseShapeBinding(text);
    if (!binding)
      return tl::unexpected(binding.error());
    load.shapes.push_back(std::move(*binding));
  }
  for (const std::string &text : options.constants) {
    auto binding = onnx_model::readConstBinding(text);
    if (!binding)
      return tl::unexpected(binding.error());
    load.constants.push_back(std::move(*binding));
  }
  return onnx_model::loadModel(options.model, load);
}

Expected<ImportedModel> partita::importLooped(MLIRContext &context,
                                              const CompileOptions &options,
                                              onnx_model::Model &model, bool weights,
                                              std::vector<UnsupportedNode> *unsupported,
                                              const TrainingImport *training) {
  auto importIt = [&](std::vector<UnsupportedNode> *missing) -> Expected<ImportedModel> {
    if (auto ok = initialize(&context, model); !ok)
      return tl::unexpected(ok.error());
    return importModel(&context, model, missing, training);
  };
  bool hasLoops = llvm::any_of(model.graph.nodes, [](const onnx_model::Node &node) {
    return node.domain == onnx_model::ownDomain && node.opType == "RepeatEnd";
  });
  if (!hasLoops)
    return importIt(unsupported);
  if (auto imported = importIt(nullptr))
    return imported;
  // An iteration that needs its number known, or what is carried in one shape.
  CompileOptions unrolled = options;
  unrolled.keepLoops = false;
  auto again = readModel(unrolled, weights);
  if (!again)
    return tl::unexpected(again.error());
  model = std::move(*again);
  return importIt(unsupported);
}

/// The names of symbolic dims with those of dims whose sizes are data in their places.
static std::vector<std::string> withSizes(std::vector<std::string> symbolic,
                                          const std::vector<std::string> &sizes) {
  symbolic.resize(sizes.size());
  for (size_t d = 0; d < sizes.size(); ++d)
    if (!sizes[d].empty())
      symbolic[d] = sizes[d];
  return symbolic;
}

Expected<void> Compiler::import() {
  report.numOps = 0;
  progress("reading " + options.model);
  // Only code generation needs the values of weights.
  auto model = readModel(options, /*weights=*/options.to == Level::L5);
  if (!model)
    return tl::unexpected(model.error());
  std::optional<TrainingImport> training;
  bool isOfFile = !model->graph.updates.empty(); // the file has the step
  if (!options.train.empty() && !isOfFile) {
    auto asked = trainingImport(options.train, *model);
    if (!asked)
      return tl::unexpected(asked.error());
    training = std::move(*asked);
  }
  auto imported = importLooped(context, options, *model, options.to == Level::L5, nullptr,
                               training ? &*training : nullptr);
  if (!imported)
    return tl::unexpected(imported.error());
  inputNames = model->inputNames;
  dims = model->dims;
  module = std::move(imported->module);
  weights = std::move(imported->weights);
  if (auto marked = markStates(*module, options.states); !marked)
    return marked;
  graph::Returned returned(module->lookupSymbol<func::FuncOp>("main"));
  sizes = returned.sizes();
  for (auto &[output, names] : returned.dims())
    dims[output] = withSizes(std::move(dims[output]), names);
  auto ok = runPasses("00-imported", buildImportedPipeline);
  if (ok && training && train::readSpec(options.train)->choosesAccumulation)
    ok = divide();
  if (options.recompute) {
    Builder builder(&context);
    SmallVector<Attribute> stretches;
    for (const std::vector<std::string> &names : options.recompute->nodes)
      stretches.push_back(
          builder.getStrArrayAttr(SmallVector<StringRef>(names.begin(), names.end())));
    (*module)->setAttr(chosenRecomputeAttr, builder.getArrayAttr(stretches));
    if (options.recompute->exactly)
      (*module)->setAttr(exactlyAttr, builder.getUnitAttr());
  }
  if (ok && training)
    ok = runPasses("01-trained", [&](OpPassManager &manager) {
      buildTrainedPipeline(manager, options.train);
    });
  module->walk([&](Operation *op) {
    report.numOps += isa<graph::GraphDialect>(op->getDialect());
  });
  if (ok && rows)
    ok = checkRows(module->lookupSymbol<func::FuncOp>("main"), *rows);
  return ok;
}

/// The program becomes that of one of the micro-batches that were chosen.
Expected<void> Compiler::divide() {
  auto function = module->lookupSymbol<func::FuncOp>("main");
  const int64_t parts = options.accumulation.value_or(1);
  if (!options.states.empty())
    return makeError("\"accumulation\" is \"auto\", which has no states of --state");
  auto found = rowsOf(function);
  if (!found)
    return tl::unexpected(found.error());
  rows = *found;
  if (*rows % parts != 0)
    return makeError("the batch has " + std::to_string(*rows) + " rows, which " +
                     std::to_string(parts) + " micro-batches do not divide");
  (*module)->setAttr(accumulationAttr, Builder(&context).getI64IntegerAttr(parts));
  // What holds for the batch holds for its parts.
  if (parts == 1)
    return *rows > 1 ? checkApart(function, options.train) : Expected<void>();
  auto batch = keepLossOnly(function, options.train);
  if (!batch)
    return tl::unexpected(batch.error());
  // Ops that other outputs alone were made of go.
  return runPasses("", buildImportedPipeline).and_then([&] {
    return takeMicroBatch(*this, *batch, parts);
  });
}

Expected<void> Compiler::annotate() {
  if (options.from >= Level::L2) {
    auto ok = readLevel("02-planned", [](PassManager &manager) {
      manager.addPass(createVerifyPlannedPass());
    });
    if (ok)
      recordPlan();
    return ok;
  }
  auto ok = decide();
  // Services stand on ops only until conversions are ops.
  if (ok) {
    recordPlan();
    recordStates();
  }
  return ok.and_then([&] {
    return runPasses("02-planned", [&](OpPassManager &manager) {
      buildConversionsPipeline(manager, options.explain);
    });
  });
}

/// With what is marked computed again; then it is known what conversions cost.
Expected<void> Compiler::recompute() {
  Expected<void> ok;
  bool isMarked = false;
  module->walk([&](Operation *op) { isMarked |= op->hasAttr(recomputeAttr); });
  if (isMarked)
    ok = runPasses("02b-recomputed", buildRecomputePipeline);
  price = dist::priceOfConversions(module->lookupSymbol<func::FuncOp>("main"));
  return ok;
}

Expected<void> Compiler::decide() {
  progress("deciding strategies for " + std::to_string(report.numOps) + " ops on " +
           (options.mesh.empty() ? "one rank" : "mesh " + options.mesh));
  // The pass reads an empty option as "the module's own mesh".
  auto mesh = Mesh::parse(options.mesh);
  if (!mesh)
    return tl::unexpected(mesh.error());
  (*module)->setAttr(dist::meshAttr, dist::MeshAttr::get(&context, *mesh));
  if (auto ok = keepStates(); !ok)
    return ok;
  ShardPassOptions shard;
  shard.mode = options.mode;
  shard.hints = options.hints;
  shard.stage = options.stage;
  shard.hintsOutput = options.hintsOutput;
  shard.plan = options.plan;
  shard.explain = options.explain;
  shard.allToAll = options.allToAll;
  shard.cluster = options.cluster;
  shard.firstDevice = options.firstDevice;
  shard.memory = options.memory;
  return runPasses(
      "", [&](OpPassManager &manager) { manager.addPass(createShardPass(shard)); });
}

/// States that another entry has lie as they do there.
Expected<void> Compiler::keepStates() {
  auto function = module->lookupSymbol<func::FuncOp>("main");
  dist::MeshAttr mesh = dist::findMesh(*module);
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    dist::StateAttr state = dist::argumentState(function, i);
    auto known = state ? options.stateLayouts.find(state.getName().str())
                       : options.stateLayouts.end();
    if (known == options.stateLayouts.end())
      continue;
    auto layout = Layout::parse(known->second, mesh.getMesh());
    auto type = cast<RankedTensorType>(function.getArgumentTypes()[i]);
    if (!layout || layout->globalShape() != type.getShape().vec())
      return makeError("state '" + known->first + "' is " + known->second +
                       " in another entry, which does not fit here: a state has one "
                       "shape and mesh");
    function.setArgAttr(i, dist::layoutAttr,
                        dist::LayoutAttr::get(&context, mesh, *layout));
  }
  return {};
}

void Compiler::recordStates() {
  auto function = module->lookupSymbol<func::FuncOp>("main");
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (dist::StateAttr state = dist::argumentState(function, i))
      stateLayouts[state.getName().str()] = dist::argumentLayout(function, i).str();
}

/// How the users of the values of an op or argument are served, as plans write it.
static std::vector<std::string> servedTexts(Attribute attribute, const Mesh &mesh) {
  std::vector<std::string> texts;
  if (auto lists = dyn_cast_if_present<ArrayAttr>(attribute))
    for (Attribute list : lists)
      texts.push_back(servedText(mesh, dist::servedEntriesIn(list)));
  return texts;
}

/// How the work is spread, and notes where that is not even. `parallelism`: by which
/// kinds, as PlanStage::name.
std::optional<PlanWork> Compiler::recordWork(std::string &parallelism) {
  auto function = module->lookupSymbol<func::FuncOp>("main");
  auto flow = dist::buildFlow(function, dist::findMesh(*module).getMesh(),
                              dist::Callees::Inlined);
  auto strategies = failed(flow) ? FailureOr<std::vector<Strategy>>(failure())
                                 : dist::readStrategies(function, **flow);
  if (failed(strategies))
    return std::nullopt;
  (*flow)->graph.finalize();
  parallelism = search::planName((*flow)->graph, *strategies);
  Work work = workOf((*flow)->graph, *strategies);
  for (std::string &note : workNotes(work))
    report.notes.push_back(std::move(note));
  PlanWork result{work.total, work.mostPerRank, work.meanPerRank, work.duplicated, {}};
  for (const Work::Axis &axis : work.axes)
    result.axes.push_back({axis.name, axis.unused, axis.onlyPadding});
  return result;
}

/// In program order: the ops of a loop's body where the loop is, as a plan is read. Ops
/// of one name and kind are told apart by it. A copy of what is computed again stands
/// behind the op.
static void recordNodes(func::FuncOp function, const Mesh &mesh,
                        std::vector<PlanNode> &nodes) {
  function.walk([&](Operation *op) {
    auto strategy = dist::strategyAttrOf(op);
    auto add = [&](const char *suffix, StringRef served) {
      nodes.push_back({dist::nodeName(op) + suffix, op->getName().getStringRef().str(),
                       strategy ? strategy.str() : "",
                       servedTexts(op->getAttr(served), mesh)});
    };
    // One without is a weight that is kept in parts.
    if (strategy || op->hasAttr(dist::servedAttr))
      add("", dist::servedAttr);
    if (dist::recomputeOf(op))
      add(dist::copySuffix, dist::servedAgainAttr);
    if (auto call = dyn_cast<CallingOpInterface>(op))
      for (Operation *callee : call.getCallees())
        recordNodes(cast<func::FuncOp>(callee), mesh, nodes);
  });
}

static std::string normalPath(const std::string &path) {
  return std::filesystem::path(absolutePath(path)).lexically_normal().string();
}

void Compiler::recordPlan() {
  plan.model = absolutePath(options.model);
  plan.shapes = options.shapes;
  for (const std::string &text : options.constants) {
    size_t file = text.find('=') + 1;
    plan.constants.push_back(text.substr(0, file) + normalPath(text.substr(file)));
  }
  plan.states = options.states;
  if (!options.train.empty())
    plan.train = normalPath(options.train);
  plan.mode = options.plan.empty() ? options.mode : "plan";
  plan.hints = options.hints;
  PlanStage stage;
  std::optional<PlanWork> work = recordWork(stage.name);
  plan.notes = report.notes;
  stage.mesh = dist::findMesh(*module).getMesh().str();
  auto function = module->lookupSymbol<func::FuncOp>("main");
  Mesh mesh = dist::findMesh(*module).getMesh();
  auto textOf = [](dist::LayoutAttr layout) { return layout ? layout.str() : ""; };
  auto tensor = [&](StringAttr name, dist::LayoutAttr layout, dist::StateAttr state) {
    PlanTensor made;
    made.name = name ? name.getValue().str() : "";
    made.layout = textOf(layout);
    made.state = state ? state.getName().str() : "";
    return made;
  };
  auto sizesOf = graph::Returned(function).dims();
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    stage.arguments.push_back(
        tensor(function.getArgAttrOfType<StringAttr>(i, "graph.name"),
               dist::argumentLayout(function, i), dist::argumentState(function, i)));
    for (const std::string &text :
         servedTexts(function.getArgAttr(i, dist::servedAttr), mesh))
      stage.arguments.back().served = text;
  }
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    stage.results.push_back(
        tensor(function.getResultAttrOfType<StringAttr>(i, "graph.name"),
               dist::resultLayout(function, i), dist::resultState(function, i)));
  for (PlanTensor &result : stage.results)
    if (auto own = sizesOf.find(result.name); own != sizesOf.end())
      result.sizes = own->second;
  recordNodes(function, mesh, stage.nodes);
  for (auto other : module->getOps<func::FuncOp>()) {
    if (other == function || other.isExternal())
      continue;
    PlanFunction &ends = stage.functions.emplace_back();
    ends.name = other.getName().str();
    for (unsigned i = 0; i < other.getNumArguments(); ++i)
      ends.arguments.push_back(textOf(dist::argumentLayout(other, i)));
    for (unsigned i = 0; i < other.getNumResults(); ++i)
      ends.results.push_back(textOf(dist::resultLayout(other, i)));
  }
  stage.work = std::move(work);
  plan.stages = {std::move(stage)};
  plan.certificate = certificateOf(*module);
  plan.recompute = options.recompute;
  if (rows)
    plan.accumulation = options.accumulation.value_or(1);
  if (PlanCertificate *known = plan.certificate ? &*plan.certificate : nullptr;
      known && options.lowerBoundSeconds) {
    known->lowerBoundSeconds = *options.lowerBoundSeconds;
    known->gap = 1 - known->lowerBoundSeconds / known->stepSeconds;
    known->proved = known->lowerBoundSeconds == known->stepSeconds;
  }
}

Expected<void> Compiler::partition() {
  if (options.from < Level::L3)
    progress("partitioning");
  auto ok = options.from >= Level::L3
                ? readLevel("03-partitioned",
                            [](PassManager &manager) {
                              manager.addPass(createVerifyPartitionedPass());
                            })
                : recompute().and_then(
                      [&] { return runPasses("03-partitioned", buildRanksPipeline); });
  if (!ok)
    return ok;
  summarize();
  plan.stages[0].collectives = report.collectives;
  report.work = plan.stages[0].work;
  return options.from < Level::L3 ? checkPrice() : Expected<void>();
}

Expected<void> Compiler::schedule() {
  if (options.from < Level::L4)
    return runPasses("04-scheduled", buildSchedulePipeline);
  return readLevel("04-scheduled", [](PassManager &manager) {
    manager.addPass(createVerifyScheduledPass());
  });
}

/// What was priced is what was emitted: the two are computed by different code, one from
/// the conversions of the plan, the other from the communication ops of the program.
Expected<void> Compiler::checkPrice() {
  Communication emitted;
  module->walk([&](comm::CommOpInterface op) {
    int64_t elements = op.getReceivedElements();
    if (elements == 0)
      return;
    Operation *it = op;
    auto bytes = [&](Value value) {
      return elementCount(shapeOf(value)) * elementBytesOf(value);
    };
    emitted.receivedBytes += elements * elementBytesOf(it->getResult(0)) *
                             dist::tripsOf(it->getParentOfType<FunctionOpInterface>());
    emitted.peakBytes =
        std::max(emitted.peakBytes, bytes(it->getOperand(0)) + bytes(it->getResult(0)));
  });
  report.priced = {price.receivedBytes, price.peakBytes};
  report.emitted = emitted;
  if (emitted.receivedBytes == price.receivedBytes &&
      emitted.peakBytes == price.peakBytes)
    return {};
  return makeError("the plan was priced at " + std::to_string(price.receivedBytes) +
                   " bytes received and buffers of " + std::to_string(price.peakBytes) +
                   " bytes, the program has " + std::to_string(emitted.receivedBytes) +
                   " and " + std::to_string(emitted.peakBytes));
}

Expected<void> Compiler::readLevel(const std::string &dump,
                                   const std::function<void(PassManager &)> &verifiers) {
  std::string path = options.dumpDir + "/" + dump + ".mlir";
  progress("reading " + path);
  auto text = readFile(path);
  if (!text)
    return tl::unexpected(text.error());
  auto fail = [&](const std::string &what) -> Expected<void> {
    return makeError(path + ": " + (error.message.empty() ? what : error.message));
  };
  auto read = parseSourceString<ModuleOp>(*text, &context, path);
  if (!read)
    return fail("is no MLIR");
  if (!read->getOps<task_ir::ProgramOp>().empty())
    return verifyLevel(std::move(read), verifiers, fail);
  auto mesh = dist::findMesh(*read);
  auto wanted = Mesh::parse(options.mesh);
  if (!mesh || !wanted || (!options.mesh.empty() && mesh.getMesh() != *wanted))
    return fail("the module is for mesh \"" + (mesh ? mesh.getMesh().str() : "") +
                "\", --mesh is " + options.mesh);
  if (!read->lookupSymbol<func::FuncOp>("main"))
    return fail("the module has no function 'main'");
  return verifyLevel(std::move(read), verifiers, fail);
}

Expected<void>
Compiler::verifyLevel(OwningOpRef<ModuleOp> read,
                      const std::function<void(PassManager &)> &verifiers,
                      const std::function<Expected<void>(const std::string &)> &fail) {
  module = std::move(read);
  PassManager manager(&context);
  verifiers(manager);
  return failed(manager.run(*module)) ? fail("the module is not valid")
                                      : Expected<void>();
}

Expected<void> Compiler::runPasses(const std::string &dump,
                                   const std::function<void(OpPassManager &)> &add) {
  error = {}; // an earlier run spoke of another module
  if (options.stop.isRaised())
    return makeError("cancelled");
  PassManager manager(&context);
  add(manager);
  if (failed(manager.run(*module)))
    return tl::unexpected(firstError({.message = "the pipeline failed"}));
  if (dump.empty() || options.dumpDir.empty() || options.from > Level::L0)
    return {};
  std::error_code code;
  std::filesystem::create_directories(options.dumpDir, code);
  std::string text;
  llvm::raw_string_ostream stream(text);
  OpPrintingFlags flags;
  // Constants in full, so that what is written can be read; weights are names only.
  flags.enableDebugInfo(/*enable=*/true, /*prettyForm=*/false);
  module->print(stream, flags);
  return writeFile(options.dumpDir + "/" + dump + ".mlir", text + "\n");
}

Expected<void> Compiler::dumpPlan() {
  if (options.dumpDir.empty() || options.from > Level::L0)
    return {};
  return writeFile(options.dumpDir + "/plan.json", plan.json());
}

void Compiler::summarize() {
  module->walk([&](Operation *op) {
    if (auto weight = dyn_cast<graph::WeightOp>(op)) {
      auto type = weight.getResult().getType();
      report.weightBytesPerRank +=
          type.getNumElements() *
          static_cast<int64_t>(byteWidth(*dtypeOf(type.getElementType())));
    }
    auto communicate = dyn_cast<comm::CommOpInterface>(op);
    int64_t received = communicate ? communicate.getReceivedElements() : 0;
    if (received == 0)
      return;
    std::string axes;
    for (const AxisRef &axis : communicate.getAxes())
      axes += (axes.empty() ? "" : ",") + communicate.getDevices().str(axis);
    report.collectives.push_back(
        {op->getName().stripDialect().str(), axes, dist::nodeName(op),
         received * elementBytesOf(op->getResult(0)),
         dist::tripsOf(op->getParentOfType<FunctionOpInterface>())});
  });
}

/// A bad output is known before the work, not after it.
static Expected<void> checkOutput(const CompileOptions &options) {
  if (options.to != Level::L5)
    return {};
  auto writer = BundleWriter::create(options.output);
  if (writer)
    return {};
  std::error_code unreadable;
  bool isBundle = std::filesystem::exists(options.output + "/bundle.json", unreadable);
  return makeError(writer.error().message + (isBundle ? "; --force replaces it" : ""));
}

/// Whether level L4 is read of a pipeline: levels L2 and L3 are there for each stage, and
/// nothing of them is needed but the plan.
static bool isPipeline(const CompileOptions &options) {
  std::error_code code;
  return options.from == Level::L4 &&
         !std::filesystem::exists(options.dumpDir + "/02-planned.mlir", code) &&
         std::filesystem::exists(options.dumpDir + "/stage0", code);
}

namespace {
class StraightCompiler : public EntryCompiler {
public:
  StraightCompiler(CompileOptions given, Progress progress)
      : options(std::move(given)), product(options, std::move(progress)) {}

  Compiler &compiler() override { return product; }

  Expected<void> run() override {
    if (auto mesh = Mesh::parse(options.mesh); !mesh)
      return tl::unexpected(mesh.error());
    return timed(Level::L0, "import", &Compiler::import)
        .and_then([&] { return plan(); })
        .and_then([&] { return timed(Level::L4, "schedule", &Compiler::schedule); });
  }

private:
  Expected<void> timed(Level level, const char *name,
                       Expected<void> (Compiler::*step)()) {
    if (options.to < level)
      return {};
    auto start = std::chrono::steady_clock::now();
    auto ok = (product.*step)();
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    product.report.stages.emplace_back(name, took.count());
    return ok;
  }

  Expected<void> plan() {
    if (isPipeline(options)) {
      auto plan = readPlan(options.dumpDir + "/plan.json");
      if (!plan)
        return tl::unexpected(plan.error());
      product.plan = std::move(*plan);
      return {};
    }
    auto ok = timed(Level::L2, "strategies", &Compiler::annotate).and_then([&] {
      return timed(Level::L3, "partition", &Compiler::partition);
    });
    return ok && options.to >= Level::L2 ? product.dumpPlan() : ok;
  }

  CompileOptions options;
  Compiler product;
};
} // namespace

std::unique_ptr<EntryCompiler> partita::straightCompiler(const CompileOptions &options,
                                                         Progress progress) {
  return std::make_unique<StraightCompiler>(options, std::move(progress));
}

static Expected<CompileReport> compileOnce(const CompileOptions &options,
                                           const Progress &progress) {
  auto begin = std::chrono::steady_clock::now();
  auto made = straightCompiler(options, progress);
  auto ok = made->run();
  Compiler &compiler = made->compiler();
  if (ok && options.to >= Level::L5) {
    auto start = std::chrono::steady_clock::now();
    ok = compiler.emit();
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    compiler.report.stages.emplace_back("code", took.count());
  }
  if (!ok)
    return tl::unexpected(ok.error());
  if (auto certificate = certificateOf(*compiler.module)) {
    compiler.report.memoryLimit = certificate->memoryLimit;
    compiler.report.plannedMemory = certificate->memoryPerDevice;
  }
  compiler.report.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return std::move(compiler.report);
}

/// A plan is searched before there is a program, which has scratch of engines and pads
/// that the search does not know of. Where that exceeds the limit, a plan is searched
/// that leaves room for it.
static Expected<CompileReport> compileUntilItFits(const CompileOptions &options,
                                                  const Progress &progress) {
  if (auto ok = checkOutput(options); !ok)
    return tl::unexpected(ok.error());
  auto entries = entriesOf(options.shapes);
  if (!entries)
    return tl::unexpected(entries.error());
  if (entries->size() > 1)
    return compileEntries(*entries, options, progress);
  auto staged = wantsStages(options);
  if (!staged)
    return tl::unexpected(staged.error());
  auto compile = *staged ? compileStages : compileOnce;
  constexpr int mostTries = 4;
  CompileOptions now = options;
  if (auto ok = takeChoices(now); !ok)
    return tl::unexpected(ok.error());
  std::vector<std::string> notes;
  if (!*staged && choosesStep(now))
    if (auto ok = chooseStep(now, notes, progress); !ok)
      return tl::unexpected(ok.error());
  Expected<CompileReport> report = compile(now, progress);
  auto asked = memoryLimitOf(options);
  if (!asked)
    return tl::unexpected(asked.error());
  if (report && !report->memoryLimit && !*staged)
    report->memoryLimit = *asked;
  if (!report || !report->memoryLimit || options.to < Level::L5) {
    if (report)
      report->notes.insert(report->notes.begin(), notes.begin(), notes.end());
    return report;
  }
  const int64_t limit = *report->memoryLimit;
  for (int tries = 1;; ++tries) {
    int64_t needed = report->neededBytes;
    if (needed <= limit)
      break;
    // Where there is one rank, nothing was searched, and nothing else can be found.
    const bool isSearched = report->plannedMemory > 0;
    std::string what =
        "the program needs " + std::to_string(needed) + " bytes, " +
        (isSearched ? std::to_string(report->plannedMemory) + " were expected, " : "") +
        "the limit is " + std::to_string(limit);
    // It was made by this compile: nothing was there before.
    std::error_code ignored;
    std::filesystem::remove_all(options.output, ignored);
    if (tries == mostTries || !isSearched)
      return makeError(what);
    int64_t room = std::max<int64_t>(1, limit - (needed - report->plannedMemory));
    now.memory = std::to_string(room);
    report = compile(now, progress);
    if (!report)
      return makeError(what +
                       "; no plan leaves room for that: " + report.error().message);
    notes.push_back(what + "; planned again with " + now.memory);
  }
  report->notes.insert(report->notes.begin(), notes.begin(), notes.end());
  return report;
}

Expected<CompileReport> partita::compileModel(const CompileOptions &options,
                                              const Progress &progress) {
  std::error_code unreadable;
  if (!options.force || options.to < Level::L5 ||
      !std::filesystem::exists(options.output, unreadable))
    return compileUntilItFits(options, progress);
  auto replacement = BundleReplacement::create(options.output);
  if (!replacement)
    return tl::unexpected(replacement.error());
  CompileOptions aside = options;
  aside.output = replacement->path();
  aside.place = options.output;
  auto report = compileUntilItFits(aside, progress);
  if (report)
    if (auto ok = replacement->commit(); !ok)
      return tl::unexpected(ok.error());
  return report;
}

/// Collectives of equal layers, of which there are at least four, as one, named
/// "h.*.fc, 96 times", at the place of the first.
static std::vector<PlanCollective>
byClass(const std::vector<PlanCollective> &collectives) {
  using Key = std::tuple<std::string, std::string, std::string, int64_t, int64_t>;
  auto keyOf = [](const PlanCollective &c) {
    return Key(c.op, c.axes, layerClass(c.node), c.bytes, c.times);
  };
  std::map<Key, int64_t> counts;
  for (const PlanCollective &c : collectives)
    ++counts[keyOf(c)];
  std::set<Key> told;
  std::vector<PlanCollective> classes;
  for (const PlanCollective &c : collectives) {
    int64_t count = counts[keyOf(c)];
    bool isClass = count >= 4;
    if (isClass && !told.insert(keyOf(c)).second)
      continue;
    classes.push_back(c);
    if (isClass)
      classes.back().node = layerClass(c.node) + ", " + std::to_string(count) + " times";
  }
  return classes;
}

std::string partita::summaryText(const std::vector<PlanCollective> &collectives,
                                 bool inFull) {
  std::string text;
  PlanCommunication all = communicationOf(collectives);
  for (const PlanCollective &c : inFull ? collectives : byClass(collectives)) {
    std::string line = "  " + c.op;
    line.resize(std::max<size_t>(line.size() + 1, 18), ' ');
    line += std::to_string(c.bytes) + " B";
    const size_t signs = c.times == 1 ? 0 : 1; // of two bytes and one column
    if (signs)
      line += " × " + std::to_string(c.times);
    line.resize(std::max<size_t>(line.size() + 1, 34 + signs), ' ');
    line += c.axes;
    line.resize(std::max<size_t>(line.size() + 1, 46 + signs), ' ');
    text += line + c.node + "\n";
  }
  return "communication per rank: " + std::to_string(all.collectives) +
         (all.collectives == 1 ? " collective, " : " collectives, ") +
         std::to_string(all.receivedBytes) + " B received\n" + text;
}

/// "1.23 G" for 1,230,000,000.
static std::string countText(double count) {
  static constexpr const char *units[] = {"", "K", "M", "G", "T", "P", "E"};
  size_t unit = 0;
  while (count >= 1000 && unit + 1 < std::size(units)) {
    count /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %sFLOP", count, units[unit]);
  return text;
}

std::string partita::workText(const PlanWork &work) {
  char duplicated[32];
  std::snprintf(duplicated, sizeof duplicated, "%.0f%%", 100 * work.duplicated);
  return "work per rank: at most " + countText(work.mostPerRank) + ", mean " +
         countText(work.meanPerRank) + " of " + countText(work.total) + "; " +
         duplicated + " of what ranks compute is computed by others too\n";
}
