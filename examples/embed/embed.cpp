//===- embed.cpp - Partita's pipeline on a module of one's own ------------===//
//
// Makes a function of two products with an activation between them, asks for the columns
// of the first to be split over two ranks, and prints one rank's program: the second
// product makes partial sums, which one all-reduce adds.
//
//===----------------------------------------------------------------------===//
#include "passes/Pipelines/Passes.h"
#include "passes/Pipelines/Pipelines.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/raw_ostream.h"

static constexpr char program[] = R"(
func.func @main(%x: tensor<4x8xf32>, %up: tensor<8x16xf32>, %down: tensor<16x8xf32>)
    -> tensor<4x8xf32> {
  %0 = graph.contract %x, %up {equation = #graph.equation<"m k, k n -> m n">}
      : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32> loc("up")
  %1 = graph.relu %0 : (tensor<4x16xf32>) -> tensor<4x16xf32> loc("relu")
  %2 = graph.contract %1, %down {equation = #graph.equation<"m k, k n -> m n">}
      : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32> loc("down")
  return %2 : tensor<4x8xf32>
})";

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  partita::registerPartitaDialects(registry);
  registry.insert<mlir::func::FuncDialect>();
  mlir::MLIRContext context(registry);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(program, &context);
  if (!module)
    return 1;

  partita::ShardPassOptions options;
  options.mesh = argc > 1 ? argv[1] : "tp=2";
  options.hints = argc > 2 ? argv[2] : "";
  options.mode = "semi-auto";
  mlir::PassManager manager(&context);
  partita::buildPlanPipeline(manager, options);
  partita::buildRanksPipeline(manager);
  if (mlir::failed(manager.run(*module)))
    return 1;
  module->print(llvm::outs());
  llvm::outs() << "\n";
  return 0;
}
