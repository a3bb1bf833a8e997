//===- Reductions.cpp - Import of reductions and normalizations -----------===//
#include "passes/Import/Compose.h"

#include <algorithm>
#include <numeric>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

static Expected<Value> reduce(Importer &importer, Value input, ReduceKind kind,
                              ArrayRef<int64_t> axes, bool keepDims) {
  return importer.emit(
      "graph.reduce", input,
      {importer.attr("kind",
                     graph::ReduceKindAttr::get(importer.builder.getContext(), kind)),
       importer.attr("axes", axes),
       importer.attr("keep_dims", importer.builder.getBoolAttr(keepDims))});
}

/// A mean is the sum divided by the global count; of dims that have one, by theirs. Of no
/// elements it is 0, as in ONNX Runtime; ONNX leaves it open.
static Expected<Value> mean(Importer &importer, Value input, ArrayRef<int64_t> axes,
                            bool keepDims) {
  Shape shape = shapeOf(input);
  Compose c(importer);
  Type element = c.type(input);
  Value there; // of the dims that have a count
  int64_t count = 1;
  for (int64_t axis : axes) {
    auto normal = normalizeAxis(axis, shape.size());
    if (!normal)
      return tl::unexpected(normal.error());
    auto d = static_cast<size_t>(*normal);
    if (Value own = importer.countOf(input, d))
      there = there ? c.mul(there, own) : own;
    else
      count *= shape[d];
  }
  auto sum = reduce(importer, input, ReduceKind::Sum, axes, keepDims);
  if (!sum)
    return sum;
  Value divisor = c.scalar(element, static_cast<double>(std::max<int64_t>(count, 1)));
  if (there)
    divisor = c.mul(divisor, c.cast(c.max(there, 1), element));
  Value mean = c.div(*sum, divisor);
  return c.failed() ? tl::unexpected(c.results({}).error()) : Expected<Value>(mean);
}

static Expected<Values> importReduce(Importer &importer, const Node &node) {
  static const llvm::StringMap<ReduceKind> kinds = {{"ReduceSum", ReduceKind::Sum},
                                                    {"ReduceMax", ReduceKind::Max},
                                                    {"ReduceMin", ReduceKind::Min},
                                                    {"ReduceProd", ReduceKind::Prod}};
  Value input = importer.input(node, 0);
  std::vector<int64_t> axes;
  if (node.hasInput(1)) {
    auto given = importer.constantIntegers(node, 1);
    if (!given)
      return tl::unexpected(given.error());
    axes = std::move(*given);
  }
  if (axes.empty()) {
    axes.resize(shapeOf(input).size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  bool keepDims = intAttr(node, "keepdims", 1) != 0;
  if (node.opType == "ReduceMean")
    return single(mean(importer, input, axes, keepDims));
  return single(reduce(importer, input, kinds.lookup(node.opType), axes, keepDims));
}

Expected<Value> import::globalPool(Importer &importer, Value input, bool isMax) {
  std::vector<int64_t> axes(shapeOf(input).size() - 2);
  std::iota(axes.begin(), axes.end(), 2);
  return isMax ? reduce(importer, input, ReduceKind::Max, axes, true)
               : mean(importer, input, axes, true);
}

static Expected<Values> importGlobalPool(Importer &importer, const Node &node) {
  return single(
      globalPool(importer, importer.input(node, 0), node.opType == "GlobalMaxPool"));
}

/// Behind a count stand −∞, of which the exponential is 0.
static Expected<Values> importSoftmax(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  size_t axis = c.axis(intAttr(node, "axis", -1), x);
  Value count = c.failed() ? Value() : importer.countOf(x, axis);
  if (count)
    x = c.take(importer.whole(x, axis, ReduceKind::Max));
  Value y = c.op(node.opType == "Softmax" ? "softmax" : "log_softmax", x,
                 importer.attr("axis", static_cast<int64_t>(axis)));
  if (y && count)
    importer.setCount(y, axis, count);
  return c.results({y});
}

/// By elimination: the row with the largest element of the first column goes to the top,
/// which turns the sign unless it is there, and is taken off the others.
static Expected<Values> importDet(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  Shape shape = c.shape(x);
  size_t row = shape.size() - 2, column = shape.size() - 1;
  if (shape.size() < 2 || shape[row] != shape[column])
    return makeError("Det of matrices that are not square");
  constexpr int64_t most = 64;
  if (shape[row] > most)
    return makeError("Det of matrices of more than " + std::to_string(most) + " rows");
  Value product = c.like(x, 1);
  auto rows = static_cast<int64_t>(row);
  for (int64_t size = shape[row]; size > 1 && !c.failed(); --size) {
    Value first = c.slice(x, column, 0, 1), length = c.op("abs", first);
    Value places = c.iota(c.i64(), size, row, shape.size());
    Value isLargest = c.equal(length, c.reduce(ReduceKind::Max, length, {rows}));
    Value none = c.like(places, static_cast<double>(size - 1));
    Value at = c.reduce(ReduceKind::Min, c.select(isLargest, places, none), {rows});
    Value isPivot = c.equal(places, at);
    Value pivotRow = c.sum(c.select(isPivot, x, c.like(x, 0)), {rows});
    Value pivot = c.slice(pivotRow, column, 0, 1);
    Value sign = c.select(c.equal(at, 0), c.like(x, 1), c.like(x, -1));
    product = c.mul(product, c.mul(pivot, sign));
    Value exchanged = c.select(isPivot, c.slice(x, row, 0, 1), x);
    Value rest = c.slice(exchanged, row, 1, size);
    // Under a pivot of 0 the column is 0 and the product is, whatever the rest.
    Value divisor = c.select(c.equal(pivot, 0), c.like(pivot, 1), pivot);
    Value factor = c.div(c.slice(rest, column, 0, 1), divisor);
    x = c.sub(c.slice(rest, column, 1, size),
              c.mul(factor, c.slice(pivotRow, column, 1, size)));
  }
  product = c.mul(product, x);
  return c.results({c.reshape(product, Shape(shape.begin(), shape.end() - 2))});
}

void import::addReductions(HandlerTable &table) {
  table["Det"] = importDet;
  for (const char *name :
       {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"})
    table[name] = takesCounts(importReduce);
  table["GlobalAveragePool"] = takesCounts(importGlobalPool);
  table["GlobalMaxPool"] = takesCounts(importGlobalPool);
  table["Softmax"] = takesCounts(importSoftmax);
  table["LogSoftmax"] = takesCounts(importSoftmax);
}
