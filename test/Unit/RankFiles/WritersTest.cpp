//===- WritersTest.cpp - Ops of every dialect in files per rank -----------===//
#include "dialects/Comm/Comm.h"
#include "dialects/Dist/Dist.h"
#include "dialects/Graph/Graph.h"
#include "passes/RankFiles/RankFiles.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

#include <catch2/catch.hpp>

#include <fstream>
#include <sstream>

using namespace mlir;
using namespace partita;

namespace {
struct Context {
  MLIRContext context;
  Context() {
    DialectRegistry registry;
    registry.insert<func::FuncDialect, graph::GraphDialect, dist::DistDialect,
                    comm::CommDialect>();
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
  }
};

Expected<onnx_model::Model> written(Context &context, StringRef text) {
  auto module = parseSourceString<ModuleOp>(text, &context.context);
  REQUIRE(module);
  return rankModel(*module, 0, RankDialect::Partita, [](StringRef name) {
    return Expected<const onnx_model::Tensor *>(
        makeError("reads weight '" + name.str() + "'"));
  });
}

std::string listing(const onnx_model::Model &model) {
  std::string text;
  for (const onnx_model::Node &node : model.graph.nodes)
    text += (text.empty() ? "" : " ") + node.opType;
  return text;
}
} // namespace

TEST_CASE(
    "every op can be written, or is in the list of those that cannot, with a reason") {
  Context context;
  size_t count = 0, without = 0;
  for (RegisteredOperationName op : context.context.getRegisteredOperations()) {
    const StringRef dialect = op.getDialectNamespace(), name = op.getStringRef();
    if (dialect != "graph" && dialect != "dist" && dialect != "comm")
      continue;
    INFO(name.str());
    bool isListed = llvm::any_of(opsWithoutRankForm(), [&](const WithoutRankForm &each) {
      return each.op == name;
    });
    CHECK(hasRankForm(op) != isListed);
    ++count;
    without += isListed;
  }
  CHECK(count > 100);
  // No op is listed that no dialect has.
  CHECK(without == opsWithoutRankForm().size());
}

TEST_CASE("the documentation names the ops without a form") {
  std::ifstream file(PARTITA_SOURCE_DIR "/docs/rank-files.md");
  std::ostringstream text;
  text << file.rdbuf();
  for (const WithoutRankForm &each : opsWithoutRankForm()) {
    INFO(each.op.str());
    CHECK(text.str().find("`" + each.op.str() + "`") != std::string::npos);
  }
}

TEST_CASE("a negative pad of a transposed convolution is an edge with the bias alone") {
  Context context;
  auto model = written(context, R"(
    func.func @main(%x: tensor<1x2x4xf32> {graph.name = "x"}, %w: tensor<2x3x3xf32> {graph.name = "w"},
                    %b: tensor<3xf32> {graph.name = "b"}) -> (tensor<1x3x9xf32> {graph.name = "y"})
        attributes {dist.mesh = #dist.mesh<dp=2>} {
      %0 = graph.conv_transpose %x, %w, %b {strides = array<i64: 1>, dilations = array<i64: 1>, pads = array<i64: -2, -1>, output_padding = array<i64: 0>}
           : (tensor<1x2x4xf32>, tensor<2x3x3xf32>, tensor<3xf32>) -> tensor<1x3x9xf32>
      return %0 : tensor<1x3x9xf32>
    })");
  REQUIRE(model);
  CHECK(listing(*model) == "ConvTranspose Pad Reshape Add Identity");
  const onnx_model::Node &conv = model->graph.nodes[0];
  CHECK(conv.inputs.size() == 2);
  CHECK(*conv.attribute<std::vector<int64_t>>("pads") == std::vector<int64_t>{0, 0});
}

TEST_CASE("what has no form is an error that says why") {
  Context context;
  auto model = written(context, R"(
    func.func private @f(%x: tensor<3xf32>) -> tensor<3xf32> {
      return %x : tensor<3xf32>
    }
    func.func @main(%x: tensor<3xf32> {graph.name = "x"}) -> (tensor<3xf32> {graph.name = "y"})
        attributes {dist.mesh = #dist.mesh<dp=2>} {
      %0 = graph.gradient @f(%x) : (tensor<3xf32>) -> tensor<3xf32> loc("slope")
      return %0 : tensor<3xf32>
    })");
  REQUIRE(!model);
  CHECK(
      model.error().message ==
      "'slope' (graph.gradient) has no form in ONNX that a file per rank can have: it is "
      "expanded before a program is planned");
}
