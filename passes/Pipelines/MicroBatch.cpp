//===- MicroBatch.cpp - The program of a part of the batch ----------------===//
#include "passes/Pipelines/MicroBatch.h"

#include "dialects/Comm/Comm.h"
#include "dialects/Dist/ProgramFlow.h"
#include "dialects/Graph/DrawingNodes.h"
#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"
#include "partita/Rule/Sharding/Rows.h"
#include "passes/Pipelines/Pipelines.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <algorithm>
#include <set>

using namespace mlir;
using namespace partita;

namespace {
/// The part is what one of `parts` ranks has of a plan that splits the batch and nothing
/// else: strategies, conversions, partitioning. No rank needs anything of another.
class BatchCutter {
public:
  BatchCutter(Compiler &compiler, int64_t parts)
      : compiler(compiler), module(*compiler.module), parts(parts),
        mesh(*Mesh::create({{"batch", parts}})) {
    if (auto nodes = module->getAttrOfType<ArrayAttr>(drawingNodesAttr))
      for (auto node : nodes.getAsRange<StringAttr>())
        drawing.insert(node.str());
  }

  /// Ops that read constants alone are left as they are where that can be: import has
  /// had its reasons not to fold it. A mask looks up places of a batch, though, and has
  /// the same numbers in every row only once it is computed.
  Expected<void> run(const BatchInterface &batch) {
    OwningOpRef<ModuleOp> before(module.clone());
    auto done = cut(batch);
    if (done)
      return done;
    compiler.module = std::move(before);
    module = *compiler.module;
    for (const std::string &name : fromConstants)
      compiler.weights.erase(name);
    fromConstants.clear();
    return foldConstants() ? cut(batch) : done;
  }

private:
  /// Elements of a result that is folded, and of one that is no weight then.
  static constexpr int64_t maxFolded = 1 << 20, maxConstant = 64;

  Expected<void> cut(const BatchInterface &batch) {
    return mark(batch)
        .and_then([&] {
          return compiler.runPasses(
              "", [](OpPassManager &manager) { buildConversionsPipeline(manager); });
        })
        .and_then([&] { return checkSources(); })
        .and_then([&] { return compiler.runPasses("00-batch", [](OpPassManager &) {}); })
        .and_then([&] { return compiler.runPasses("", buildRanksPipeline); })
        .and_then([&] { return checkAlone(); })
        .and_then([&] {
          takeSources();
          strip();
          return compiler.runPasses("00-micro-batch", buildImportedPipeline);
        });
  }

  /// The numbers of a constant or weight, if they are there.
  std::optional<HostTensor> numbersOf(Value value) const {
    Operation *op = value.getDefiningOp();
    if (auto constant = dyn_cast_or_null<graph::ConstantOp>(op))
      return graph::toHostTensor(constant.getValue());
    auto weight = dyn_cast_or_null<graph::WeightOp>(op);
    if (!weight)
      return std::nullopt;
    const onnx_model::Tensor &tensor = compiler.weights.find(weight.getName())->second;
    return tensor.bytes.empty() ? std::nullopt : std::optional(hostTensor(tensor));
  }

  /// Computes what follows from constants alone and is not large. Whether there was any.
  bool foldConstants() {
    bool found = false;
    auto main = module.lookupSymbol<func::FuncOp>("main");
    for (Operation &op : llvm::make_early_inc_range(main.front().without_terminator())) {
      auto evaluated = dyn_cast<EvaluateOpInterface>(op);
      if (!evaluated || op.getNumOperands() == 0 || op.getNumResults() != 1 ||
          elementCount(shapeOf(op.getResult(0))) > maxFolded)
        continue;
      std::vector<HostTensor> numbers;
      for (Value operand : op.getOperands())
        if (elementCount(shapeOf(operand)) <= maxFolded)
          if (auto known = numbersOf(operand))
            numbers.push_back(std::move(*known));
      if (numbers.size() != op.getNumOperands())
        continue;
      std::vector<const HostTensor *> operands;
      for (const HostTensor &tensor : numbers)
        operands.push_back(&tensor);
      auto results = evaluated.evaluate(operands);
      if (!results)
        continue;
      OpBuilder builder(&op);
      auto value = graph::toAttribute(module.getContext(), results->front());
      Operation *made;
      if (value.isSplat() || value.getNumElements() <= maxConstant)
        made = graph::ConstantOp::create(builder, op.getLoc(), value);
      else
        made = graph::WeightOp::create(
            builder, op.getLoc(), op.getResult(0).getType(),
            builder.getStringAttr(
                addWeight(dist::nodeName(&op), std::move(results->front()))));
      op.replaceAllUsesWith(made);
      op.erase();
      found = true;
    }
    return found;
  }

  /// Writes where the batch goes, as strategies over a mesh of the parts.
  Expected<void> mark(const BatchInterface &batch) {
    auto main = module.lookupSymbol<func::FuncOp>("main");
    module->setAttr(dist::meshAttr, dist::MeshAttr::get(module.getContext(), mesh));
    auto flow = dist::buildFlow(main, mesh, dist::Callees::Inlined);
    if (failed(flow))
      return makeError("the program has an op without a rule");
    FlowGraph &graph = (*flow)->graph;
    graph.finalize();
    BatchEnds ends;
    for (size_t op = 0; op < graph.ops.size(); ++op) {
      const dist::FlowEnd &end = (*flow)->ends[op];
      if (end.op != main)
        continue;
      if (end.kind == dist::FlowEnd::Argument &&
          llvm::is_contained(batch.arguments, end.number))
        ends.carriers.push_back(static_cast<int32_t>(op));
      if (end.kind == dist::FlowEnd::Result &&
          llvm::is_contained(batch.results, end.number))
        ends.sinks.push_back(static_cast<int32_t>(op));
    }
    auto found = partsOfRows(graph, ends);
    if (!found)
      return tl::unexpected(found.error());
    if (found->joined < 0) {
      dist::writeStrategies(main, **flow, found->strategies);
      return {};
    }
    const FlowOp &op = graph.ops[static_cast<size_t>(found->joined)];
    if (op.kind != FlowKind::Sink)
      return meetIn(op.name);
    const FlowValue &value = graph.values[static_cast<size_t>(op.operands[0])];
    return makeError("the first dim of output '" + value.name + "' is not the batch");
  }

  static tl::unexpected<Error> meetIn(const std::string &node) {
    return makeError("in '" + node + "' rows of the batch meet");
  }

  static bool isSplit(const Layout &layout) {
    return layout.localShape() != layout.globalShape();
  }

  /// A constant of which an op reads a part must have the same numbers in every part. One
  /// in the program becomes a weight until then: it could not be taken in parts.
  Expected<void> checkSources() {
    SmallVector<dist::ReshardOp> reads;
    module.walk([&](dist::ReshardOp op) {
      if (isa_and_nonnull<graph::WeightOp, graph::ConstantOp>(
              op.getInput().getDefiningOp()) &&
          isSplit(op.getLayout().getLayout()))
        reads.push_back(op);
    });
    for (dist::ReshardOp read : reads) {
      Operation *source = read.getInput().getDefiningOp();
      if (auto constant = dyn_cast<graph::ConstantOp>(source)) {
        if (constant.getValue().isSplat())
          continue;
        source = asWeight(constant, read);
      }
      auto weight = cast<graph::WeightOp>(source);
      if (auto ok = checkEqual(weight, read); !ok)
        return ok;
    }
    return {};
  }

  graph::WeightOp asWeight(graph::ConstantOp constant, dist::ReshardOp read) {
    HostTensor host = graph::toHostTensor(constant.getValue());
    std::string name = addWeight(dist::nodeName(constant), host);
    fromConstants.insert(name);
    OpBuilder builder(read);
    auto weight = graph::WeightOp::create(builder, constant.getLoc(), constant.getType(),
                                          builder.getStringAttr(name));
    read.getInputMutable().assign(weight.getResult());
    return weight;
  }

  std::string addWeight(const std::string &name, HostTensor host) {
    std::string unique = name;
    for (int i = 2; compiler.weights.count(unique); ++i)
      unique = name + "_" + std::to_string(i);
    auto owner = std::make_shared<std::vector<std::byte>>(std::move(host.bytes));
    compiler.weights.emplace(
        unique, onnx_model::Tensor{unique, host.type, host.shape, "", 0, *owner, owner});
    return unique;
  }

  static HostTensor hostTensor(const onnx_model::Tensor &tensor) {
    HostTensor host{tensor.type, tensor.shape, {}};
    host.bytes.assign(tensor.bytes.begin(), tensor.bytes.end());
    return host;
  }

  Expected<void> checkEqual(graph::WeightOp weight, dist::ReshardOp read) {
    // The number drawn for a row follows from its place, and may be that of another
    // batch.
    bool isDrawn = llvm::all_of(read->getUsers(), [&](Operation *user) {
      return drawing.contains(dist::nodeName(user));
    });
    if (isDrawn)
      return {};
    const onnx_model::Tensor &tensor = compiler.weights.find(weight.getName())->second;
    const std::string where = "'" + shownName(weight) + "', which '" +
                              dist::nodeName(*read->user_begin()) + "' reads,";
    if (tensor.bytes.empty())
      return makeError("constant " + where +
                       " runs over the batch, and its numbers are not there: whether all "
                       "rows have the same cannot be told");
    HostTensor whole = hostTensor(tensor);
    const Layout &layout = read.getLayout().getLayout();
    HostTensor first = extractLocal(mesh, layout, 0, whole);
    for (int64_t part = 1; part < parts; ++part)
      if (extractLocal(mesh, layout, part, whole).bytes != first.bytes)
        return makeError("constant " + where +
                         " has other numbers for other rows of the "
                         "batch");
    return {};
  }

  static std::string shownName(graph::WeightOp weight) {
    SmallVector<StringRef> names = valueNames(weight->getResult(0));
    return names.empty() ? weight.getName().str() : names.front().str();
  }

  Expected<void> checkAlone() {
    Operation *first = nullptr;
    module.walk(
        [&](comm::CommOpInterface op) { first = first ? first : op.getOperation(); });
    return first ? meetIn(dist::nodeName(first)) : Expected<void>();
  }

  /// Weights and constants of which parts are read become these parts.
  void takeSources() {
    std::map<std::pair<std::string, std::string>, std::string> taken;
    SmallVector<graph::WeightOp> all;
    module.walk([&](graph::WeightOp op) { all.push_back(op); });
    for (graph::WeightOp weight : all) {
      auto layout = weight->getAttrOfType<dist::LayoutAttr>(dist::layoutAttr);
      if (!layout || !isSplit(layout.getLayout()))
        continue;
      const std::string name = weight.getName().str();
      HostTensor part = extractLocal(mesh, layout.getLayout(), 0,
                                     hostTensor(compiler.weights.find(name)->second));
      OpBuilder builder(weight);
      if (fromConstants.contains(name)) {
        auto constant = graph::ConstantOp::create(
            builder, weight.getLoc(), graph::toAttribute(module.getContext(), part));
        weight.replaceAllUsesWith(constant.getResult());
        weight.erase();
        continue;
      }
      std::string &now = taken[{name, layout.getLayout().str(mesh)}];
      if (now.empty())
        now = addWeight(name + "/rows", std::move(part));
      weight.setName(now);
    }
    for (const std::string &name : fromConstants)
      compiler.weights.erase(name);
  }

  /// Nothing says any more that it was a plan.
  void strip() {
    module->removeAttr(dist::meshAttr);
    module.walk([&](Operation *op) {
      SmallVector<StringAttr> names;
      for (NamedAttribute attr : op->getDiscardableAttrs())
        if (attr.getName().getValue().starts_with("dist.") && attr.getName() != phaseAttr)
          names.push_back(attr.getName());
      for (StringAttr name : names)
        op->removeDiscardableAttr(name);
      if (auto function = dyn_cast<func::FuncOp>(op)) {
        auto layout = StringAttr::get(function.getContext(), dist::layoutAttr);
        for (unsigned i = 0; i < function.getNumArguments(); ++i)
          function.removeArgAttr(i, layout);
        for (unsigned i = 0; i < function.getNumResults(); ++i)
          function.removeResultAttr(i, layout);
      }
    });
  }

  Compiler &compiler;
  ModuleOp module;
  int64_t parts;
  Mesh mesh;
  std::set<std::string> drawing;                    ///< nodes that draw random numbers
  std::set<std::string, std::less<>> fromConstants; ///< weights for a time
};
} // namespace

Expected<void> partita::takeMicroBatch(Compiler &compiler, const BatchInterface &batch,
                                       int64_t parts) {
  return parts == 1 ? Expected<void>() : BatchCutter(compiler, parts).run(batch);
}
