//===- Control.cpp - Loops and branches as ONNX nodes ---------------------===//
#include "dialects/Dist/ProgramFlow.h"
#include "partita/Reference/Kernels.h"
#include "passes/RankFiles/RankWriter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace partita;
using namespace partita::rank_files;

/// The body so many times, one behind the other, as loops of the text are short.
static void writeTrips(RankWriter &w, graph::RepeatOp op) {
  const int64_t trips = op.getCallTrips();
  auto function = cast<func::FuncOp>(op.getCallees().front());
  Block &body = function.getBody().front();
  Names carried = w.names(op.getCarried());
  const Names scanned = w.names(op.getScanned()), shared = w.names(op.getShared());
  std::vector<Names> rows(op->getNumResults() - carried.size());
  for (int64_t trip = 0; trip < trips; ++trip) {
    Names inputs = carried;
    for (const std::string &all : scanned)
      inputs.push_back(w.node(
          "Gather", {all, w.common(reference::tensor<int64_t>(DType::I64, {}, {trip}))},
          {{"axis", int64_t(0)}}));
    inputs.insert(inputs.end(), shared.begin(), shared.end());
    for (auto [argument, name] : llvm::zip(body.getArguments(), inputs))
      w.define(argument, name);
    Names results = writeBody(w, body);
    for (size_t i = 0; i < results.size(); ++i)
      if (i < carried.size())
        carried[i] = results[i];
      else
        rows[i - carried.size()].push_back(
            w.node("Unsqueeze", {results[i], w.ints({0})}));
  }
  w.begin(op);
  for (auto [i, result] : llvm::enumerate(op->getResults()))
    w.define(result, i < carried.size() ? carried[i]
                                        : w.node("Concat", rows[i - carried.size()],
                                                 {{"axis", int64_t(0)}}));
}

/// The body once, between two nodes of which writeModel makes a Loop.
static void writeLoop(RankWriter &w, graph::RepeatOp op) {
  const int64_t trips = op.getCallTrips();
  Names inputs = w.names(op.getCarried());
  Attributes ends{{"trips", trips}, {"carried", static_cast<int64_t>(inputs.size())}};
  llvm::append_range(inputs, w.names(op.getScanned()));
  const Names shared = w.names(op.getShared());
  Names seen = w.nodes("RepeatBegin", inputs.size(), inputs, ends, onnx_model::ownDomain);
  ends["begin"] = w.model.graph.nodes.back().name;
  llvm::append_range(seen, shared);
  Block &body = cast<func::FuncOp>(op.getCallees().front()).getBody().front();
  for (auto [argument, name] : llvm::zip(body.getArguments(), seen))
    w.define(argument, name);
  w.around.push_back("a loop of " + std::to_string(trips) + " trips, '" +
                     dist::nodeName(op) + "'");
  Names given = writeBody(w, body);
  w.around.pop_back();
  if (w.failure())
    return;
  w.begin(op);
  Names results = w.nodes("RepeatEnd", op->getNumResults(), std::move(given), ends,
                          onnx_model::ownDomain);
  for (auto [result, name] : llvm::zip(op->getResults(), results))
    w.define(result, name);
}

static void writeRepeat(RankWriter &w, Operation *op) {
  auto repeat = cast<graph::RepeatOp>(op);
  if (repeat.getCallTrips() > maxTrips)
    writeLoop(w, repeat);
  else
    writeTrips(w, repeat);
}

/// Writes a branch between the ends of an If; `seen`: what it sees of the op's inputs.
static Names writeBranch(RankWriter &w, func::FuncOp function, const Names &seen) {
  Block &body = function.getBody().front();
  for (auto [argument, name] : llvm::zip(body.getArguments(), seen))
    w.define(argument, name);
  w.around.push_back("a branch of an If");
  Names results = writeBody(w, body);
  w.around.pop_back();
  return results;
}

/// Both branches, between two nodes of which writeModel makes an If.
static void writeIf(RankWriter &w, Operation *branching) {
  auto op = cast<graph::IfOp>(branching);
  Names inputs = w.names(op.getInputs());
  inputs.insert(inputs.begin(), w.name(op.getCondition()));
  Names seen = w.nodes("IfBegin", inputs.size(), inputs, {}, onnx_model::ownDomain);
  const std::string begin = w.model.graph.nodes.back().name;
  Names given{seen.front()};
  for (Operation *callee : op.getCallees()) {
    Names results =
        writeBranch(w, cast<func::FuncOp>(callee), {seen.begin() + 1, seen.end()});
    given.insert(given.end(), results.begin(), results.end());
  }
  if (w.failure())
    return;
  w.begin(op);
  Names results = w.nodes("IfEnd", op->getNumResults(), std::move(given),
                          {{"begin", begin}}, onnx_model::ownDomain);
  for (auto [result, name] : llvm::zip(op->getResults(), results))
    w.define(result, name);
}

/// Weights and constants are written where they are read.
static void writeNothing(RankWriter &, Operation *) {}

void rank_files::addControl(WriterTable &table) {
  table[graph::RepeatOp::getOperationName()] = writeRepeat;
  table[graph::IfOp::getOperationName()] = writeIf;
  table[graph::WeightOp::getOperationName()] = writeNothing;
  table[graph::ConstantOp::getOperationName()] = writeNothing;
}
