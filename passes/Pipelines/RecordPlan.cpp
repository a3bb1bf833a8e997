//===- RecordPlan.cpp - What a planned program says of its plan -----------===//
#include "passes/Pipelines/Compiler.h"

#include "dialects/Dist/Manual.h"
#include "dialects/Dist/PlanAttributes.h"
#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Returned.h"
#include "partita/Base/Bundle/Bundle.h"
#include "partita/Rule/Decide/Work.h"
#include "partita/Search/PlanName.h"
#include "passes/Shard/LiftConversions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <filesystem>
#include <map>

using namespace mlir;
using namespace partita;

Expected<void> Compiler::stateFacts() {
  // A plan that is followed is told again.
  const PlanEntry *followed = request.plan ? &request.plan->entry() : nullptr;
  PlanFacts facts;
  if (followed)
    facts = *followed;
  else {
    facts.mode = name(request.mode);
    facts.hints = request.hints ? request.hints->text : "";
    facts.notes = report.notes;
  }
  facts.target = request.target.name;
  facts.targetCpu = request.target.cpu;
  facts.threads = request.target.threads;
  facts.compute = name(computeOf(request));
  facts.keepF32 = keptOf(request);
  facts.accuracyLevel = accuracyLevelOf(request);
  auto calls = callsOf(request, followed);
  if (!calls)
    return tl::unexpected(calls.error());
  facts.calls = std::move(*calls);
  facts.calls.makesBuckets = facts.calls.makesBuckets && job.feedback.makesBuckets;
  facts.recompute = job.feedback.recompute;
  facts.accumulation.reset();
  if (rows)
    facts.accumulation = job.feedback.microBatches.value_or(1);
  dist::setFacts(*module, facts);
  if (followed && followed->certificate) {
    PlanCertificate known = *followed->certificate;
    known.searchSeconds.reset();
    dist::setCertificate(*module, known);
    return {};
  }
  auto known = dist::certificateOf(*module);
  if (!known)
    return tl::unexpected(known.error());
  if (*known && job.feedback.bound) {
    (*known)->setBound(*job.feedback.bound);
    dist::setCertificate(*module, **known);
  }
  return {};
}

/// How the work of a decided program is spread, and notes where that is not even.
/// `parallelism`: by which kinds, as PlanStage::name.
static PlanWork recordWork(const FlowGraph &graph,
                           const std::vector<Strategy> &strategies,
                           std::string &parallelism, std::vector<std::string> &notes) {
  parallelism = search::planName(graph, strategies);
  Work work = workOf(graph, strategies);
  notes = workNotes(work);
  PlanWork result{work.total, work.mostPerRank, work.meanPerRank, work.duplicated, {}};
  for (const Work::Axis &axis : work.axes)
    result.axes.push_back({axis.name, axis.unused, axis.onlyPadding});
  return result;
}

/// In program order: the ops of a loop's body where the loop is, as a plan is read. Ops
/// of one name and kind are told apart by it.
static void recordNodes(func::FuncOp function, std::vector<PlanNode> &nodes) {
  function.walk([&](Operation *op) {
    if (auto strategy = dist::strategyAttrOf(op))
      nodes.push_back({dist::nodeName(op), op->getName().getStringRef().str(),
                       strategy.str(), dist::phaseOf(op),
                       dist::recomputeOf(op) != nullptr});
    if (auto call = dyn_cast<CallingOpInterface>(op))
      for (Operation *callee : call.getCallees())
        recordNodes(cast<func::FuncOp>(callee), nodes);
  });
}

/// In the same order.
static void recordValues(const dist::ProgramFlow &flow, std::vector<PlanValue> &values) {
  std::map<std::string, int64_t> seen;
  for (size_t v = 0; v < flow.graph.values.size(); ++v) {
    const std::string &name = flow.graph.values[v].name;
    const int64_t number = ++seen[name];
    auto entries = dist::servedOn(flow, static_cast<int32_t>(v));
    if (!entries.empty())
      values.push_back({name, number, servedText(flow.graph.mesh, entries)});
  }
}

/// Arguments and results.
static void recordEnds(func::FuncOp function, PlanStage &stage) {
  auto tensor = [&](StringAttr name, dist::LayoutAttr layout, dist::StateAttr state) {
    PlanTensor made;
    made.name = name ? name.getValue().str() : "";
    made.layout = layout ? layout.str() : "";
    made.state = state ? state.getName().str() : "";
    return made;
  };
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    stage.arguments.push_back(
        tensor(function.getArgAttrOfType<StringAttr>(i, "graph.name"),
               dist::argumentLayout(function, i), dist::argumentState(function, i)));
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    stage.results.push_back(
        tensor(function.getResultAttrOfType<StringAttr>(i, "graph.name"),
               dist::resultLayout(function, i), dist::resultState(function, i)));
  auto sizesOf = graph::Returned(function).dims();
  for (PlanTensor &result : stage.results)
    if (auto own = sizesOf.find(result.name); own != sizesOf.end())
      result.sizes = own->second;
}

/// Layouts of what goes into functions that ops run, and of what comes out.
static void recordFunctions(ModuleOp module, func::FuncOp main, PlanStage &stage) {
  auto textOf = [](dist::LayoutAttr layout) { return layout ? layout.str() : ""; };
  for (auto other : module.getOps<func::FuncOp>()) {
    if (other == main || other.isExternal())
      continue;
    PlanFunction &ends = stage.functions.emplace_back();
    ends.name = other.getName().str();
    for (unsigned i = 0; i < other.getNumArguments(); ++i)
      ends.arguments.push_back(textOf(dist::argumentLayout(other, i)));
    for (unsigned i = 0; i < other.getNumResults(); ++i)
      ends.results.push_back(textOf(dist::resultLayout(other, i)));
  }
}

/// Builds the flow of "main" if it is not there: all callees are inlined.
static Expected<void> completeFlow(Unconverted &decided, const Mesh &mesh) {
  if (decided.flow)
    return {};
  auto function = decided.module->lookupSymbol<func::FuncOp>("main");
  auto flow = dist::buildFlow(function, mesh, dist::Callees::Inlined);
  if (failed(flow))
    return makeError("the program has an op without a rule");
  auto strategies = dist::readStrategies(function, **flow);
  if (failed(strategies))
    return makeError("an op has no strategy");
  decided.flow = std::move(*flow);
  decided.strategies = std::move(*strategies);
  return {};
}

Expected<PlanStage> Compiler::stageOf(Unconverted decided) {
  PlanStage stage;
  const Mesh mesh = dist::findMesh(*decided.module).getMesh();
  if (auto ok = completeFlow(decided, mesh); !ok)
    return tl::unexpected(firstError(ok.error()));
  auto function = decided.module->lookupSymbol<func::FuncOp>("main");
  stage.mesh = mesh.str();
  recordEnds(function, stage);
  recordNodes(function, stage.nodes);
  recordFunctions(*decided.module, function, stage);
  recordValues(*decided.flow, stage.values);
  FlowGraph &graph = decided.flow->graph;
  graph.finalize();
  std::vector<std::string> notes;
  // Nobody knows what ranks do alike in a graph that is written per rank.
  if (dist::findManual(*decided.module))
    stage.name = "Manual";
  else
    stage.work = recordWork(graph, decided.strategies, stage.name, notes);
  for (std::string &note : notes) {
    report.notes.push_back(note);
    if (!llvm::is_contained(plan.entry().notes, note))
      plan.entry().notes.push_back(std::move(note));
  }
  return stage;
}

static std::string normalPath(const std::string &path) {
  return std::filesystem::path(absolutePath(path)).lexically_normal().string();
}

Expected<void> Compiler::recordPlan() {
  auto facts = dist::factsOf(*module);
  auto certificate = dist::certificateOf(*module);
  for (const Error *wrong :
       {facts ? nullptr : &facts.error(), certificate ? nullptr : &certificate.error()})
    if (wrong)
      return tl::unexpected(*wrong);
  plan.model = absolutePath(request.model.file);
  plan.others.clear();
  for (const std::string &file : request.model.others)
    plan.others.push_back(absolutePath(file));
  plan.constants.clear(); // what an earlier stage has recorded
  for (const onnx_model::ConstBinding &binding : request.model.constants)
    plan.constants.push_back(binding.name + "=" + normalPath(binding.file));
  plan.states = request.model.states;
  if (request.train)
    plan.train = normalPath(request.train->file);
  PlanEntry &entry = plan.entry();
  static_cast<PlanFacts &>(entry) = facts->value_or(PlanFacts{});
  if (request.levels.from >= Level::L2) {
    auto calls = callsOf(request, &entry);
    if (!calls)
      return tl::unexpected(calls.error());
    entry.calls = std::move(*calls);
  }
  entry.shapes.clear();
  for (const onnx_model::ShapeBinding &binding : request.model.shapes)
    entry.shapes.push_back(binding.str());
  entry.certificate = std::move(*certificate);
  auto decided = withoutConversions(*module);
  auto stage = decided ? stageOf(std::move(*decided)) : tl::unexpected(decided.error());
  if (!stage)
    return tl::unexpected(stage.error());
  entry.stages = {std::move(*stage)};
  dist::setFacts(*module, entry);
  return {};
}
