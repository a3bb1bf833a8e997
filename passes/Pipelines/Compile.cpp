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
#include "passes/Precision/Passes.h"
#include "passes/Shard/Passes.h"
#include "passes/Shard/SearchPlan.h"
#include "passes/Stage/Passes.h"
#include "passes/Train/MarkRecompute.h"
#include "passes/Train/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

using namespace mlir;
using namespace partita;

Compiler::Compiler(const Job &job)
    : context(job.sources->context), job(job), request(job.request) {
  handler = context.getDiagEngine().registerHandler([this](Diagnostic &diagnostic) {
    bool isError = diagnostic.getSeverity() == DiagnosticSeverity::Error;
    if (!isError)
      report.notes.push_back(diagnostic.str());
    else if (error.message.empty())
      error = errorOf(diagnostic);
    return success();
  });
}

Compiler::~Compiler() { context.getDiagEngine().eraseHandler(handler); }

Expected<void> Compiler::timed(Level level, const char *name,
                               Expected<void> (Compiler::*step)()) {
  if (request.levels.to < level)
    return {};
  auto start = std::chrono::steady_clock::now();
  auto ok = (this->*step)();
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  auto known =
      llvm::find_if(report.stages, [&](auto &stage) { return stage.first == name; });
  if (known == report.stages.end())
    report.stages.emplace_back(name, took.count());
  else
    known->second += took.count();
  return ok;
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
  Sources &sources = *job.sources;
  const int64_t count = job.feedback.microBatches.value_or(1);
  auto known = sources.steps.find(count);
  // Levels are written while a program is derived.
  if (known != sources.steps.end() && request.levels.dump.empty()) {
    static_cast<Program &>(*this) = known->second.program.clone();
    llvm::append_range(report.notes, known->second.notes);
  } else {
    const size_t numNotes = report.notes.size();
    if (auto ok = derive(); !ok)
      return ok;
    if (sources.keepsSteps)
      sources.steps[count] = {clone(),
                              {report.notes.begin() + numNotes, report.notes.end()}};
  }
  if (auto ok = markChosen(); !ok)
    return ok;
  report.numOps = 0;
  module->walk([&](Operation *op) {
    report.numOps += isa<graph::GraphDialect>(op->getDialect());
  });
  return {};
}

/// Marks what a choice computes again, beside what the specification names.
Expected<void> Compiler::markChosen() {
  if (!job.feedback.recompute)
    return {};
  std::vector<train::Recompute> chosen;
  for (const std::vector<std::string> &names : job.feedback.recompute->nodes) {
    train::Recompute &repeats = chosen.emplace_back();
    repeats.nodes = names;
    repeats.together = repeats.isChosen = true;
    repeats.exactly = job.feedback.recompute->exactly;
  }
  return train::markRecompute(*module, chosen).and_then([&](const auto &) {
    return runPasses("01-trained", [](OpPassManager &manager) {
      manager.addPass(createVerifyTrainedPass());
    });
  });
}

/// Products of few bits are not there in f64.
Expected<void> Compiler::setAccuracy() {
  const std::optional<int64_t> level = accuracyLevelOf(request);
  if (!level || job.form.wide)
    return {};
  return runPasses("00a-accuracy", [&](OpPassManager &manager) {
    manager.addPass(createAccuracyLevelPass({*level}));
  });
}

Expected<void> Compiler::quantize() {
  if (request.train || job.form.wide || storedType(computeOf(request)) != DType::F32) {
    dropNumbers(*module);
    return {};
  }
  auto changed = formIntegers(*module, weights);
  if (!changed)
    return tl::unexpected(changed.error());
  isQuantized = *changed;
  return *changed ? runPasses("00b-integers", buildImportedPipeline) : Expected<void>();
}

/// Puts casts where ops are to compute in a narrower type. In f64 nothing is narrow.
Expected<void> Compiler::narrow() {
  const Compute compute = computeOf(request);
  if (storedType(compute) == DType::F32 || job.form.wide)
    return {};
  return runPasses("00b-narrowed", [&](OpPassManager &manager) {
    NarrowPassOptions options;
    options.compute = name(compute);
    llvm::append_range(options.keep, keptOf(request));
    manager.addPass(createNarrowPass(options));
    buildImportedPipeline(manager);
  });
}

Expected<void> Compiler::derive() {
  const PlanFacts *followed = request.plan ? &request.plan->entry() : nullptr;
  // A module of level L2 says more of them.
  if (auto known = callsOf(request, followed); !known && request.levels.from < Level::L2)
    return tl::unexpected(known.error());
  if (auto ok = checkCompute(request); !ok)
    return ok;
  job.progress("reading " + request.model.file);
  auto read = job.sources->read(request, job.form);
  if (!read)
    return tl::unexpected(read.error());
  std::shared_ptr<const onnx_model::Model> model = std::move(*read);
  std::optional<TrainingImport> training;
  bool isOfFile = !model->graph.updates.empty(); // the file has the step
  if (request.train && !isOfFile) {
    auto asked = trainingImport(request.train->spec, *model, request.evaluates);
    if (!asked)
      return tl::unexpected(asked.error());
    training = std::move(*asked);
  }
  auto imported = importLooped(job, model, nullptr, training ? &*training : nullptr);
  if (!imported)
    return tl::unexpected(imported.error());
  inputNames = model->inputNames;
  dims = model->dims;
  module = std::move(imported->module);
  weights = std::move(imported->weights);
  if (auto marked = markModelStates(*module, request.model.states, *model); !marked)
    return marked;
  graph::Returned returned(module->lookupSymbol<func::FuncOp>("main"));
  sizes = returned.sizes();
  for (auto &[output, names] : returned.dims())
    dims[output] = withSizes(std::move(dims[output]), names);
  auto ok = runPasses("00-imported", buildImportedPipeline);
  if (ok)
    ok = setAccuracy();
  if (ok && training && request.train->spec.choosesAccumulation)
    ok = divide();
  if (ok && !job.form.keepPairs)
    ok = quantize();
  if (ok)
    ok = narrow();
  if (ok && onImported)
    ok = onImported();
  if (ok && request.evaluates)
    return runPasses("01-evaluated", [&](OpPassManager &manager) {
      buildEvaluatedPipeline(manager, request.train->spec);
    });
  if (ok && training)
    ok = runPasses("01-trained", [&](OpPassManager &manager) {
      const bool isFile = request.hints && request.hints->file;
      const std::optional<Topology> &cluster = request.machine.cluster;
      buildTrainedPipeline(manager, request.train->spec,
                           isFile ? &*request.hints->file : nullptr,
                           cluster && cluster->stack.attentionApart);
    });
  if (ok && training)
    flags = flagsOf(module->lookupSymbol<func::FuncOp>("main"));
  if (ok && rows)
    ok = checkRows(module->lookupSymbol<func::FuncOp>("main"), *rows);
  return ok;
}

/// The program becomes that of one of the micro-batches that were chosen.
Expected<void> Compiler::divide() {
  auto function = module->lookupSymbol<func::FuncOp>("main");
  const int64_t parts = job.feedback.microBatches.value_or(1);
  if (!request.model.states.empty())
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
    return *rows > 1 ? checkApart(function, request.train->spec) : Expected<void>();
  auto batch = keepLossOnly(function, request.train->spec);
  if (!batch)
    return tl::unexpected(batch.error());
  // Ops that other outputs alone were made of go.
  return runPasses("", buildImportedPipeline).and_then([&] {
    return takeMicroBatch(*this, *batch, parts);
  });
}

Expected<void> Compiler::annotate() {
  auto ok = request.levels.from >= Level::L2
                ? readLevel("02-planned",
                            [](PassManager &manager) {
                              manager.addPass(createVerifyPlannedPass());
                            })
                : decide().and_then([&] {
                    recordStates();
                    return runPasses("", [&](OpPassManager &manager) {
                      buildConversionsPipeline(manager, request.told.explain);
                    });
                  });
  return ok.and_then([&] { return recordPlan(); }).and_then([&] {
    return dump("02-planned");
  });
}

/// Copies marked ops for the backward pass and combines moments; then all conversions are
/// there to be priced.
Expected<void> Compiler::completeConversions() {
  bool isMarked = false;
  module->walk([&](Operation *op) { isMarked |= op->hasAttr(recomputeAttr); });
  auto ok = runPasses(isMarked ? "02b-recomputed" : "", buildLastConversionsPipeline);
  price = dist::priceOfConversions(module->lookupSymbol<func::FuncOp>("main"));
  return ok;
}

/// A stage's step becomes the functions that its schedule runs; some conversions of the
/// forward part take place again behind it.
Expected<void> Compiler::cutStep() {
  if (!cutsStep)
    return {};
  auto ok = runPasses("02c-segments", [&](OpPassManager &manager) {
    CutStepPassOptions options;
    options.partsWeights = partsWeights;
    manager.addPass(createCutStepPass(options));
    manager.addPass(createVerifyPlannedPass());
  });
  if (!ok)
    return ok;
  price.receivedBytes = price.collectives = price.peakBytes = 0;
  for (auto function : module->getOps<func::FuncOp>()) {
    Price part = dist::priceOfConversions(function);
    const int64_t trips = dist::tripsOf(function);
    price.receivedBytes += part.receivedBytes * trips;
    price.collectives += part.collectives * trips;
    price.peakBytes = std::max(price.peakBytes, part.peakBytes);
  }
  return {};
}

Expected<void> Compiler::decide() {
  const Mesh mesh = request.mesh();
  job.progress("deciding strategies for " + std::to_string(report.numOps) + " ops on " +
               (mesh.axes().empty() ? "one rank" : "mesh " + mesh.str()));
  (*module)->setAttr(dist::meshAttr, dist::MeshAttr::get(&context, mesh));
  if (auto ok = keepStates(); !ok)
    return ok;
  // Hints that name nothing of an evaluation are for the step beside it, as those of a
  // stage may be for others.
  const int part = request.evaluates ? std::max(job.stage, 0) : job.stage;
  Deciding how{request.mode,     request.hints, request.plan,       request.machine,
               request.allToAll, part,          request.told.hints, request.told.explain};
  // Whoever has asked for a type knows others. The kernels of integers are none in bf16.
  if (!request.train && !request.compute && !request.plan && !isQuantized &&
      request.levels.to == Level::L5)
    how.narrower = DType::BF16;
  return runPasses("",
                   [&](OpPassManager &manager) { manager.addPass(createShardPass(how)); })
      .and_then([&] { return stateFacts(); });
}

/// States that another entry has lie as they do there.
Expected<void> Compiler::keepStates() {
  auto function = module->lookupSymbol<func::FuncOp>("main");
  dist::MeshAttr mesh = dist::findMesh(*module);
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    dist::StateAttr state = dist::argumentState(function, i);
    auto known = state ? job.feedback.states.find(state.getName().str())
                       : job.feedback.states.end();
    if (known == job.feedback.states.end())
      continue;
    const auto &[name, home] = *known;
    auto type = cast<RankedTensorType>(function.getArgumentTypes()[i]);
    if (home.mesh != mesh.getMesh() || home.layout.globalShape() != type.getShape().vec())
      return makeError("state '" + name + "' is " + home.layout.str(home.mesh) +
                       " in another entry, which does not fit here: a state has one "
                       "shape and mesh");
    function.setArgAttr(i, dist::layoutAttr,
                        dist::LayoutAttr::get(&context, mesh, home.layout));
  }
  return {};
}

void Compiler::recordStates() {
  auto function = module->lookupSymbol<func::FuncOp>("main");
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (dist::StateAttr state = dist::argumentState(function, i)) {
      auto layout = dist::argumentLayout(function, i);
      next.states[state.getName().str()] = {layout.getMesh().getMesh(),
                                            layout.getLayout(), std::max(job.stage, 0)};
    }
}

Expected<void> Compiler::partition() {
  if (request.levels.from < Level::L3)
    job.progress("partitioning");
  auto ok = request.levels.from >= Level::L3
                ? readLevel("03-partitioned",
                            [](PassManager &manager) {
                              manager.addPass(createVerifyPartitionedPass());
                            })
                : completeConversions().and_then([&] { return cutStep(); }).and_then([&] {
                    return runPasses("", buildRanksPipeline);
                  });
  if (ok && request.levels.from < Level::L3)
    ok = checkPrice();
  if (ok)
    ok = splitCollectives();
  if (ok && request.levels.from < Level::L3)
    ok = dump("03-partitioned");
  if (!ok)
    return ok;
  summarize();
  plan.entry().stages[0].collectives = report.collectives;
  report.work = plan.entry().stages[0].work;
  return {};
}

/// Writes collectives as several where the plan says levels or few groups.
Expected<void> Compiler::splitCollectives() {
  const PlanCalls &calls = plan.entry().calls;
  const int64_t mostGroups = calls.reuse.value_or(0);
  if ((!calls.hierarchical && mostGroups == 0) || request.levels.from > Level::L3)
    return {};
  return runPasses("", [&](OpPassManager &manager) {
    std::optional<Topology> links;
    if (calls.hierarchical)
      links = topologyOf(*calls.hierarchical);
    manager.addPass(createSplitCollectivesPass(std::move(links), mostGroups));
    manager.addPass(createVerifyPartitionedPass());
  });
}

std::optional<CommunicationOrder> Compiler::communication() const {
  const PlanCalls &calls = plan.entry().calls;
  CommunicationOrder order{.mostCalls = calls.reuse.value_or(0)};
  order.inFlight = calls.inFlight.value_or(order.inFlight);
  if (!calls.makesBuckets && order.mostCalls == 0)
    return std::nullopt;
  if (!calls.makesBuckets)
    order.fusion = train::CommFusion::closed();
  else if (request.train)
    order.fusion = request.train->spec.commFusion;
  return order;
}

Expected<void> Compiler::schedule() {
  if (request.levels.from < Level::L4)
    return runPasses("04-scheduled", [&](OpPassManager &manager) {
      buildSchedulePipeline(manager, communication());
    });
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
  std::string path = request.levels.dump + "/" + dump + ".mlir";
  job.progress("reading " + path);
  auto text = readFile(path);
  if (!text)
    return tl::unexpected(text.error());
  auto fail = [&](const std::string &what) -> Expected<void> {
    return makeError(path + ": " + (error.message.empty() ? what : error.message));
  };
  auto read = parseSourceString<ModuleOp>(*text, &context, path);
  if (!read)
    return fail("is no MLIR");
  if (read->getOps<task_ir::ProgramOp>().empty()) {
    auto mesh = dist::findMesh(*read);
    if (!mesh || (!request.meshes.empty() && mesh.getMesh() != request.mesh()))
      return fail("the module is for mesh \"" + (mesh ? mesh.getMesh().str() : "") +
                  "\", --mesh is " + str(request.meshes));
    if (!read->lookupSymbol<func::FuncOp>("main"))
      return fail("the module has no function 'main'");
  }
  module = std::move(read);
  PassManager manager(&context);
  verifiers(manager);
  return failed(manager.run(*module)) ? fail("the module is not valid")
                                      : Expected<void>();
}

Expected<void> Compiler::runPasses(const std::string &name,
                                   const std::function<void(OpPassManager &)> &add) {
  error = {}; // an earlier run spoke of another module
  if (job.stop.isRaised())
    return makeError("cancelled");
  PassManager manager(&context);
  add(manager);
  if (failed(manager.run(*module)))
    return tl::unexpected(firstError({.message = "the pipeline failed"}));
  return name.empty() ? Expected<void>() : dump(name);
}

Expected<void> Compiler::dump(const std::string &name) {
  if (request.levels.dump.empty() || request.levels.from > Level::L0)
    return {};
  std::error_code code;
  std::filesystem::create_directories(request.levels.dump, code);
  std::string text;
  llvm::raw_string_ostream stream(text);
  OpPrintingFlags flags;
  // Constants in full, so that what is written can be read; weights are names only.
  flags.enableDebugInfo(/*enable=*/true, /*prettyForm=*/false);
  module->print(stream, flags);
  return writeFile(request.levels.dump + "/" + name + ".mlir", text + "\n");
}

Expected<void> Compiler::dumpPlan() {
  if (request.levels.dump.empty() || request.levels.from > Level::L0)
    return {};
  return writeFile(request.levels.dump + "/plan.json", plan.json());
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

Expected<void> partita::checkOutput(const Request &request) {
  if (request.levels.to != Level::L5)
    return {};
  auto writer = BundleWriter::create(request.emission.output);
  if (writer)
    return {};
  std::error_code unreadable;
  bool isBundle =
      std::filesystem::exists(request.emission.output + "/bundle.json", unreadable);
  return makeError(writer.error().message + (isBundle ? "; --force replaces it" : ""));
}

/// Whether level L4 is read of a pipeline: levels L2 and L3 are there for each stage, and
/// nothing of them is needed but the plan.
static bool isPipeline(const Request &request) {
  std::error_code code;
  return request.levels.from == Level::L4 &&
         !std::filesystem::exists(request.levels.dump + "/02-planned.mlir", code) &&
         std::filesystem::exists(request.levels.dump + "/stage0", code);
}

namespace {
class StraightCompiler : public EntryCompiler {
public:
  explicit StraightCompiler(Job given)
      : job(std::move(given)), request(job.request), product(job) {}

  Compiler &compiler() override { return product; }

  Expected<void> run() override {
    return product.timed(Level::L0, "import", &Compiler::import)
        .and_then([&] { return plan(); })
        .and_then(
            [&] { return product.timed(Level::L4, "schedule", &Compiler::schedule); });
  }

private:
  Expected<void> plan() {
    if (isPipeline(request)) {
      auto plan = readPlan(request.levels.dump + "/plan.json");
      if (!plan)
        return tl::unexpected(plan.error());
      product.plan = std::move(*plan);
      return {};
    }
    auto ok = product.timed(Level::L2, "strategies", &Compiler::annotate).and_then([&] {
      return product.timed(Level::L3, "partition", &Compiler::partition);
    });
    return ok && request.levels.to >= Level::L2 ? product.dumpPlan() : ok;
  }

  const Job job;
  const Request &request; ///< of it
  Compiler product;
};
} // namespace

std::unique_ptr<EntryCompiler> partita::straightCompiler(const Job &job) {
  return std::make_unique<StraightCompiler>(job);
}

static Expected<CompileReport> compileOnce(const Job &job, bool isStaged) {
  auto begin = std::chrono::steady_clock::now();
  auto made = isStaged ? stageCompiler(job) : straightCompiler(job);
  Compiler &compiler = made->compiler();
  if (auto ok = made->run(); !ok)
    return tl::unexpected(ok.error());
  const bool isBeside = job.request.train && job.request.train->spec.evaluates;
  auto ok = isBeside ? addEvaluation(job, compiler, isStaged)
                     : compiler.timed(Level::L5, "code", &Compiler::emit);
  if (!ok)
    return tl::unexpected(ok.error());
  // A plan that is given is not made anew where it does not fit.
  const auto &certificate = compiler.plan.entry().certificate;
  if (certificate && !isStaged && !job.request.plan) {
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
static Expected<CompileReport> compileUntilItFits(Job job) {
  const Request &request = job.request;
  if (auto ok = checkOutput(request); !ok)
    return tl::unexpected(ok.error());
  auto entries = entriesOf(request.model.shapes);
  if (!entries)
    return tl::unexpected(entries.error());
  auto staged = wantsStages(request);
  if (!staged)
    return tl::unexpected(staged.error());
  if (entries->size() > 1)
    return compileEntries(*entries, std::move(job));
  if (auto ok = takeEntry(job.request, entries->front()); !ok)
    return tl::unexpected(ok.error());
  constexpr int mostTries = 4;
  takeChoices(job);
  std::vector<std::string> notes;
  if (!*staged && choosesStep(job)) {
    job.feedback.makesBuckets = false;
    if (auto ok = chooseStep(job, notes); !ok)
      return tl::unexpected(ok.error());
    job.feedback.makesBuckets = true;
  }
  Expected<CompileReport> report = compileOnce(job, *staged);
  if (report && !report->memoryLimit && !*staged && request.machine.isExact)
    report->memoryLimit = request.machine.memory;
  if (!report || !report->memoryLimit || request.levels.to < Level::L5) {
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
    std::filesystem::remove_all(request.emission.output, ignored);
    const bool hasBuckets = request.train && request.mesh().numRanks() > 1;
    if (hasBuckets && std::exchange(job.feedback.makesBuckets, false)) {
      report = compileOnce(job, *staged);
      if (!report)
        return report;
      notes.push_back(what + "; compiled again without buckets of collectives");
      --tries;
      continue;
    }
    if (tries == mostTries || !isSearched)
      return makeError(what);
    int64_t room = std::max<int64_t>(1, limit - (needed - report->plannedMemory));
    job.request.machine = request.machine.limitedTo(room);
    report = compileOnce(job, *staged);
    if (!report)
      return makeError(what +
                       "; no plan leaves room for that: " + report.error().message);
    notes.push_back(what + "; planned again with " + std::to_string(room));
  }
  report->notes.insert(report->notes.begin(), notes.begin(), notes.end());
  return report;
}

Expected<CompileReport> partita::compileModel(const Request &request,
                                              const Progress &progress, StopFlag stop) {
  Job job(request, progress, stop);
  std::error_code unreadable;
  const std::string &output = request.emission.output;
  if (!request.emission.force || request.levels.to < Level::L5 ||
      !std::filesystem::exists(output, unreadable))
    return compileUntilItFits(std::move(job));
  auto replacement = BundlePlace::replacing(output);
  if (!replacement)
    return tl::unexpected(replacement.error());
  job.request.emission.output = replacement->path();
  job.request.emission.place = output;
  auto report = compileUntilItFits(std::move(job));
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
