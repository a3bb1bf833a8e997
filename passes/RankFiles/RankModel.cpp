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

#include <numeric>

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
    addDetection(made);
    addControl(made);
    addCommunication(made);
    return made;
  }();
  return table;
}

ArrayRef<WithoutRankForm> partita::opsWithoutRankForm() {
  static constexpr WithoutRankForm ops[] = {
      {"graph.attention", "expandForRanks replaces it by products and reductions"},
      {"graph.attention_grad_query", "expandForRanks replaces it likewise"},
      {"graph.attention_grad_keys", "expandForRanks replaces it likewise"},
      {"graph.gradient", "it is expanded before a program is planned"},
      {"dist.reshard", "partitioning replaces it by steps"},
      {"dist.window", "partitioning replaces it by a halo"},
      {"dist.manual", "partitioning replaces it by its function's ops"},
      {"comm.coordinate", "programs of other dialects alone have it"},
  };
  return ops;
}

bool partita::hasRankForm(OperationName op) {
  return writers().contains(op.getStringRef()) || op.hasInterface<PayloadOpInterface>();
}

static std::string noForm(Operation *op) {
  const StringRef name = op->getName().getStringRef();
  std::string text =
      "(" + name.str() + ") has no form in ONNX that a file per rank can have";
  for (const WithoutRankForm &each : opsWithoutRankForm())
    if (each.op == name)
      text += ": " + each.reason.str();
  return text;
}

static void writeOp(RankWriter &w, Operation &op) {
  w.begin(&op);
  auto writer = writers().find(op.getName().getStringRef());
  if (writer != writers().end())
    return writer->second(w, &op);
  if (isa<PayloadOpInterface>(op))
    return writePayload(w, &op);
  w.fail(noForm(&op));
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

/// Refuses sizes that are data in files of several stages: values that are sent have one
/// size, and the size of an output may be another stage's.
static Expected<void> checkEnds(func::FuncOp function, const RankStage &stage) {
  for (unsigned i = 0; stage.stages > 1 && i < function.getNumResults(); ++i)
    if (auto name = nameOf(function, true, i);
        name && (function.getResultAttr(i, graph::dimsAttr) ||
                 function.getResultAttr(i, graph::sizeAttr)))
      return makeError("output '" + *name +
                       "' has as many elements as the data say, which files of several "
                       "stages cannot say");
  return {};
}

static Layout layoutOf(dist::LayoutAttr layout, Type type) {
  return layout ? layout.getLayout()
                : Layout::replicated(cast<RankedTensorType>(type).getShape().vec());
}

/// ONNX Runtime has RoiAlign up to opset 21. In that, all nodes but RMSNormalization have
/// the form in which they are written, if types are old ones.
static bool isOpset21(func::FuncOp function, const onnx_model::Graph &graph) {
  auto has = [&](StringRef op) {
    return llvm::any_of(graph.nodes, [&](const auto &node) { return node.opType == op; });
  };
  auto isOld = [](Type value) {
    Type type = getElementTypeOrSelf(value);
    return type.isF32() || type.isF64() || type.isF16() ||
           (type.isInteger() && type.getIntOrFloatBitWidth() != 4);
  };
  auto walked = function->getParentOfType<ModuleOp>().walk([&](Operation *op) {
    return llvm::all_of(op->getResultTypes(), isOld) ? WalkResult::advance()
                                                     : WalkResult::interrupt();
  });
  return has("RoiAlign") && !has("RMSNormalization") && !walked.wasInterrupted();
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
    given = results;
    for (unsigned i = 0; i < results.size(); ++i)
      if (!w.failure() && !function.getResultAttr(i, graph::sizeAttr))
        writeOutput(i, results[i]);
    if (w.failure())
      return tl::unexpected(*w.failure());
    if (isOpset21(function, w.model.graph))
      w.model.writtenOpset = 21;
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
    Shape size = shape;
    if (auto dims = function.getResultAttrOfType<ArrayAttr>(i, graph::dimsAttr))
      whole = ofSize(whole, dims, outputs[i], size);
    rank_files::writeOutput(w, whole, outputs[i], size, element);
  }

  /// Cuts an output that has room for the most that there can be to what there is: the
  /// first of each dim, as many as the result says that is called as the dim is. Compress
  /// has a bound that is known of its operands' shapes, which a Slice has not.
  std::string ofSize(std::string x, ArrayAttr dims, const std::string &output,
                     Shape &shape) {
    std::vector<std::string> &names = w.model.dims[output];
    for (auto [d, name] : llvm::enumerate(dims.getAsRange<StringAttr>())) {
      names.push_back(name.str());
      if (name.empty())
        continue;
      x = w.node("Compress", {x, isThere(name, shape[d])},
                 {{"axis", static_cast<int64_t>(d)}});
      shape[d] = -1;
    }
    return x;
  }

  /// Marks those of so many elements that are in front of a size.
  std::string isThere(StringAttr size, int64_t extent) {
    std::string &mask = there[{size.str(), extent}];
    std::vector<int64_t> places(static_cast<size_t>(extent));
    std::iota(places.begin(), places.end(), 0);
    for (unsigned i = 0; mask.empty() && i < function.getNumResults(); ++i)
      if (function.getResultAttr(i, graph::sizeAttr) &&
          function.getResultAttr(i, "graph.name") == size)
        mask = w.node("Less", {w.ints(places), given[i]});
    return mask;
  }

  func::FuncOp function;
  RankWriter &w;
  const RankStage &stage;
  Names inputs, outputs;
  Names given; ///< the function's results, the rank's parts
  std::map<std::pair<std::string, int64_t>, std::string> there; ///< see isThere
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
  if (auto ok = checkEnds(function, stage); !ok)
    return tl::unexpected(ok.error());
  RankWriter writer(*mesh, rank, dialect, weights);
  return ModelWriter(function, writer, stage).run();
}
