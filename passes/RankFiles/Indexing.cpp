//===- Indexing.cpp - Lookups and sorts as ONNX nodes ---------------------===//
//
// The masked forms, which one rank of several runs, have an index of −1 for what another
// rank has: a lookup gives zero there, and a write goes to a place behind the data that
// is cut off again.
//
//===----------------------------------------------------------------------===//
#include "passes/RankFiles/RankWriter.h"

#include "partita/Reference/Kernels.h"

using namespace mlir;
using namespace partita;
using namespace partita::rank_files;

/// Indices in a type that GatherND has, which is one alone.
static std::string wide(RankWriter &w, Value indices, const std::string &name) {
  return typeOf(indices) == DType::I64 ? name : w.castTo(name, DType::I64);
}

/// An index that exists, and whether it is the one that was asked for.
static std::pair<std::string, std::string> existing(RankWriter &w, Value indices) {
  const DType type = typeOf(indices);
  std::string zero = w.scalar(type, 0);
  return {w.node("Max", {w.name(indices), zero}),
          w.node("GreaterOrEqual", {w.name(indices), zero})};
}

static std::string zeroOf(RankWriter &w, Value value) {
  return w.common(HostTensor::zeros(typeOf(value), {}));
}

/// Keeps what was looked up, and has zero where `isThere` says that an element is another
/// rank's. The indices' dims are `indexDims` of the result, from `first` on.
static std::string onlyThere(RankWriter &w, Operation *op, const std::string &found,
                             const std::string &isThere, size_t first, size_t indexDims) {
  Shape shape = shapeOf(op->getResult(0));
  Shape mask(shape.size(), 1);
  for (size_t d = first; d < first + indexDims; ++d)
    mask[d] = shape[d];
  return w.where(w.reshape(isThere, mask), found, zeroOf(w, op->getResult(0)));
}

static void writeGather(RankWriter &w, Operation *op) {
  auto gather = cast<graph::GatherOp>(op);
  const int64_t axis = fromFront(gather.getAxis(), gather.getData());
  const std::string data = w.name(gather.getData());
  auto lookup = [&](const std::string &indices) {
    return w.node("Gather", {data, indices}, {{"axis", axis}});
  };
  if (!gather.getMasked())
    return w.define(op->getResult(0), lookup(w.name(gather.getIndices())));
  auto [indices, isThere] = existing(w, gather.getIndices());
  w.define(op->getResult(0),
           onlyThere(w, op, lookup(indices), isThere, static_cast<size_t>(axis),
                     shapeOf(gather.getIndices()).size()));
}

static void writeGatherND(RankWriter &w, Operation *op) {
  auto gather = cast<graph::GatherNDOp>(op);
  const std::string data = w.name(gather.getData());
  auto lookup = [&](const std::string &indices) {
    return w.node("GatherND", {data, wide(w, gather.getIndices(), indices)},
                  {{"batch_dims", static_cast<int64_t>(gather.getBatchDims())}});
  };
  if (!gather.getMasked())
    return w.define(op->getResult(0), lookup(w.name(gather.getIndices())));
  auto [indices, isThere] = existing(w, gather.getIndices());
  // Indices of one component: their last dim is 1 long.
  w.define(op->getResult(0), onlyThere(w, op, lookup(indices), isThere, 0,
                                       shapeOf(gather.getIndices()).size() - 1));
}

static void writeGatherElements(RankWriter &w, Operation *op) {
  auto gather = cast<graph::GatherElementsOp>(op);
  Attributes axis{{"axis", static_cast<int64_t>(gather.getAxis())}};
  const std::string data = w.name(gather.getData());
  if (!gather.getMasked())
    return w.define(op->getResult(0),
                    w.node("GatherElements", {data, w.name(gather.getIndices())}, axis));
  auto [indices, isThere] = existing(w, gather.getIndices());
  w.define(op->getResult(0),
           w.where(isThere, w.node("GatherElements", {data, indices}, axis),
                   zeroOf(w, op->getResult(0))));
}

static std::string reductionOf(std::optional<ReduceKind> kind) {
  if (!kind)
    return "none";
  switch (*kind) {
  case ReduceKind::Sum:
    return "add";
  case ReduceKind::Max:
    return "max";
  case ReduceKind::Min:
    return "min";
  case ReduceKind::Prod:
    return "mul";
  }
  return "";
}

static void writeScatterElements(RankWriter &w, Operation *op) {
  auto scatter = cast<graph::ScatterElementsOp>(op);
  const int64_t axis = fromFront(scatter.getAxis(), scatter.getData());
  Shape shape = shapeOf(scatter.getData());
  const int64_t extent = shape[static_cast<size_t>(axis)];
  std::string data = w.name(scatter.getData()), indices = w.name(scatter.getIndices());
  if (scatter.getMasked()) {
    std::vector<int64_t> behind(shape.size(), 0);
    behind[static_cast<size_t>(axis)] = 1;
    data = w.padBehind(data, behind, zeroOf(w, scatter.getData()));
    const DType type = typeOf(scatter.getIndices());
    indices = w.where(w.node("Less", {indices, w.scalar(type, 0)}),
                      w.scalar(type, static_cast<double>(extent)), indices);
  }
  std::optional<ReduceKind> kind;
  if (auto given = scatter.getKind())
    kind = *given;
  std::string result =
      w.node("ScatterElements", {data, indices, w.name(scatter.getUpdates())},
             {{"axis", axis}, {"reduction", reductionOf(kind)}});
  w.define(op->getResult(0),
           scatter.getMasked() ? w.slice(result, axis, 0, extent) : result);
}

/// The first `count`, and zeros behind them.
static void writeSort(RankWriter &w, Operation *op) {
  auto sort = cast<graph::SortOp>(op);
  const int64_t axis = fromFront(sort.getAxis(), sort.getInput());
  const auto count = static_cast<int64_t>(sort.getCount());
  Names found = w.nodes("TopK", 2, {w.name(sort.getInput()), w.ints({count})},
                        {{"axis", axis},
                         {"largest", int64_t(sort.getDescending())},
                         {"sorted", int64_t(1)}});
  Shape shape = shapeOf(sort.getInput());
  std::vector<int64_t> behind(shape.size(), 0);
  behind[static_cast<size_t>(axis)] = shape[static_cast<size_t>(axis)] - count;
  for (unsigned i = 0; i < 2; ++i) {
    const bool isWhole = behind[static_cast<size_t>(axis)] == 0;
    w.define(op->getResult(i),
             isWhole ? found[i]
                     : w.padBehind(found[i], behind, zeroOf(w, op->getResult(i))));
  }
}

/// Steps with every row in every tree, [trees, rows]: from node `at` to the one behind
/// where the row's feature is more than the split, or NaN that is not led back.
static std::string nextNodes(RankWriter &w, graph::TreesOp trees,
                             const std::string &columns, const std::string &at) {
  auto ofNode = [&](Value table) {
    return w.node("GatherElements", {w.name(table), at}, {{"axis", int64_t(1)}});
  };
  std::string feature = ofNode(trees.getFeatures());
  std::string goesBack = w.node("Less", {feature, w.scalar(DType::I32, 0)});
  feature = w.where(goesBack, w.node("BitwiseNot", {feature}), feature);
  std::string x = w.node("GatherElements", {columns, feature}, {{"axis", int64_t(0)}});
  std::string isMore = w.node("Greater", {x, ofNode(trees.getSplits())});
  std::string isLost = w.node("And", {w.node("IsNaN", {x}), w.node("Not", {goesBack})});
  std::string step = w.castTo(w.node("Or", {isMore, isLost}), DType::I32);
  return w.node("Add", {ofNode(trees.getChildren()), step});
}

/// Written by steps and not as a TreeEnsemble, whose trees are attributes: each rank may
/// have trees of its own, and the files of all ranks have the same nodes.
static void writeTrees(RankWriter &w, Operation *op) {
  auto trees = cast<graph::TreesOp>(op);
  const Shape shape = shapeOf(op->getResult(0));
  std::string columns = w.transpose(w.name(trees.getRows()), {1, 0});
  std::string at = w.node("Expand", {w.common(HostTensor::zeros(DType::I32, {})),
                                     w.ints({shape[0], shape[1]})});
  for (uint64_t step = 0; step < trees.getDepth(); ++step)
    at = nextNodes(w, trees, columns, at);
  std::string places = w.node("Unsqueeze", {w.castTo(at, DType::I64), w.ints({2})});
  w.define(op->getResult(0), w.node("GatherND", {w.name(trees.getWeights()), places},
                                    {{"batch_dims", int64_t(1)}}));
}

void rank_files::addIndexing(WriterTable &table) {
  table[graph::GatherOp::getOperationName()] = writeGather;
  table[graph::GatherNDOp::getOperationName()] = writeGatherND;
  table[graph::GatherElementsOp::getOperationName()] = writeGatherElements;
  table[graph::ScatterElementsOp::getOperationName()] = writeScatterElements;
  table[graph::TreesOp::getOperationName()] = writeTrees;
  table[graph::SortOp::getOperationName()] = writeSort;
}
