//===- Contractions.cpp - Import of matrix products and convolutions ------===//
#include "passes/Import/BlockWeights.h"
#include "passes/Import/Windows.h"

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

static Expected<Value> contract(Importer &importer, Value lhs, Value rhs,
                                const Equation &equation, Type sums = {}) {
  auto attr = graph::EquationAttr::get(importer.builder.getContext(), equation);
  SmallVector<NamedAttribute> attrs{importer.attr("equation", attr)};
  if (sums)
    attrs.push_back(importer.attr("sums", TypeAttr::get(sums)));
  return importer.emit("graph.contract", {lhs, rhs}, attrs);
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

Expected<Value> import::matMul(Importer &importer, Value lhs, Value rhs, Type sums) {
  if (!lhs || !rhs)
    return Value();
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
  return contract(importer, lhs, rhs, equation, sums);
}

static Expected<Values> importMatMul(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  if (auto weight = dequantizedWeight(c, node, x, false))
    return c.results({blockProduct(c, x, *weight)});
  return single(matMul(importer, x, importer.input(node, 1)));
}

static Expected<Values> importGemm(Importer &importer, const Node &node) {
  bool transA = intAttr(node, "transA", 0) != 0, transB = intAttr(node, "transB", 0) != 0;
  Equation equation{{{{"m"}, {"k"}}, {{"k"}, {"n"}}}, {{{"m"}, {"n"}}}};
  if (transA)
    std::swap(equation.operands[0][0], equation.operands[0][1]);
  if (transB)
    std::swap(equation.operands[1][0], equation.operands[1][1]);
  Compose c(importer);
  Value x = importer.input(node, 0);
  auto weight = transA ? std::nullopt : dequantizedWeight(c, node, x, transB);
  auto result = weight ? Expected<Value>(blockProduct(c, x, *weight))
                       : contract(importer, x, importer.input(node, 1), equation);
  if (c.failed())
    return c.results({});
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

WindowAttrs import::windowOf(const Node &node, const Shape &input, Shape kernel) {
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

SmallVector<NamedAttribute> import::windowAttrs(const Importer &importer,
                                                const WindowAttrs &window) {
  return {importer.attr("strides", ArrayRef(window.strides)),
          importer.attr("dilations", ArrayRef(window.dilations)),
          importer.attr("pads", ArrayRef(window.pads))};
}

static Expected<Value> convolution(Importer &importer, const Node &node,
                                   const Values &operands) {
  Value input = operands[0], filter = operands[1];
  Shape in = shapeOf(input), weights = shapeOf(filter);
  if (in.size() < 3 || weights.size() != in.size())
    return makeError("Conv of rank " + std::to_string(in.size()));
  WindowAttrs window = windowOf(node, in, Shape(weights.begin() + 2, weights.end()));
  auto attrs = windowAttrs(importer, window);
  attrs.push_back(importer.attr("group", intAttr(node, "group", 1)));
  return importer.emit("graph.conv", operands, attrs);
}

Expected<Value> import::convolution(Importer &importer, const Node &node, Value input,
                                    Value filter) {
  if (!input || !filter)
    return Value();
  return ::convolution(importer, node, Values{input, filter});
}

static Expected<Values> importConv(Importer &importer, const Node &node) {
  Values operands{importer.input(node, 0), importer.input(node, 1)};
  if (node.hasInput(2))
    operands.push_back(importer.input(node, 2));
  return single(::convolution(importer, node, operands));
}

static Expected<Values> importConvTranspose(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0), filter = importer.input(node, 1);
  Shape in = shapeOf(input), weights = shapeOf(filter);
  if (in.size() < 3 || weights.size() != in.size())
    return makeError("ConvTranspose of rank " + std::to_string(in.size()));
  size_t n = in.size() - 2;
  WindowAttrs window = windowOf(node, in, Shape(weights.begin() + 2, weights.end()));
  if (llvm::any_of(window.pads, [](int64_t pad) { return pad < 0; }))
    return makeError("ConvTranspose with a negative pad, which ONNX does not have");
  auto outputPadding = intsAttr(node, "output_padding", std::vector<int64_t>(n, 0));
  std::string autoPad = stringAttr(node, "auto_pad", "NOTSET");
  const auto *shape = node.attribute<std::vector<int64_t>>("output_shape");
  bool isSame = autoPad == "SAME_UPPER" || autoPad == "SAME_LOWER";
  // The total padding follows from the shape asked for, of SAME_* the operand's times the
  // stride; the larger half goes low, but for SAME_UPPER. What the windows do not reach
  // is padding of the output.
  for (size_t d = 0; d < n && (shape || isSame); ++d) {
    int64_t wanted =
        shape ? (*shape)[shape->size() - n + d] : in[2 + d] * window.strides[d];
    int64_t total = window.strides[d] * (in[2 + d] - 1) + outputPadding[d] +
                    (window.kernel[d] - 1) * window.dilations[d] + 1 - wanted;
    outputPadding[d] += std::max<int64_t>(-total, 0);
    total = std::max<int64_t>(total, 0);
    window.pads[d] = autoPad == "SAME_UPPER" ? total / 2 : total - total / 2;
    window.pads[n + d] = total - window.pads[d];
  }
  auto attrs = windowAttrs(importer, window);
  attrs.push_back(importer.attr("output_padding", ArrayRef(outputPadding)));
  attrs.push_back(importer.attr("group", intAttr(node, "group", 1)));
  Values operands{input, filter};
  if (node.hasInput(2))
    operands.push_back(importer.input(node, 2));
  return single(importer.emit("graph.conv_transpose", operands, attrs));
}

void import::addContractions(HandlerTable &table) {
  table["MatMul"] = takesCounts(importMatMul);
  table["Gemm"] = takesCounts(importGemm);
  table["Conv"] = takesCounts(importConv);
  table["ConvTranspose"] = takesCounts(importConvTranspose);
}
