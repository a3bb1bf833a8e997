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
    return w.node("GatherND", {data, indices},
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

void rank_files::addIndexing(WriterTable &table) {
  table[graph::GatherOp::getOperationName()] = writeGather;
  table[graph::GatherNDOp::getOperationName()] = writeGatherND;
  table[graph::GatherElementsOp::getOperationName()] = writeGatherElements;
  table[graph::ScatterElementsOp::getOperationName()] = writeScatterElements;
  table[graph::SortOp::getOperationName()] = writeSort;
}
