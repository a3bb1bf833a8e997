//===- Pipelines.cpp - The pipelines of all commands ----------------------===//
#include "passes/Pipelines/Pipelines.h"

#include "dialects/Dist/Dist.h"
#include "partita/Comm/Order.h"
#include "passes/Codegen/Targets/Passes.h"
#include "passes/Partition/Passes.h"
#include "passes/Pipelines/Passes.h"
#include "passes/Simplify/Passes.h"
#include "passes/Stage/Passes.h"
#include "passes/Train/Passes.h"

#include "mlir/Pass/PassOptions.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace partita;

void partita::buildImportedPipeline(OpPassManager &manager) {
  manager.addPass(createExpandGradientsPass());
  // Before and after: equal weights make equal ops, and simplifying makes more of them.
  manager.addPass(createCSEPass());
  manager.addPass(createSimplifyPass());
  manager.addPass(createCSEPass());
  manager.addPass(createVerifyImportedPass());
}

void partita::buildTrainedPipeline(OpPassManager &manager, const train::Spec &spec,
                                   const Hints *hints, bool isAttentionApart) {
  NamedApart named;
  for (const train::Recompute &pattern : spec.recompute)
    if (!pattern.isChosen)
      llvm::append_range(named.parts, pattern.nodes);
  if (hints)
    for (const NodeHint &hint : hints->nodes)
      (hint.in.empty() ? named.inner : named.nodes).push_back(hint.glob);
  if (hints)
    for (const NamedTensorHint &hint : hints->tensors)
      named.inner.push_back(hint.glob);
  named.byStages = hints && !hints->stages.empty();
  if (!isAttentionApart)
    manager.addPass(createFormAttentionPass(named));
  manager.addPass(createTrainPass(spec));
  buildImportedPipeline(manager);
  manager.addPass(createMarkRecomputePass(spec));
  manager.addPass(createVerifyTrainedPass());
}

void partita::buildEvaluatedPipeline(OpPassManager &manager, const train::Spec &spec) {
  manager.addPass(createEvaluatePass(spec));
  buildImportedPipeline(manager);
}

void partita::buildConversionsPipeline(OpPassManager &manager,
                                       const std::string &explain) {
  InsertReshardsPassOptions options;
  options.explain = explain;
  manager.addPass(createInsertReshardsPass(options));
  manager.addPass(createVerifyPlannedPass());
}

void partita::buildPlanPipeline(OpPassManager &manager, const ShardPassOptions &options) {
  manager.addPass(createShardPass(options));
  buildConversionsPipeline(manager, options.explain);
}

/// Last changes of a planned program: behind them its conversions are those of the ranks.
static void addLastConversions(OpPassManager &manager) {
  manager.addPass(createRecomputePass());
  CombineMomentsPassOptions moments;
  moments.mostBytes = buckets::Options{}.joinBytes;
  manager.addPass(createCombineMomentsPass(moments));
}

void partita::buildLastConversionsPipeline(OpPassManager &manager) {
  addLastConversions(manager);
  manager.addPass(createVerifyPlannedPass());
}

void partita::buildRanksPipeline(OpPassManager &manager) {
  addLastConversions(manager);
  manager.addPass(createPartitionPass());
  manager.addPass(createVerifyPartitionedPass());
}

void partita::buildSchedulePipeline(OpPassManager &manager,
                                    const std::optional<CommunicationOrder> &order) {
  manager.addPass(createSchedulePass());
  if (order)
    manager.addPass(
        createOrderCommunicationPass(order->fusion, order->inFlight, order->mostCalls));
  manager.addPass(createVerifyScheduledPass());
}

void partita::buildCompleteSchedulesPipeline(
    OpPassManager &manager, const std::optional<CommunicationOrder> &order) {
  manager.addPass(createCompleteSchedulesPass());
  if (order)
    manager.addPass(
        createOrderCommunicationPass(order->fusion, order->inFlight, order->mostCalls));
  manager.addPass(createVerifyScheduledPass());
}

void partita::buildRanksPipelineFor(OpPassManager &manager, ModuleOp module) {
  WalkResult found = module.walk([](Operation *op) {
    return isa<dist::ReshardOp, dist::WindowOp>(op) ? WalkResult::interrupt()
                                                    : WalkResult::advance();
  });
  if (!found.wasInterrupted())
    manager.addPass(createInsertReshardsPass());
  manager.addPass(createVerifyPlannedPass());
  buildRanksPipeline(manager);
}

namespace {
struct PlanPipelineOptions : PassPipelineOptions<PlanPipelineOptions> {
  Option<std::string> mesh{*this, "mesh", llvm::cl::desc("Mesh, e.g. dp=2,tp=4")};
  Option<std::string> mode{*this, "mode", llvm::cl::init("auto"),
                           llvm::cl::desc("auto, data-parallel, semi-auto or manual")};
  Option<std::string> hints{*this, "hints", llvm::cl::desc("Hints file (JSON)")};
  Option<std::string> plan{*this, "plan", llvm::cl::desc("plan.json to follow")};
  Option<std::string> explain{*this, "explain", llvm::cl::desc("Node name or glob")};
  Option<std::string> cluster{*this, "cluster", llvm::cl::desc("Cluster file (JSON)")};
  Option<std::string> memory{*this, "memory", llvm::cl::desc("Bytes of a device")};
  Option<bool> allToAll{*this, "all-to-all", llvm::cl::init(true),
                        llvm::cl::desc("Allow all-to-all, permute and exchange")};

  ShardPassOptions shard() const {
    ShardPassOptions options;
    options.mesh = mesh;
    options.mode = mode;
    options.hints = hints;
    options.plan = plan;
    options.explain = explain;
    options.cluster = cluster;
    options.memory = memory;
    options.allToAll = allToAll;
    return options;
  }
};

struct CpuPipelineOptions : PlanPipelineOptions {
  Option<int> threads{*this, "threads", llvm::cl::init(1),
                      llvm::cl::desc("Threads per rank")};
};
} // namespace

void partita::registerPartitaPipelines() {
  PassPipelineRegistration<PlanPipelineOptions>(
      "partita-plan", "Strategies and conversions: an imported program becomes a plan",
      [](OpPassManager &manager, const PlanPipelineOptions &options) {
        buildPlanPipeline(manager, options.shard());
      });
  PassPipelineRegistration<>("partita-ranks", "A plan becomes one rank's program",
                             [](OpPassManager &manager) { buildRanksPipeline(manager); });
  PassPipelineRegistration<CpuPipelineOptions>(
      "partita-cpu", "An imported program becomes kernels for one rank's CPU",
      [](OpPassManager &manager, const CpuPipelineOptions &options) {
        buildImportedPipeline(manager);
        buildPlanPipeline(manager, options.shard());
        buildRanksPipeline(manager);
        LowerKernelsPassOptions lower;
        lower.threads = options.threads;
        manager.addPass(createLowerKernelsPass(lower));
      });
}
