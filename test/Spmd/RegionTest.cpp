//===- RegionTest.cpp - Loops and branches, planned in many ways ----------===//
//
// Programs with graph.repeat and graph.if. Every op gets any strategy, every variable of
// a loop or branch any layout, uneven ones too; what the ranks then compute is what one
// computes.
//
//===----------------------------------------------------------------------===//
#include "Runner.h"
#include "Strategies.h"

#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Graph.h"
#include "partita/Rule/Sharding/OperandForm.h"
#include "partita/Rule/Sharding/Ties.h"
#include "passes/Partition/Passes.h"
#include "passes/Reference/Evaluate.h"
#include "passes/Shard/Passes.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <catch2/catch.hpp>

#include <iostream>

using namespace mlir;
using namespace partita;
using namespace partita::spmd;

static constexpr const char *loopText = R"(
func.func private @step(%h: tensor<4x6xf32>, %x: tensor<4x6xf32>, %w: tensor<6x6xf32>)
    -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %p = graph.contract %h, %w {equation = #graph.equation<"b k, k n -> b n">}
      : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %s = graph.add %p, %x : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %t = graph.tanh %s : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return %t, %s : tensor<4x6xf32>, tensor<4x6xf32>
}
func.func @main(%h: tensor<4x6xf32>, %x: tensor<3x4x6xf32>, %w: tensor<6x6xf32>)
    -> (tensor<4x6xf32>, tensor<3x4x6xf32>) {
  %d = graph.abs %w : (tensor<6x6xf32>) -> tensor<6x6xf32>
  %last, %all = graph.repeat @step trips 3 carried(%h) scanned(%x) with(%d)
      : (tensor<4x6xf32>, tensor<3x4x6xf32>, tensor<6x6xf32>)
      -> (tensor<4x6xf32>, tensor<3x4x6xf32>)
  %y = graph.neg %last : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return %y, %all : tensor<4x6xf32>, tensor<3x4x6xf32>
}
)";

/// Two carried values that change places, and a loop in a loop.
static constexpr const char *nestedText = R"(
func.func private @inner(%a: tensor<5xf32>, %b: tensor<5xf32>)
    -> (tensor<5xf32>, tensor<5xf32>) {
  %s = graph.add %a, %b : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
  %t = graph.tanh %s : (tensor<5xf32>) -> tensor<5xf32>
  return %b, %t : tensor<5xf32>, tensor<5xf32>
}
func.func private @outer(%a: tensor<5xf32>, %b: tensor<5xf32>)
    -> (tensor<5xf32>, tensor<5xf32>, tensor<5xf32>) {
  %0, %1 = graph.repeat @inner trips 2 carried(%a, %b)
      : (tensor<5xf32>, tensor<5xf32>) -> (tensor<5xf32>, tensor<5xf32>)
  %m = graph.mul %0, %1 : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
  return %1, %0, %m : tensor<5xf32>, tensor<5xf32>, tensor<5xf32>
}
func.func private @yes(%a: tensor<5xf32>) -> tensor<5xf32> {
  return %a : tensor<5xf32>
}
func.func private @no(%a: tensor<5xf32>) -> tensor<5xf32> {
  %0 = graph.neg %a : (tensor<5xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}
func.func @main(%a: tensor<5xf32>, %b: tensor<5xf32>, %c: tensor<1xi1>)
    -> (tensor<5xf32>, tensor<5xf32>, tensor<3x5xf32>) {
  %0, %1, %all = graph.repeat @outer trips 3 carried(%a, %b)
      : (tensor<5xf32>, tensor<5xf32>) -> (tensor<5xf32>, tensor<5xf32>, tensor<3x5xf32>)
  %y = graph.if %c then @yes else @no(%0) : (tensor<1xi1>, tensor<5xf32>) -> tensor<5xf32>
  return %y, %1, %all : tensor<5xf32>, tensor<5xf32>, tensor<3x5xf32>
}
)";

namespace {
class Planner {
public:
  Planner(MLIRContext &context, const char *text, const char *mesh)
      : mesh(*Mesh::parse(mesh)), program(parseSourceString<ModuleOp>(text, &context)) {
    REQUIRE(program);
    auto function = program->lookupSymbol<func::FuncOp>("main");
    for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
      auto tensor = cast<RankedTensorType>(type);
      inputs.push_back(randomTensor(*dtypeOf(tensor.getElementType()),
                                    tensor.getShape().vec(), i + 1));
    }
    auto result = evaluate(function, inputs, noWeights());
    REQUIRE(result);
    expected = std::move(*result);
  }

  /// What is wrong with one random plan; empty: nothing.
  std::string run(Random &random) {
    OwningOpRef<ModuleOp> module(program->clone());
    MLIRContext *context = module->getContext();
    (*module)->setAttr(dist::meshAttr, dist::MeshAttr::get(context, mesh));
    auto function = module->lookupSymbol<func::FuncOp>("main");
    auto flow = dist::buildFlow(function, mesh, dist::Callees::Inlined);
    if (failed(flow))
      return "there is no flow graph";
    FlowGraph &graph = (*flow)->graph;
    graph.finalize();
    std::vector<Strategy> strategies;
    for (const FlowOp &op : graph.ops) {
      auto all = enumerateStrategies(mesh, op.rule, Depth::Assignments);
      strategies.push_back(all[random() % all.size()]);
    }
    settleTies(graph, strategies);
    dist::writeStrategies(function, **flow, strategies);
    std::string problem;
    ScopedDiagnosticHandler handler(context, [&](Diagnostic &diagnostic) {
      problem += diagnostic.str() + "; ";
      return success();
    });
    PassManager manager(context);
    manager.addPass(createInsertReshardsPass());
    manager.addPass(createVerifyPlannedPass());
    manager.addPass(createPartitionPass());
    manager.addPass(createVerifyPartitionedPass());
    if (failed(manager.run(*module)))
      return problem;
    auto actual = evaluatePartitioned(module->lookupSymbol<func::FuncOp>("main"), inputs,
                                      noWeights());
    if (!actual)
      return actual.error().message;
    for (size_t i = 0; i < expected.size(); ++i)
      if (auto ok = compareTensors((*actual)[i], expected[i], 1e-4, 1e-5); !ok)
        return "result " + std::to_string(i) + ": " + ok.error().message;
    return {};
  }

private:
  static WeightLoader noWeights() {
    return [](StringRef name) -> Expected<HostTensor> {
      return makeError("no weight '" + name.str() + "'");
    };
  }

  Mesh mesh;
  OwningOpRef<ModuleOp> program;
  Tensors inputs, expected;
};
} // namespace

TEST_CASE("loops and branches by any plan equal those on one rank") {
  MLIRContext context;
  loadDialects(context);
  Random random(11);
  size_t plans = 0;
  for (const char *text : {loopText, nestedText})
    for (const char *mesh : {"tp=2", "tp=3", "tp=4", "dp=2,tp=2", "dp=2,tp=3"}) {
      Planner planner(context, text, mesh);
      for (int i = 0; i < 40; ++i, ++plans)
        if (std::string problem = planner.run(random); !problem.empty())
          FAIL_CHECK("plan " << i << " on " << mesh << ": " << problem);
    }
  std::cout << "regions: " << plans << " plans\n";
}
