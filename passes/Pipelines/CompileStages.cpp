//===- CompileStages.cpp - From a model file to a pipeline ----------------===//
#include "passes/Pipelines/CompileStages.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Task/Task.h"
#include "partita/Base/Units.h"
#include "partita/Rule/Decide/ReadyRules.h"
#include "partita/Rule/Decide/ResolveHints.h"
#include "partita/Search/Stages.h"
#include "partita/Search/Timing.h"
#include "partita/Topology/HostFile.h"
#include "passes/Pipelines/Compiler.h"
#include "passes/Pipelines/Pipelines.h"
#include "passes/Stage/Stages.h"

#include <algorithm>
#include <chrono>
#include <numeric>

using namespace mlir;
using namespace partita;

static Expected<Hints> readHints(const std::string &path) {
  // A rule looks for the blocks of each stage by itself.
  return path.empty() || isReadyRule(path) ? Hints() : readHintsFile(path);
}

Expected<bool> partita::wantsStages(const CompileOptions &options) {
  if (options.from > Level::L0)
    return false;
  if (options.stages > 1 || options.groups > 0 || options.microBatches > 1 ||
      options.mesh.find(';') != std::string::npos)
    return true;
  auto hints = readHints(options.hints);
  if (!hints)
    return tl::unexpected(hints.error());
  return !hints->stages.empty() || !hints->groups.empty();
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
  StageCompiler(const CompileOptions &given, Progress progress)
      : options(given), now(given), progress(progress), product(now, progress) {
    now.keepLoops = false; // iterations can be in several stages
  }

  Compiler &compiler() override { return product; }

  Expected<void> run() override {
    auto ok = check()
                  .and_then([&] { return slice(); })
                  .and_then([&] { return import(); })
                  .and_then([&] { return findSliced(); })
                  .and_then([&] { return cut(); })
                  .and_then([&] { return planStages(); });
    return ok && options.to >= Level::L4 ? assemble() : ok;
  }

  Expected<void> emit() { return timed("code", &Compiler::emit); }

private:
  /// What a pipeline cannot do yet is said before the work.
  Expected<void> check() {
    for (auto [given, name] : {std::pair(&options.cluster, "--cluster"),
                               {&options.hintsOutput, "--write-hints"},
                               {&options.memory, "--memory"},
                               {&options.plan, "--plan"}})
      if (!given->empty())
        return makeError(std::string(name) + " and stages of a pipeline do not go "
                                             "together yet");
    order.microBatches = options.microBatches;
    auto read = readHints(options.hints);
    if (!read)
      return tl::unexpected(read.error());
    hints = std::move(*read);
    for (std::string_view rest = options.mesh;;) {
      size_t end = rest.find(';');
      auto mesh = Mesh::parse(rest.substr(0, end));
      if (!mesh)
        return tl::unexpected(mesh.error());
      if (mesh->axes().empty() && !options.mesh.empty())
        return makeError("--mesh \"" + options.mesh + "\": the mesh of stage " +
                         std::to_string(meshes.size()) +
                         " is empty; an axis of size 1 is one rank");
      meshes.push_back(std::move(*mesh));
      if (end == std::string_view::npos)
        break;
      rest = rest.substr(end + 1);
    }
    // Hints may make more stages, and place them.
    return options.stages > 1 && hints.stages.empty() ? placeStages(options.stages)
                                                      : Expected<void>();
  }

  /// The group of ranks of every stage, and the mesh of every group.
  Expected<void> placeStages(int64_t stages) {
    order.groupOf = hints.groups;
    if (!hints.groups.empty() && static_cast<int64_t>(hints.groups.size()) != stages)
      return makeError(hints.file + ": groups: expected one number for each of the " +
                       std::to_string(stages) + " stages, got " +
                       std::to_string(hints.groups.size()));
    for (int64_t s = 0; hints.groups.empty() && s < stages; ++s)
      order.groupOf.push_back(options.groups > 0 ? s % options.groups : s);
    int64_t groups = order.numGroups();
    if (options.groups > 0 && options.groups != groups)
      return makeError("--groups is " + std::to_string(options.groups) +
                       (hints.groups.empty()
                            ? ", there are " + std::to_string(stages) + " stages"
                            : ", the hints make " + std::to_string(groups)));
    if (meshes.size() > 1 && meshes.size() != static_cast<size_t>(groups))
      return makeError("--mesh has " + std::to_string(meshes.size()) +
                       " meshes, there are " + std::to_string(groups) +
                       (groups == stages ? " stages" : " groups of ranks"));
    if (groups == stages && !options.schedule.empty())
      return makeError("--schedule " + options.schedule +
                       " is for groups of ranks with several stages (--groups), of which "
                       "there are none: it would have no effect");
    // One stage in each: the order is that of the micro-batches.
    order.round = groups == stages              ? 1
                  : options.schedule == "gpipe" ? options.microBatches
                                                : groups;
    return {};
  }

  const Mesh &meshOf(size_t stage) const {
    return meshes[static_cast<size_t>(order.groupOf[stage])];
  }

  Expected<void> timed(const char *name, Expected<void> (Compiler::*step)()) {
    auto begin = std::chrono::steady_clock::now();
    auto ok = (product.*step)();
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    auto &stages = product.report.stages;
    auto known = std::ranges::find_if(stages, [&](auto &it) { return it.first == name; });
    if (known == stages.end())
      stages.emplace_back(name, took.count());
    else
      known->second += took.count();
    return ok;
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

  /// Imports the model as it was asked for, and asks for a slice of the batch instead:
  /// the first dim of the first input that has one, and that of all inputs of that size.
  Expected<void> slice() {
    if (options.microBatches == 1)
      return {};
    Compiler whole(options, [](const std::string &) {});
    if (auto ok = whole.import(); !ok)
      return ok;
    full = interfaceOf(whole.module->lookupSymbol<func::FuncOp>("main"));
    auto first = std::ranges::find_if(full.inputs,
                                      [](const auto &it) { return !it.second.empty(); });
    if (first == full.inputs.end())
      return makeError("--micro-batches: the model has no input with a batch");
    int64_t batch = first->second[0];
    if (batch % options.microBatches != 0)
      return makeError("--micro-batches: the batch of " + std::to_string(batch) +
                       " (dim 0 of '" + first->first + "') does not divide by " +
                       std::to_string(options.microBatches));
    if (auto ok = checkBatch(batch); !ok)
      return ok;
    now.shapes.clear();
    Interface::Shapes all = full.inputs;
    all.insert(all.end(), full.states.begin(), full.states.end());
    for (const auto &[name, shape] : all) {
      std::vector<int64_t> sizes = shape;
      if (!sizes.empty() && sizes[0] == batch)
        sizes[0] /= options.microBatches;
      std::string text = name + "=";
      for (size_t d = 0; d < sizes.size(); ++d)
        text += (d ? "," : "") + std::to_string(sizes[d]);
      if (!sizes.empty())
        now.shapes.push_back(std::move(text));
    }
    return {};
  }

  Expected<void> import() {
    auto ok = timed("import", &Compiler::import);
    if (!ok && options.microBatches > 1)
      return makeError(
          "--micro-batches " + std::to_string(options.microBatches) +
          ": the model cannot be read with a slice of the batch: " + ok.error().message);
    return ok;
  }

  /// What has a slot per micro-batch. Whatever comes out must have one.
  Expected<void> findSliced() {
    Interface part = interfaceOf(product.module->lookupSymbol<func::FuncOp>("main"));
    for (const auto &[name, shape] : part.outputs)
      outputs.push_back(name);
    if (options.microBatches == 1)
      return {};
    for (size_t i = 0; i < part.inputs.size(); ++i)
      if (part.inputs[i].second != full.inputs[i].second)
        sliced.insert(part.inputs[i].first);
    // Each micro-batch has its rows of a state.
    for (size_t i = 0; i < part.states.size(); ++i) {
      if (part.states[i].second == full.states[i].second)
        return makeError("--micro-batches: state '" + part.states[i].first +
                         "' does not have the batch as its first dim, so that every "
                         "micro-batch would change it");
      sliced.insert(part.states[i].first);
    }
    for (size_t i = 0; i < part.outputs.size(); ++i) {
      std::vector<int64_t> shape = part.outputs[i].second;
      if (!shape.empty())
        shape[0] *= options.microBatches;
      if (shape != full.outputs[i].second)
        return makeError("--micro-batches: output '" + part.outputs[i].first +
                         "' does not have the batch as its first dim");
      sliced.insert(part.outputs[i].first);
    }
    return {};
  }

  /// Seconds of every op on one device of this host.
  static Expected<search::StageCost> costOf(const FlowGraph &graph) {
    auto host = hostDevice();
    if (!host)
      return tl::unexpected(host.error());
    Topology topology = topologyOfMesh(graph.mesh, host->device, host->level, host->host);
    auto placement = Placement::create(graph.mesh, topology);
    if (!placement)
      return tl::unexpected(placement.error());
    search::Timing timing(graph, *placement);
    search::StageCost cost;
    for (size_t i = 0; i < graph.ops.size(); ++i)
      cost.seconds.push_back(
          1e-12 * static_cast<double>(timing.op(
                      static_cast<int32_t>(i), Strategy::replicated(graph.ops[i].rule))));
    cost.bytesPerSecond = host->level.effective();
    return cost;
  }

  /// Which stage every op is in, and a module for each.
  Expected<void> cut() {
    auto function = product.module->lookupSymbol<func::FuncOp>("main");
    auto flow = dist::buildFlow(function, *Mesh::parse(""));
    if (failed(flow))
      return makeError("the program has an op without a rule");
    if ((*flow)->hasCalls)
      return makeError("a program with loops or branches (graph.repeat, graph.if) is not "
                       "cut into stages");
    FlowGraph &graph = (*flow)->graph;
    graph.finalize();
    // A name of a hint must be somewhere in the whole.
    auto known = hintsFor(graph, hints);
    auto count = [](const Hints &it) {
      return it.nodes.size() + it.tensors.size() + it.subgraphs.size() + it.kept.size();
    };
    if (count(known) != count(hints))
      return resolveHints(graph, hints).map([](const auto &) {});
    for (const DatasetHint &hint : hints.dataset)
      if (std::ranges::none_of(known.dataset,
                               [&](auto &it) { return it.glob == hint.glob; }))
        return makeError(hints.file + ": dataset: no input and no output is named '" +
                         hint.glob + "'");
    auto cost = costOf(graph);
    if (!cost)
      return tl::unexpected(cost.error());
    std::vector<std::pair<std::string, int32_t>> globs;
    for (const StageHint &hint : hints.stages)
      globs.emplace_back(hint.glob, hint.stage);
    int32_t wanted =
        std::max<int32_t>({options.stages, static_cast<int32_t>(meshes.size()),
                           static_cast<int32_t>(hints.groups.size())});
    auto stages = !options.stageOfNode.empty()
                      ? search::stagesByName(graph, options.stageOfNode, "stages")
                  : globs.empty() ? search::cutIntoStages(graph, *cost, wanted)
                                  : search::stagesByGlob(graph, globs, hints.file);
    if (!stages)
      return tl::unexpected(stages.error());
    auto made = static_cast<size_t>(1 + *std::ranges::max_element(*stages));
    if (options.stages > 1 && static_cast<size_t>(options.stages) != made)
      return makeError("--stages is " + std::to_string(options.stages) +
                       ", the hints make " + std::to_string(made));
    if (auto ok = placeStages(static_cast<int64_t>(made)); !ok)
      return ok;
    meshes.resize(static_cast<size_t>(order.numGroups()), meshes[0]);
    for (size_t i = 0; i < graph.ops.size(); ++i)
      if ((*stages)[i] >= 0)
        product.stageOfNode.emplace(graph.ops[i].name, (*stages)[i]);
    note(graph, *cost, *stages, made);
    std::vector<int32_t> byOp;
    for (size_t i = 0; i < (*flow)->operations.size(); ++i)
      if ((*flow)->operations[i])
        byOp.push_back((*stages)[i]);
    program = splitStages(function, byOp);
    return {};
  }

  /// Says of each stage what it begins with, its work, and what it passes on.
  void note(const FlowGraph &graph, const search::StageCost &cost,
            const std::vector<int32_t> &stages, size_t count) {
    double all = 0;
    std::vector<double> seconds(count, 0);
    std::vector<int64_t> ops(count, 0), sent(count, 0);
    std::vector<std::string> first(count), last(count);
    for (size_t i = 0; i < stages.size(); ++i) {
      if (stages[i] < 0)
        continue;
      auto s = static_cast<size_t>(stages[i]);
      all += cost.seconds[i];
      seconds[s] += cost.seconds[i];
      if (ops[s]++ == 0)
        first[s] = graph.ops[i].name;
      last[s] = graph.ops[i].name;
      for (int32_t value : graph.ops[i].results) {
        const FlowValue &it = graph.values[static_cast<size_t>(value)];
        std::set<int32_t> to;
        for (const FlowUse &use : it.uses)
          if (stages[static_cast<size_t>(use.op)] > stages[i])
            to.insert(stages[static_cast<size_t>(use.op)]);
        sent[s] +=
            static_cast<int64_t>(to.size()) * elementCount(it.shape) * it.elementBytes;
      }
    }
    for (size_t s = 0; s < count; ++s)
      notes.push_back(
          "stage " + std::to_string(s) + ": " + std::to_string(ops[s]) + " ops from '" +
          first[s] + "' to '" + last[s] + "', " +
          std::to_string(
              static_cast<int>(100 * seconds[s] / std::max(all, 1e-30) + 0.5)) +
          "% of the work" +
          (sent[s] ? ", sends " + bytesText(sent[s]) + " per micro-batch" : "") +
          (meshOf(s).axes().empty() ? "" : ", on " + meshOf(s).str()) +
          (order.numGroups() < static_cast<int64_t>(count)
               ? ", in group " + std::to_string(order.groupOf[s])
               : ""));
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

  std::vector<int64_t> ranksOf(int64_t group) const {
    int64_t first = 0;
    for (int64_t g = 0; g < group; ++g)
      first += meshes[static_cast<size_t>(g)].numRanks();
    std::vector<int64_t> ranks(
        static_cast<size_t>(meshes[static_cast<size_t>(group)].numRanks()));
    std::iota(ranks.begin(), ranks.end(), first);
    return ranks;
  }

  /// Strategies and one rank's program of every stage.
  Expected<void> planStages() {
    std::vector<PlanStage> plans;
    std::vector<std::string> stageNotes;
    for (size_t s = 0; s < program.stages.size(); ++s) {
      std::string prefix = "stage " + std::to_string(s) + ": ";
      now.mesh = meshOf(s).str();
      now.isStage = true;
      if (!options.dumpDir.empty())
        now.dumpDir = options.dumpDir + "/stage" + std::to_string(s);
      product.module = std::move(program.stages[s]);
      keepShared(*product.module, s);
      product.report.notes.clear();
      product.report.collectives.clear();
      auto ok = options.to >= Level::L2 ? timed("strategies", &Compiler::annotate)
                                        : Expected<void>();
      if (ok && options.to >= Level::L3)
        ok = timed("partition", &Compiler::partition);
      if (ok && options.to >= Level::L2)
        ok = product.dumpPlan();
      if (!ok)
        return makeError(prefix + ok.error().message);
      if (options.to >= Level::L2) {
        recordShared(*product.module, s);
        product.plan.stages[0].ranks = ranksOf(order.groupOf[s]);
      }
      for (const std::string &text : product.report.notes)
        stageNotes.push_back(prefix + text);
      collectives.insert(collectives.end(), product.report.collectives.begin(),
                         product.report.collectives.end());
      if (options.to >= Level::L2)
        plans.push_back(std::move(product.plan.stages[0]));
      program.stages[s] = std::move(product.module);
    }
    product.plan.stages = std::move(plans);
    product.plan.certificate.reset();
    notes.insert(notes.end(), stageNotes.begin(), stageNotes.end());
    product.report.notes = product.plan.notes = notes;
    product.report.collectives = std::move(collectives);
    product.plan.shapes = options.shapes;
    product.plan.microBatches = options.microBatches;
    product.plan.round = order.round;
    now.dumpDir = options.dumpDir;
    return options.to >= Level::L2 ? product.dumpPlan() : Expected<void>();
  }

  Expected<void> assemble() {
    product.context.loadDialect<task_ir::TaskDialect>(); // made before any pass
    product.module = assembleStages(program, {order, sliced, outputs});
    return product.runPasses("04-scheduled", buildCompleteSchedulesPipeline);
  }

  const CompileOptions options;
  CompileOptions now; ///< of the stage at hand
  Progress progress;
  Compiler product;
  Hints hints;
  std::vector<Mesh> meshes; ///< one for all groups of ranks, or by group
  StageOrder order;
  /// By group and name the layout of what its stages read or make.
  std::map<int64_t, std::map<std::string, dist::LayoutAttr>> layouts;
  Interface full; ///< with the whole batch
  std::set<std::string> sliced;
  std::vector<std::string> outputs; ///< in the model's order
  SplitProgram program;
  std::vector<std::string> notes;
  std::vector<PlanCollective> collectives;
};
} // namespace

Expected<CompileReport> partita::compileStages(const CompileOptions &options,
                                               const Progress &progress) {
  auto begin = std::chrono::steady_clock::now();
  StageCompiler made(options, progress);
  auto ok = made.run();
  if (ok && options.to >= Level::L5)
    ok = made.emit();
  if (!ok)
    return tl::unexpected(ok.error());
  CompileReport &report = made.compiler().report;
  report.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return std::move(report);
}

std::unique_ptr<EntryCompiler> partita::stageCompiler(const CompileOptions &options,
                                                      Progress progress) {
  return std::make_unique<StageCompiler>(options, std::move(progress));
}
