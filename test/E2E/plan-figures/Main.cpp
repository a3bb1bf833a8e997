//===- Main.cpp - What a plan is said to take, and what its program takes -===//
//
// usage: plan-figures MODEL [--mesh M] [--mode M] [--hints F] [--train F] [--plan F]
//                     [--shape NAME=SIZES]… [--save-plan F] [--tell-unlike]
//
// Decides a plan, prices it for this host's device as it is without a calibration, forms
// its program without making code, and prints one line of `name=number`, by names:
//
//   step, received, peak-buffer   of the plan, in ps and bytes, by search::evaluate
//   launches, written             kernels and calls that the price counts, and the bytes
//                                 that it takes them to store
//   memory                        bytes that the search expects at the peak
//   grouped-kernels, grouped-calls, grouped-stored, grouped-attentions, grouped-copies
//                                 kernels and calls of search::localProgram by
//                                 kernels::group, the bytes that they store, and of the
//                                 kernels those of attentions and copies
//   unlike                        ops in which that program differs from the partitioned
//                                 one; with --tell-unlike the first three are told
//   kernels, calls, stored        the same of the program that was formed
//   attentions, copies            of these kernels those of attentions, and those that
//                                 move elements and compute nothing
//   distinct, tasks               its different kernels, and all its tasks
//   weights, packed, states, arena, live, scratch
//                                 its bytes: `live` is the most of the arena that is in
//                                 use at one time, `scratch` the engines' part of that
//
// All but the last four lines' figures are known before code generation.
//
//===----------------------------------------------------------------------===//
#include "CompareLocal.h"
#include "common/CommandLine.h"
#include "common/CommandOptions.h"
#include "dialects/Dist/ProgramFlow.h"
#include "partita/Base/Files/File.h"
#include "partita/Kernels/Attention.h"
#include "partita/Kernels/Launches.h"
#include "partita/Search/Memory.h"
#include "passes/Pipelines/Compiler.h"
#include "passes/Pipelines/Pipelines.h"
#include "passes/Pipelines/Recompute.h"
#include "passes/Shard/Regather.h"
#include "passes/Shard/SearchPlan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cstdio>

using namespace mlir;
using namespace partita;

using Figures = std::vector<std::pair<const char *, int64_t>>;

/// Kernels and calls that the prices of single ops are of, and what these store. A value
/// that a conversion takes out of its kernel is stored on both sides of it.
static void addPredicted(search::Timing &timing, const search::Decided &plan,
                         Figures &figures) {
  const FlowGraph &graph = timing.graph;
  int64_t launches = 0, written = 0;
  for (size_t o = 0; o < graph.ops.size(); ++o) {
    const FlowOp &op = graph.ops[o];
    const auto number = static_cast<int32_t>(o);
    if (op.kind != FlowKind::Compute || timing.isView(number))
      continue;
    launches += timing.isJoined(number) ? 0 : op.trips;
    for (size_t r = 0; r < op.results.size(); ++r) {
      const int32_t value = op.results[r];
      const bool isBroken = search::breakingTime(timing, plan, value) > 0;
      launches += isBroken ? op.trips : 0;
      if (!timing.isInternal(value) || isBroken)
        written += op.trips * graph.values[static_cast<size_t>(value)].elementBytes *
                   resultLayout(op.rule, plan.strategies[o], r).localElements();
    }
  }
  figures.emplace_back("launches", launches);
  figures.emplace_back("written", written);
}

/// Kernels and calls of one rank's program as it is expected.
static void addGrouped(std::vector<search::LocalFunction> functions, Figures &figures) {
  kernels::Launches all;
  for (search::LocalFunction &function : functions) {
    kernels::takeAttentions(function.program, kernels::cpu);
    all.add(kernels::launchesOf(function.program,
                                kernels::group(function.program, kernels::cpu),
                                kernels::cpu),
            function.trips);
  }
  figures.emplace_back("grouped-kernels", all.kernels);
  figures.emplace_back("grouped-calls", all.calls);
  figures.emplace_back("grouped-stored", all.bytesWritten);
  figures.emplace_back("grouped-attentions", all.attentions);
  figures.emplace_back("grouped-copies", all.copies);
}

/// Figures of a decided program whose conversions are no ops yet.
static Expected<std::vector<search::LocalFunction>> addPriced(Compiler &compiler,
                                                              Figures &figures) {
  auto function = compiler.module->lookupSymbol<func::FuncOp>("main");
  Mesh mesh = dist::findMesh(*compiler.module).getMesh();
  auto flow = dist::buildFlow(function, mesh, dist::Callees::Inlined);
  if (failed(flow))
    return makeError("the decided program has no flow graph");
  (*flow)->graph.finalize();
  search::Decided plan;
  auto strategies = dist::readStrategies(function, **flow);
  if (failed(strategies))
    return makeError("the decided program lacks a strategy");
  plan.strategies = std::move(*strategies);
  auto servings = dist::readServings(function, **flow, plan.strategies);
  if (failed(servings))
    return makeError("the decided program has no valid services");
  plan.servings = std::move(*servings);
  auto target = planTarget(mesh, {});
  if (!target)
    return tl::unexpected(target.error());
  auto placement = Placement::create(mesh, target->topology);
  if (!placement)
    return tl::unexpected(placement.error());
  search::Timing timing((*flow)->graph, *placement);
  search::PlanCost cost = search::evaluate(timing, plan);
  figures.emplace_back("step", cost.total());
  figures.emplace_back("received", cost.receivedBytes);
  figures.emplace_back("peak-buffer", cost.peakBuffer);
  addPredicted(timing, plan, figures);
  figures.emplace_back("memory", search::memoryOf(timing, plan).peak());
  // States in parts are read as conversions will: what is gathered may be given up.
  regather(function, **flow, plan.strategies, plan.servings);
  return search::localProgram((*flow)->graph, plan);
}

static void addFormed(const ProgramNeeds &needs, Figures &figures) {
  const PlanMemory &memory = needs.memory;
  int64_t unused = 0, scratch = 0;
  for (const auto &[kind, bytes] : memory.peak.kinds) {
    if (kind == "unused")
      unused = bytes;
    if (kind == memoryKindName(MemoryKind::Workspace))
      scratch = bytes;
  }
  figures.emplace_back("kernels", needs.launches.kernels);
  figures.emplace_back("calls", needs.launches.calls);
  figures.emplace_back("stored", needs.launches.bytesWritten);
  figures.emplace_back("attentions", needs.launches.attentions);
  figures.emplace_back("copies", needs.launches.copies);
  figures.emplace_back("distinct", needs.numKernels);
  figures.emplace_back("tasks", needs.numTasks);
  figures.emplace_back("weights", memory.weights);
  figures.emplace_back("packed", memory.packed);
  figures.emplace_back("states", memory.states);
  figures.emplace_back("arena", memory.arena);
  figures.emplace_back("live", memory.arena - unused);
  figures.emplace_back("scratch", scratch);
}

static Expected<Figures> figuresOf(const Request &request, const std::string &savedPlan,
                                   bool tellUnlike) {
  Figures figures;
  std::vector<search::LocalFunction> local;
  Job job(request, [](const std::string &) {});
  takeChoices(job);
  Compiler compiler(job);
  auto ok = compiler.import().and_then([&] { return compiler.decide(); });
  if (ok)
    ok = compiler.recordPlan();
  if (ok && !savedPlan.empty())
    ok = writeFile(savedPlan, compiler.plan.json());
  if (ok)
    ok = addPriced(compiler, figures).map([&](auto program) {
      local = std::move(program);
    });
  if (ok)
    ok = compiler.runPasses(
        "", [](OpPassManager &manager) { buildConversionsPipeline(manager, ""); });
  if (!ok)
    return tl::unexpected(ok.error());
  compiler.price =
      dist::priceOfConversions(compiler.module->lookupSymbol<func::FuncOp>("main"));
  ok = compiler.partition();
  if (ok) {
    addGrouped(local, figures);
    figures.emplace_back(
        "unlike", opsUnlike(local, compiler.module->lookupSymbol<func::FuncOp>("main"),
                            tellUnlike));
    ok = compiler.schedule();
  }
  if (!ok)
    return tl::unexpected(ok.error());
  auto needs = measureProgram(compiler, request);
  if (!needs)
    return tl::unexpected(needs.error());
  addFormed(*needs, figures);
  return figures;
}

int main(int argc, char **argv) {
  Request request;
  request.target.cpu = "x86-64-v3";
  std::string savedPlan;
  bool tellUnlike = false;
  CLI::App app("What a plan is said to take, and what its program takes", "plan-figures");
  app.add_option("model", request.model.file)->required();
  app.add_option("--save-plan", savedPlan);
  app.add_flag("--tell-unlike", tellUnlike);
  CommandOptions options(app);
  addMesh(options, request);
  addModel(options, request);
  if (auto done = parse(app, argc, argv))
    return *done;
  auto figures = options.error ? tl::unexpected(*options.error)
                               : figuresOf(request, savedPlan, tellUnlike);
  if (!figures) {
    fprintf(stderr, "error: %s\n", figures.error().message.c_str());
    return 1;
  }
  for (const auto &[name, value] : *figures)
    printf("%s%s=%lld", name == figures->front().first ? "" : " ", name,
           static_cast<long long>(value));
  printf("\n");
  return 0;
}
