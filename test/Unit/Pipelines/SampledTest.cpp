//===- SampledTest.cpp - Samples of nodes, and how long they take ---------===//
#include "dialects/Graph/Graph.h"
#include "partita/Reference/Kernels.h"
#include "passes/Pipelines/VerifyCompare.h"
#include "passes/Pipelines/VerifySampled.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <set>

using namespace mlir;
using namespace partita;

namespace {
constexpr char text[] = R"(
func.func @body(%h: tensor<4x6xf32>, %w: tensor<6x6xf32>) -> tensor<4x6xf32> {
  %0 = graph.contract %h, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32> loc("inner")
  return %0 : tensor<4x6xf32>
}
func.func @main(%x: tensor<4x6xf32> {graph.name = "x"}, %w: tensor<6x6xf32> {graph.name = "w"}) -> (tensor<4x6xf32> {graph.name = "y"}) {
  %0 = graph.contract %x, %w {equation = #graph.equation<"m k, k n -> m n">} : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32> loc("first")
  %1 = graph.repeat @body trips 5 carried(%0) with(%w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32> loc("loop")
  %2 = graph.add %1, %x : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32> loc("sum")
  %3 = graph.add %2, %0 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32> loc("twice")
  return %3 : tensor<4x6xf32>
}
)";

struct Program4x6 {
  Sources sources{/*weights=*/false};
  MLIRContext &context = sources.context;
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
  func::FuncOp main() { return module->lookupSymbol<func::FuncOp>("main"); }
  Tensors inputs{randomTensor(DType::F32, {4, 6}, 1),
                 randomTensor(DType::F32, {6, 6}, 2)};
  WeightLoader weights = [](StringRef) -> Expected<HostTensor> {
    return makeError("there are no weights");
  };

  /// The sample's values, as a program gives them that does what the evaluator does.
  Tensors values(const NodeSample &sample) {
    OwningOpRef<ModuleOp> copy = module->clone();
    auto clone = copy->lookupSymbol<func::FuncOp>("main");
    sample.addResults(clone);
    auto results = evaluate(clone, inputs, weights);
    REQUIRE(results);
    REQUIRE(results->size() == 1 + sample.numResults());
    return {results->begin() + 1, results->end()};
  }

  /// The nodes that are not what the evaluator makes of what they read.
  std::set<std::string> wrong(const NodeSample &sample, const Tensors &values) {
    std::set<std::string> found;
    auto judge = [&](const std::string &where, const HostTensor &made,
                     const HostTensor &evaluated) -> Expected<void> {
      if (!compareTensors(made, evaluated, 1e-6, 1e-6))
        found.insert(where);
      return {};
    };
    REQUIRE(sample.check(values, inputs, weights, judge, {}));
    return found;
  }
};
} // namespace

TEST_CASE("Every value that a drawn node makes or reads is checked") {
  Program4x6 program;
  REQUIRE(program.module);
  const EvaluationCost cost(program.main());
  const NodeSample sample(program.main(), cost, 1);
  CHECK(sample.numNodes() == 4);
  CHECK(sample.size() == 3); // a loop is none
  const Tensors values = program.values(sample);
  REQUIRE(values.size() == 4); // of the two products' and the two sums' results
  CHECK(program.wrong(sample, values).empty());
  std::set<std::string> all;
  for (size_t i = 0; i < values.size(); ++i) {
    Tensors damaged = values;
    auto numbers = reference::values<double>(damaged[i]);
    numbers[7] += 1e-3;
    damaged[i] = reference::tensor<double>(DType::F32, damaged[i].shape, numbers);
    auto found = program.wrong(sample, damaged);
    CHECK(!found.empty());
    all.insert(found.begin(), found.end());
  }
  CHECK(all == std::set<std::string>{"node 'first' (contract)", "node 'sum' (add)",
                                     "node 'twice' (add)"});
}

TEST_CASE("Limits and the seed decide what is drawn") {
  Program4x6 program;
  const EvaluationCost cost(program.main());
  CHECK(NodeSample(program.main(), cost, 1, {.nodes = 2}).size() == 2);
  CHECK(NodeSample(program.main(), cost, 1, {.bytes = 0}).size() == 0);
  CHECK(NodeSample(program.main(), cost, 1, {.seconds = 0}).size() == 0);
  // A sum reads or makes three values of 96 bytes at most, the first product one.
  CHECK(NodeSample(program.main(), cost, 1, {.bytes = 96}).size() == 1);
  std::set<std::vector<size_t>> drawn;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const NodeSample one(program.main(), cost, seed, {.nodes = 1});
    CHECK(one.size() == 1);
    CHECK(one.numResults() ==
          NodeSample(program.main(), cost, seed, {.nodes = 1}).numResults());
    drawn.insert({one.numResults()});
  }
  CHECK(drawn.size() > 1);
}

TEST_CASE("A loop is expected to take as long as all its trips") {
  Program4x6 program;
  const EvaluatorRates rates{.flops = 1, .elements = 1e30};
  const EvaluationCost cost(program.main(), 1, rates);
  // A product: 2·4·6·6 operations, six times with the loop; a sum: 24.
  CHECK(std::abs(cost.seconds() - (6 * 288 + 2 * 24)) < 1e-6);
  CHECK(std::abs(EvaluationCost(program.main(), 3, rates).seconds() -
                 3 * cost.seconds()) < 1e-6);
  std::vector<std::string> said;
  EvaluationProgress progress(
      "the model", cost, [&](const std::string &line) { said.push_back(line); }, 0);
  REQUIRE(evaluate(program.main(), program.inputs, program.weights, progress.hooks({})));
  // Begun, four ops, and five trips of the body's.
  REQUIRE(said.size() == 1 + 4 + 5);
  CHECK(said[0] == "evaluating the model, about 30 min");
  CHECK(said[1].starts_with("evaluating the model: 16% done, about "));
  CHECK(said.back().starts_with("evaluating the model: 100% done, about "));
}

TEST_CASE("An evaluation that turns out too long ends behind the op at hand") {
  Program4x6 program;
  const EvaluationCost cost(program.main());
  auto evaluated = [&](double most, std::vector<std::string> &said) {
    EvaluationProgress progress(
        "the model", cost, [&](const std::string &line) { said.push_back(line); }, 0);
    progress.endIfLonger(most);
    auto outputs =
        evaluate(program.main(), program.inputs, program.weights, progress.hooks({}));
    CHECK(outputs.has_value() == (progress.tooLong() == 0));
    return progress.tooLong();
  };
  std::vector<std::string> said;
  CHECK(evaluated(1e9, said) == 0);
  CHECK(said.size() == 1 + 4 + 5);
  said.clear();
  const double expected = evaluated(1e-12, said);
  CHECK(expected > 1e-12);
  // Begun; the first op is no progress that is told.
  CHECK(said.size() == 1);
}

TEST_CASE("Roundings are judged by their sizes") {
  CHECK(roughly(0.2) == "1 s");
  CHECK(roughly(89) == "89 s");
  CHECK(roughly(90) == "2 min");
  CHECK(roughly(5400) == "2 h");
  const HostTensor exact = reference::tensor<double>(DType::F64, {2}, {1.0, 1e-9});
  auto narrow = [](double a, double b) {
    return reference::tensor<double>(DType::F32, {2}, {a, b});
  };
  const HostTensor expected = narrow(1.0, 2e-9);
  std::vector<std::string> lines;
  auto judged = [&](const HostTensor &actual, bool byErrors) {
    return compareOne(
               "x", actual, expected, {1e-4, 1e-12, byErrors},
               [&]() -> Expected<HostTensor> { return exact; }, lines)
        .has_value();
  };
  CHECK(judged(narrow(1.0, 0), true));
  CHECK(lines.size() == 2);
  CHECK(!judged(narrow(1.0, 0), false));
  CHECK(!judged(narrow(1.0, 5e-9), true));
  // Outputs that are near to another model's by chance are not equal to them.
  CHECK(!judged(narrow(0.5, 1e-9), true));
  const HostTensor other = narrow(0.5, 0);
  CHECK(!compareOne(
      "x", narrow(1.0, 1e-9), other, {1e-4, 1e-12},
      [&]() -> Expected<HostTensor> { return exact; }, lines));
}
