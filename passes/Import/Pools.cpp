//===- Pools.cpp - Import of pools ----------------------------------------===//
#include "passes/Import/Compose.h"
#include "passes/Import/Windows.h"

#include "partita/Reference/Kernels.h"

#include <cmath>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

/// ceil_mode keeps a last window that sticks out at the end, unless it would start in the
/// padding there.
static void applyCeilMode(WindowAttrs &window, const Shape &input) {
  size_t n = window.kernel.size();
  for (size_t d = 0; d < n; ++d) {
    int64_t extent = (window.kernel[d] - 1) * window.dilations[d] + 1;
    int64_t span = input[2 + d] + window.pads[d] + window.pads[n + d] - extent;
    int64_t out = (span + window.strides[d] - 1) / window.strides[d] + 1;
    if ((out - 1) * window.strides[d] >= input[2 + d] + window.pads[d])
      --out;
    window.pads[n + d] += std::max<int64_t>(0, (out - 1) * window.strides[d] - span);
  }
}

/// The node's window, with what ceil_mode adds to the pads.
static Expected<WindowAttrs> poolWindow(const Node &node, const Shape &in) {
  auto kernel = intsAttr(node, "kernel_shape", {});
  if (in.size() < 3 || kernel.size() != in.size() - 2)
    return makeError(node.opType + " of rank " + std::to_string(in.size()));
  WindowAttrs window = windowOf(node, in, kernel);
  if (intAttr(node, "ceil_mode", 0) != 0)
    applyCeilMode(window, in);
  return window;
}

static int64_t positions(const WindowAttrs &window, const Shape &in, size_t d) {
  size_t n = window.kernel.size();
  int64_t extent = (window.kernel[d] - 1) * window.dilations[d] + 1;
  int64_t span = in[2 + d] + window.pads[d] + window.pads[n + d] - extent;
  return span / window.strides[d] + 1;
}

static Expected<Value> pool(Importer &importer, Value input, const WindowAttrs &window,
                            bool isMax, bool countPadding) {
  Shape in = shapeOf(input);
  // One window over the whole image is a reduction, of which every dim may be split.
  if (window.kernel == Shape(in.begin() + 2, in.end()) &&
      window.pads == Shape(window.pads.size(), 0) &&
      window.dilations == Shape(window.dilations.size(), 1))
    return globalPool(importer, input, isMax);
  auto attrs = windowAttrs(importer, window);
  attrs.push_back(importer.attr("window", ArrayRef(window.kernel)));
  attrs.push_back(importer.attr(
      "kind",
      graph::PoolKindAttr::get(importer.builder.getContext(),
                               isMax ? graph::PoolKind::Max : graph::PoolKind::Average)));
  if (!isMax)
    attrs.push_back(
        importer.attr("count_padding", importer.builder.getBoolAttr(countPadding)));
  return importer.emit("graph.pool", input, attrs);
}

/// The average over windows of which some stick out at the end by ceil_mode: the pads of
/// the node count, what ceil_mode adds does not. So it is the average over all taps times
/// their number, divided by the number of those that count, which is a product over dims.
static Expected<Values> averageWithCeil(Importer &importer, const Node &node,
                                        const WindowAttrs &window) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  Shape in = c.shape(x);
  Value y = c.take(pool(importer, x, window, false, true));
  size_t n = window.kernel.size();
  WindowAttrs given = windowOf(node, in, window.kernel);
  for (size_t d = 0; d < n; ++d) {
    std::vector<double> factors;
    int64_t end = in[2 + d] + given.pads[n + d];
    for (int64_t o = 0; o < positions(window, in, d); ++o) {
      int64_t count = 0;
      for (int64_t k = 0; k < window.kernel[d]; ++k)
        count += o * window.strides[d] - window.pads[d] + k * window.dilations[d] < end;
      factors.push_back(static_cast<double>(window.kernel[d]) /
                        static_cast<double>(std::max<int64_t>(1, count)));
    }
    Shape beside(n - d, 1);
    beside[0] = static_cast<int64_t>(factors.size());
    y = c.mul(y, c.tensor(c.type(x), beside, factors));
  }
  return c.results({y});
}

/// The largest element of each window, and its place in the operand, all dims counted:
/// that of the window plus what the tap adds.
static Values largestWithPlaces(Compose &c, Value x, const WindowAttrs &window,
                                bool isColumnMajor) {
  Importer &importer = c.importer;
  Shape in = c.shape(x);
  size_t n = window.kernel.size();
  std::vector<int64_t> weights(n, 1);
  for (size_t d = 0; d < n; ++d)
    for (size_t other = 0; other < n; ++other)
      if (isColumnMajor ? other < d : other > d)
        weights[d] *= in[2 + other];
  auto attrs = windowAttrs(importer, window);
  attrs.push_back(importer.attr("window", ArrayRef(window.kernel)));
  Values found = c.ops("max_pool", 2, x, attrs);
  Shape out = c.shape(found[0]);
  std::vector<double> adds;
  reference::forEachIndex(window.kernel, [&](const Shape &tap) {
    int64_t sum = 0;
    for (size_t d = 0; d < n; ++d)
      sum += (tap[d] * window.dilations[d] - window.pads[d]) * weights[d];
    adds.push_back(static_cast<double>(sum));
  });
  Value place = c.gather(c.tensor(c.i64(), {static_cast<int64_t>(adds.size())}, adds),
                         c.cast(found[1], c.i64()), 0);
  int64_t picture = elementCount(Shape(in.begin() + 2, in.end()));
  for (size_t d = 0; d < out.size(); ++d) {
    int64_t weight = d == 0   ? in[1] * picture
                     : d == 1 ? picture
                              : window.strides[d - 2] * weights[d - 2];
    place = c.add(place, c.mul(c.iota(c.i64(), out[d], d, out.size()),
                               static_cast<double>(weight)));
  }
  return {found[0], place};
}

static Expected<Values> importPool(Importer &importer, const Node &node) {
  Value x = importer.input(node, 0);
  bool isMax = node.opType == "MaxPool";
  for (size_t d : importer.countedDims(x))
    if (d > 1)
      return makeError(importer.countText(x, d) + ", and windows need all of them");
  bool countPadding = intAttr(node, "count_include_pad", 0) != 0;
  auto window = poolWindow(node, shapeOf(x));
  if (!window)
    return tl::unexpected(window.error());
  if (!isMax && countPadding &&
      window->pads != windowOf(node, shapeOf(x), window->kernel).pads)
    return averageWithCeil(importer, node, *window);
  Compose c(importer);
  if (node.outputs.size() > 1)
    return c.results(
        largestWithPlaces(c, x, *window, intAttr(node, "storage_order", 0) != 0));
  return c.results({c.take(pool(importer, x, *window, isMax, countPadding))});
}

/// The elements of a MaxPool back at their places, among zeros. The places count in the
/// result, as those of a MaxPool count in its operand, and so in the shape asked for.
static Expected<Values> importMaxUnpool(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0), places = importer.input(node, 1);
  Shape shape = c.shape(x);
  WindowAttrs window = windowOf(node, shape, intsAttr(node, "kernel_shape", {}));
  size_t n = window.kernel.size();
  if (shape.size() != n + 2)
    return makeError("MaxUnpool of rank " + std::to_string(shape.size()));
  for (size_t d = 0; d < n; ++d)
    shape[2 + d] = (shape[2 + d] - 1) * window.strides[d] + window.kernel[d] -
                   window.pads[d] - window.pads[n + d];
  if (node.hasInput(2)) {
    auto given = importer.constantIntegers(node, 2);
    if (!given)
      return tl::unexpected(given.error());
    if (given->size() != shape.size())
      return makeError("an output_shape of " + std::to_string(given->size()) +
                       " dims for a tensor of " + std::to_string(shape.size()));
    shape = *given;
  }
  int64_t count = elementCount(c.shape(x));
  Value zeros = c.broadcast(c.like(x, 0), {elementCount(shape)});
  Value flat =
      c.op("scatter_elements", {zeros, c.reshape(places, {count}), c.reshape(x, {count})},
           importer.attr("axis", int64_t(0)));
  return c.results({c.reshape(flat, shape)});
}

/// (Σ |x|^p)^(1/p) over a window: the average of all its taps, pads included, times their
/// number.
static Expected<Values> importLpPool(Importer &importer, const Node &node) {
  Compose c(importer);
  auto p = static_cast<double>(intAttr(node, "p", 2));
  Value powers = c.pow(c.op("abs", importer.input(node, 0)), p);
  auto window = poolWindow(node, c.shape(importer.input(node, 0)));
  if (!powers || !window)
    return powers ? tl::unexpected(window.error()) : c.results({});
  double taps = static_cast<double>(elementCount(window->kernel));
  Value average = c.take(pool(importer, powers, *window, false, true));
  return c.results({c.pow(c.mul(average, taps), 1 / p)});
}

static Expected<Values> importGlobalLpPool(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  auto p = static_cast<double>(intAttr(node, "p", 2));
  Value sum = c.sum(c.pow(c.op("abs", x), p), c.dimsFrom(2, x));
  return c.results({c.pow(sum, 1 / p)});
}

void import::addPools(HandlerTable &table) {
  table["MaxPool"] = takesCounts(importPool);
  table["AveragePool"] = takesCounts(importPool);
  table["LpPool"] = importLpPool;
  table["GlobalLpPool"] = takesCounts(importGlobalLpPool);
  table["MaxUnpool"] = importMaxUnpool;
}
