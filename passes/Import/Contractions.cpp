//===- Contractions.cpp - Import of matrix products and convolutions ------===//
#include "passes/Import/Importer.h"

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

static Expected<Value> contract(Importer &importer, Value lhs, Value rhs,
                                const Equation &equation) {
  auto attr = graph::EquationAttr::get(importer.builder.getContext(), equation);
  return importer.emit("graph.contract", {lhs, rhs}, importer.attr("equation", attr));
}

/// "b0 b1 m k": batch dims aligned at the end, a dim of 1 broadcasts; then `last`.
static Equation::Tensor matrixDims(const Shape &shape, size_t batch, size_t rank,
                                   std::initializer_list<const char *> last) {
  Equation::Tensor dims(batch);
  for (size_t d = 0; d < batch; ++d)
    if (shape[d] != 1)
      dims[d].push_back("b" + std::to_string(rank - batch + d));
  for (const char *name : last)
    if (*name)
      dims.push_back({name});
  return dims;
}

static Expected<Values> importMatMul(Importer &importer, const Node &node) {
  Value lhs = importer.input(node, 0), rhs = importer.input(node, 1);
  Shape a = shapeOf(lhs), b = shapeOf(rhs);
  if (a.empty() || b.empty())
    return makeError("MatMul of a scalar");
  size_t batchA = a.size() < 2 ? 0 : a.size() - 2,
         batchB = b.size() < 2 ? 0 : b.size() - 2;
  size_t batch = std::max(batchA, batchB);
  auto shape =
      broadcastShapes({Shape(a.begin(), a.begin() + static_cast<int64_t>(batchA)),
                       Shape(b.begin(), b.begin() + static_cast<int64_t>(batchB))});
  if (!shape)
    return tl::unexpected(shape.error());
  // A vector has no dim of its own in the result.
  const char *m = a.size() == 1 ? "" : "m", *n = b.size() == 1 ? "" : "n";
  Equation equation{
      {matrixDims(a, batchA, batch, {m, "k"}), matrixDims(b, batchB, batch, {"k", n})},
      {matrixDims(*shape, batch, batch, {m, n})}};
  return single(contract(importer, lhs, rhs, equation));
}

static Expected<Values> importGemm(Importer &importer, const Node &node) {
  bool transA = intAttr(node, "transA", 0) != 0, transB = intAttr(node, "transB", 0) != 0;
  Equation equation{{{{"m"}, {"k"}}, {{"k"}, {"n"}}}, {{{"m"}, {"n"}}}};
  if (transA)
    std::swap(equation.operands[0][0], equation.operands[0][1]);
  if (transB)
    std::swap(equation.operands[1][0], equation.operands[1][1]);
  auto result =
      contract(importer, importer.input(node, 0), importer.input(node, 1), equation);
  auto scale = [&](Expected<Value> value, double factor) -> Expected<Value> {
    if (!value || factor == 1)
      return value;
    Type element = getElementTypeOrSelf(value->getType());
    return importer.emit("graph.mul", {*value, importer.scalar(element, factor)});
  };
  result = scale(result, floatAttr(node, "alpha", 1));
  if (!result || !node.hasInput(2))
    return single(result);
  auto bias = scale(importer.input(node, 2), floatAttr(node, "beta", 1));
  if (!bias)
    return single(bias);
  return single(importer.emit("graph.add", {*result, *bias}));
}

namespace {
/// Strides, dilations and pads of a window op, with SAME_* padding resolved.
struct WindowAttrs {
  std::vector<int64_t> kernel, strides, dilations, pads;
};
} // namespace

static WindowAttrs windowOf(const Node &node, const Shape &input, Shape kernel) {
  size_t n = input.size() - 2;
  WindowAttrs window;
  window.kernel = std::move(kernel);
  window.strides = intsAttr(node, "strides", std::vector<int64_t>(n, 1));
  window.dilations = intsAttr(node, "dilations", std::vector<int64_t>(n, 1));
  window.pads = intsAttr(node, "pads", std::vector<int64_t>(2 * n, 0));
  std::string autoPad = stringAttr(node, "auto_pad", "NOTSET");
  if (autoPad != "SAME_UPPER" && autoPad != "SAME_LOWER")
    return window;
  window.pads.assign(2 * n, 0);
  for (size_t d = 0; d < n; ++d) {
    int64_t out = (input[2 + d] + window.strides[d] - 1) / window.strides[d];
    int64_t extent = (window.kernel[d] - 1) * window.dilations[d] + 1;
    int64_t total =
        std::max<int64_t>(0, (out - 1) * window.strides[d] + extent - input[2 + d]);
    window.pads[d] = autoPad == "SAME_LOWER" ? total - total / 2 : total / 2;
    window.pads[n + d] = total - window.pads[d];
  }
  return window;
}

static SmallVector<NamedAttribute> windowAttrs(const Importer &importer,
                                               const WindowAttrs &window) {
  return {importer.attr("strides", ArrayRef(window.strides)),
          importer.attr("dilations", ArrayRef(window.dilations)),
          importer.attr("pads", ArrayRef(window.pads))};
}

static Expected<Values> importConv(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0), filter = importer.input(node, 1);
  Shape in = shapeOf(input), weights = shapeOf(filter);
  if (in.size() < 3 || weights.size() != in.size())
    return makeError("Conv of rank " + std::to_string(in.size()));
  WindowAttrs window = windowOf(node, in, Shape(weights.begin() + 2, weights.end()));
  auto attrs = windowAttrs(importer, window);
  attrs.push_back(importer.attr("group", intAttr(node, "group", 1)));
  Values operands{input, filter};
  if (node.hasInput(2))
    operands.push_back(importer.input(node, 2));
  return single(importer.emit("graph.conv", operands, attrs));
}

static Expected<Values> importConvTranspose(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0), filter = importer.input(node, 1);
  Shape in = shapeOf(input), weights = shapeOf(filter);
  if (in.size() < 3 || weights.size() != in.size())
    return makeError("ConvTranspose of rank " + std::to_string(in.size()));
  size_t n = in.size() - 2;
  if (stringAttr(node, "auto_pad", "NOTSET") != "NOTSET")
    return makeError("ConvTranspose with auto_pad");
  WindowAttrs window = windowOf(node, in, Shape(weights.begin() + 2, weights.end()));
  auto outputPadding = intsAttr(node, "output_padding", std::vector<int64_t>(n, 0));
  if (const auto *shape = node.attribute<std::vector<int64_t>>("output_shape")) {
    // The total padding follows from the shape asked for; the larger half goes low. What
    // the windows do not reach is padding of the output.
    for (size_t d = 0; d < n; ++d) {
      int64_t total = window.strides[d] * (in[2 + d] - 1) + outputPadding[d] +
                      (window.kernel[d] - 1) * window.dilations[d] + 1 -
                      (*shape)[shape->size() - n + d];
      outputPadding[d] += std::max<int64_t>(-total, 0);
      total = std::max<int64_t>(total, 0);
      window.pads[d] = total - total / 2;
      window.pads[n + d] = total / 2;
    }
  }
  auto attrs = windowAttrs(importer, window);
  attrs.push_back(importer.attr("output_padding", ArrayRef(outputPadding)));
  attrs.push_back(importer.attr("group", intAttr(node, "group", 1)));
  Values operands{input, filter};
  if (node.hasInput(2))
    operands.push_back(importer.input(node, 2));
  return single(importer.emit("graph.conv_transpose", operands, attrs));
}

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

static Expected<Values> importPool(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0);
  Shape in = shapeOf(input);
  auto kernel = intsAttr(node, "kernel_shape", {});
  if (in.size() < 3 || kernel.size() != in.size() - 2)
    return makeError(node.opType + " of rank " + std::to_string(in.size()));
  if (node.outputs.size() > 1)
    return makeError("MaxPool with indices as output");
  WindowAttrs window = windowOf(node, in, kernel);
  bool isMax = node.opType == "MaxPool";
  bool countPadding = intAttr(node, "count_include_pad", 0) != 0;
  if (intAttr(node, "ceil_mode", 0) != 0) {
    WindowAttrs before = window;
    applyCeilMode(window, in);
    // What ceil_mode adds never counts in an average; padding that does cannot be told
    // apart from it afterwards.
    if (!isMax && countPadding && window.pads != before.pads)
      return makeError("AveragePool with ceil_mode and count_include_pad");
  }
  // One window over the whole image is a reduction, of which every dim may be split.
  if (kernel == Shape(in.begin() + 2, in.end()) &&
      window.pads == Shape(window.pads.size(), 0) &&
      window.dilations == Shape(window.dilations.size(), 1))
    return single(globalPool(importer, input, isMax));
  auto attrs = windowAttrs(importer, window);
  attrs.push_back(importer.attr("window", ArrayRef(kernel)));
  attrs.push_back(importer.attr(
      "kind",
      graph::PoolKindAttr::get(importer.builder.getContext(),
                               isMax ? graph::PoolKind::Max : graph::PoolKind::Average)));
  if (!isMax)
    attrs.push_back(
        importer.attr("count_padding", importer.builder.getBoolAttr(countPadding)));
  return single(importer.emit("graph.pool", input, attrs));
}

/// y = x · s + b with s = scale / sqrt(var + epsilon), b = bias - mean · s, both folded
/// when the parameters are constants.
static Expected<Values> importBatchNorm(Importer &importer, const Node &node) {
  if (node.outputs.size() > 1 || intAttr(node, "training_mode", 0) != 0)
    return makeError("BatchNormalization in training mode");
  Value x = importer.input(node, 0), scale = importer.input(node, 1);
  Value bias = importer.input(node, 2), mean = importer.input(node, 3);
  Value variance = importer.input(node, 4);
  Type element = getElementTypeOrSelf(variance.getType());
  Expected<Value> current = importer.emit(
      "graph.add",
      {variance, importer.scalar(element, floatAttr(node, "epsilon", 1e-5))});
  auto then = [&](StringRef op, auto operands) {
    if (current)
      current = importer.emit(op, operands(*current));
    return current;
  };
  then("graph.sqrt", [&](Value v) { return Values{v}; });
  auto s = then("graph.div", [&](Value v) { return Values{scale, v}; });
  then("graph.mul", [&](Value v) { return Values{mean, v}; });
  auto b = then("graph.sub", [&](Value v) { return Values{bias, v}; });
  if (!b)
    return single(b);
  Shape perChannel(shapeOf(x).size() - 1, 1);
  perChannel[0] = shapeOf(scale)[0];
  auto s2 = importer.reshape(*s, perChannel), b2 = importer.reshape(*b, perChannel);
  if (!s2 || !b2)
    return single(!s2 ? s2 : b2);
  auto scaled = importer.emit("graph.mul", {x, *s2});
  return single(scaled ? importer.emit("graph.add", {*scaled, *b2}) : scaled);
}

void import::addContractions(HandlerTable &table) {
  table["MatMul"] = importMatMul;
  table["Gemm"] = importGemm;
  table["Conv"] = importConv;
  table["ConvTranspose"] = importConvTranspose;
  table["MaxPool"] = importPool;
  table["AveragePool"] = importPool;
  table["BatchNormalization"] = importBatchNorm;
}
