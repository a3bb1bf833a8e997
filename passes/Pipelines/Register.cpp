//===- Register.cpp - Dialects and passes by name -------------------------===//
#include "passes/Pipelines/Passes.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Task/Task.h"
#include "passes/Codegen/Nvptx/Passes.h"
#include "passes/Codegen/Targets/Passes.h"
#include "passes/Partition/Passes.h"
#include "passes/Pipelines/Pipelines.h"
#include "passes/Precision/Passes.h"
#include "passes/Shard/Passes.h"
#include "passes/Simplify/Passes.h"
#include "passes/Stage/Passes.h"
#include "passes/Train/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

void partita::registerPartitaDialects(mlir::DialectRegistry &registry) {
  registry.insert<graph::GraphDialect, dist::DistDialect, comm::CommDialect,
                  task_ir::TaskDialect, mlir::func::FuncDialect>();
  comm::registerBufferization(registry);
}

void partita::registerPartitaPasses(BundleRunner run) {
  registerSimplifyPasses();
  registerPrecisionPasses();
  registerTrainPasses();
  registerShardPasses();
  registerPartitionPasses();
  registerStagePasses();
  registerCodegenTargetsPasses();
  registerCodegenNvptxPasses();
  // The first that is registered under a name stays.
  registerCheckBundle(std::move(run));
  registerPipelinesPasses();
  registerPartitaPipelines();
}
