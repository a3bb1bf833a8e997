//===- RankModel.cpp - What one rank computes, as an ONNX model -----------===//
#include "dialects/Comm/Comm.h"
#include "dialects/Dist/Dist.h"
#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/Attention.h"
#include "dialects/Graph/Returned.h"
#include "partita/Onnx/MergeRanks.h"
#include "partita/Onnx/MergeStages.h"
#include "partita/Reference/Kernels.h"
#include "passes/RankFiles/RankWriter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace partita;
using namespace partita::rank_files;

std::optional<RankDialect> partita::rankDialectFromName(std::string_view name) {
  if (name == "partita")
    return RankDialect::Partita;
  if (name == "ort")
    return RankDialect::Ort;
  if (name == "tensorrt")
    return RankDialect::TensorRt;
  return std::nullopt;
}

Expected<void> partita::expandForRanks(ModuleOp module) {
  SmallVector<Operation *> attentions;
  module.walk([&](Operation *op) {
    if (graph::isAttention(op))
      attentions.push_back(op);
  });
  for (Operation *op : attentions) {
    OpBuilder builder(op);
    auto values = graph::expandAttention(op, builder);
    if (!values)
      return makeError("'" + dist::nodeName(op) + "': " + values.error().message);
    op->replaceAllUsesWith(*values);
    op->erase();
  }
  return {};
}

//===-- Bodies ------------------------------------------------------------===//

static const WriterTable &writers() {
  static const WriterTable table = [] {
    WriterTable made;
    addElementwise(made);
    addContractions(made);
    addReductions(made);
    addShapes(made);
    addIndexing(made);
    addCommunication(made);
    return made;
  }();
  return table;
}

static std::string shortName(Operation *op) { return op->getName().getStringRef().str(); }

/// The body so many times, one behind the other, as loops of the text are short.
static void writeRepeat(RankWriter &w, graph::RepeatOp op) {
  const int64_t trips = op.getCallTrips();
  if (trips > maxTrips) {
    w.fail("(" + shortName(op) + ") repeats " + std::to_string(trips) +
           " times; files per rank have loops of at most " + std::to_string(maxTrips) +
           ", written out");
    return;
  }
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

/// Writes a branch between the ends of an If; `seen`: what it sees of the op's inputs.
static Names writeBranch(RankWriter &w, func::FuncOp function, const Names &seen) {
  Block &body = function.getBody().front();
  for (auto [argument, name] : llvm::zip(body.getArguments(), seen))
    w.define(argument, name);
  ++w.branches;
  Names results = writeBody(w, body);
  --w.branches;
  return results;
}

/// Both branches, between two nodes of which writeModel makes an If.
static void writeIf(RankWriter &w, graph::IfOp op) {
  w.begin(op);
  Names inputs = w.names(op.getInputs());
  inputs.insert(inputs.begin(), w.name(op.getCondition()));
  Names seen = w.nodes("IfBegin", inputs.size(), inputs, {}, onnx_model::ownDomain);
  const std::string begin = seen.front();
  Names given{begin};
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

static void writeOp(RankWriter &w, Operation &op) {
  w.begin(&op);
  if (isa<graph::WeightOp, graph::ConstantOp>(op))
    return; // written where they are read
  if (auto repeat = dyn_cast<graph::RepeatOp>(op))
    return writeRepeat(w, repeat);
  if (auto branch = dyn_cast<graph::IfOp>(op))
    return writeIf(w, branch);
  auto writer = writers().find(op.getName().getStringRef());
  if (writer != writers().end())
    return writer->second(w, &op);
  if (isa<PayloadOpInterface>(op))
    return writePayload(w, &op);
  w.fail("(" + shortName(&op) + ") has no form in ONNX that a file per rank can have");
}

Names rank_files::writeBody(RankWriter &w, Block &block) {
  for (Operation &op : block.without_terminator()) {
    if (w.failure())
      return {};
    writeOp(w, op);
  }
  return w.names(block.getTerminator()->getOperands());
}

//===-- Ends --------------------------------------------------------------===//

/// The name of an end. The result of a state that is no output of the model is called
/// after the state.
static Expected<std::string> nameOf(func::FuncOp function, bool isResult, unsigned i) {
  auto name = isResult ? function.getResultAttrOfType<StringAttr>(i, "graph.name")
                       : function.getArgAttrOfType<StringAttr>(i, "graph.name");
  dist::StateAttr state =
      isResult ? dist::resultState(function, i) : dist::argumentState(function, i);
  if (!name && state)
    return state.getName().str() + (isResult ? ".next" : "");
  if (!name)
    return makeError(std::string(isResult ? "result " : "argument ") + std::to_string(i) +
                     " of the program has no name");
  return name.getValue().str();
}

static Expected<void> checkEnds(func::FuncOp function) {
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (auto name = nameOf(function, true, i);
        name && (function.getResultAttr(i, graph::dimsAttr) ||
                 function.getResultAttr(i, graph::sizeAttr)))
      return makeError("output '" + *name +
                       "' has as many elements as the data say, which files per rank "
                       "cannot say");
  return {};
}

static Layout layoutOf(dist::LayoutAttr layout, Type type) {
  return layout ? layout.getLayout()
                : Layout::replicated(cast<RankedTensorType>(type).getShape().vec());
}

namespace {
/// Writes a model from its inputs to its outputs.
class ModelWriter {
public:
  ModelWriter(func::FuncOp function, RankWriter &writer, const RankStage &stage)
      : function(function), w(writer), stage(stage) {}

  Expected<onnx_model::Model> run() {
    w.model.graph.name =
        stage.stages == 1
            ? onnx_model::rankText(w.rank, w.mesh.numRanks())
            : onnx_model::StagePlace{w.rank, w.mesh.numRanks(), stage.stage, stage.stages}
                  .text();
    w.model.metadata = stage.metadata;
    w.model.opsets = {{"", 23}};
    if (auto ok = takeNames(); !ok)
      return tl::unexpected(ok.error());
    writeStates();
    for (BlockArgument argument : function.getArguments())
      writeInput(argument);
    Names results = writeBody(w, function.getBody().front());
    for (auto [i, result] : llvm::enumerate(results))
      if (!w.failure())
        writeOutput(static_cast<unsigned>(i), result);
    if (w.failure())
      return tl::unexpected(*w.failure());
    for (const onnx_model::Node &node : w.model.graph.nodes)
      if (!node.domain.empty() && !onnx_model::isAroundPart(node))
        w.model.opsets[node.domain] = 1;
    return std::move(w.model);
  }

private:
  /// Ends have their names before anything inside has one.
  Expected<void> takeNames() {
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      auto name = nameOf(function, false, i);
      if (!name)
        return tl::unexpected(name.error());
      inputs.push_back(w.reserve(*name));
    }
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      auto name = nameOf(function, true, i);
      if (!name)
        return tl::unexpected(name.error());
      outputs.push_back(w.reserve(*name));
    }
    return {};
  }

  /// Says which inputs are what outputs of the run before were.
  void writeStates() {
    std::string lines;
    for (const dist::StateEnds &ends : dist::statesOf(function))
      if (ends.argument >= 0 && ends.result >= 0)
        lines += inputs[static_cast<size_t>(ends.argument)] + "=" +
                 outputs[static_cast<size_t>(ends.result)] + "\n";
    if (!lines.empty())
      w.model.metadata[std::string(onnx_model::statesKey)] = lines;
  }

  void writeInput(BlockArgument argument) {
    const unsigned i = argument.getArgNumber();
    Layout layout = layoutOf(dist::argumentLayout(function, i), argument.getType());
    w.begin(function);
    const DType type = typeOf(argument);
    std::string whole = inputs[i];
    if (auto from = stage.received.find(argumentName(i)); from != stage.received.end())
      whole = writeReceive(w, {from->first, layout.globalShape(), type, from->second});
    else
      w.model.graph.inputs.push_back({inputs[i], type, layout.globalShape()});
    w.define(argument, toLocal(w, whole, layout, type));
  }

  std::string argumentName(unsigned i) const {
    auto name = nameOf(function, false, i);
    return name ? *name : "";
  }

  void writeOutput(unsigned i, const std::string &part) {
    const Type type = function.getResultTypes()[i];
    const DType element = *dtypeOf(getElementTypeOrSelf(type));
    w.begin(function);
    const Layout layout = layoutOf(dist::resultLayout(function, i), type);
    const Shape shape = layout.globalShape();
    std::string whole = toGlobal(w, part, layout);
    auto name = nameOf(function, true, i);
    auto to = name ? stage.sent.find(*name) : stage.sent.end();
    if (to != stage.sent.end()) {
      writeSend(w, whole, {to->first, shape, element, to->second});
      if (!stage.outputs.contains(*name))
        return;
    }
    rank_files::writeOutput(w, whole, outputs[i], shape, element);
  }

  func::FuncOp function;
  RankWriter &w;
  const RankStage &stage;
  Names inputs, outputs;
};
} // namespace

Expected<onnx_model::Model> partita::rankModel(ModuleOp module, int64_t rank,
                                               RankDialect dialect,
                                               const WeightTensor &weights,
                                               const RankStage &stage) {
  auto function = module.lookupSymbol<func::FuncOp>("main");
  if (!function)
    return makeError("the program has no function 'main'");
  auto mesh = dist::meshOf(function);
  if (!mesh)
    return tl::unexpected(mesh.error());
  if (auto ok = checkEnds(function); !ok)
    return tl::unexpected(ok.error());
  RankWriter writer(*mesh, rank, dialect, weights);
  return ModelWriter(function, writer, stage).run();
}
