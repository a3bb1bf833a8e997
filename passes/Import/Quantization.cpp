//===- Quantization.cpp - Import of quantized numbers and their products --===//
#include "passes/Import/Quantization.h"

#include "partita/Reference/Kernels.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

Value import::beside(Compose &c, Value parameter, const Shape &shape, int64_t axis,
                     int64_t block) {
  Shape own = c.shape(parameter);
  if (!parameter || elementCount(own) == 1)
    return c.reshape(parameter, {});
  auto normal = normalizeAxis(axis, shape.size());
  if (!normal)
    return c.fail(normal.error().message);
  auto d = static_cast<size_t>(*normal);
  if (block == 0) {
    Shape one(shape.size() - d, 1);
    one[0] = own[0];
    return c.reshape(parameter, one);
  }
  // Each element of the axis `block` times, the last ones of a rest not.
  Shape split = own, wide;
  split.insert(split.begin() + static_cast<int64_t>(d) + 1, 1);
  wide = split;
  wide[d + 1] = block;
  Shape joined = own;
  joined[d] *= block;
  Value all = c.reshape(c.broadcast(c.reshape(parameter, split), wide), joined);
  return c.slice(all, d, 0, shape[d]);
}

/// A scale or zero point of a product: one for all, one per row or column (`axis`), or of
/// as many dims as the operand, of which that dim is whole.
static Value besideProduct(Compose &c, Value parameter, const Shape &shape,
                           int64_t axis) {
  bool isWhole = c.shape(parameter).size() > 1 && elementCount(c.shape(parameter)) != 1;
  return isWhole ? parameter : beside(c, parameter, shape, axis, 0);
}

/// Integers of one byte and the zero point beside them in i32, none where it is 0.
struct Bytes {
  Value numbers, zero;
};

/// Tells whether the numbers are known to be 0, with or without values at hand.
static bool isZero(Compose &c, Value value) {
  if (!value || c.importer.isExternal(value))
    return !value;
  auto known = c.importer.constantValue(value);
  if (!known)
    return false;
  std::vector<double> numbers = reference::values<double>(*known);
  return std::ranges::all_of(numbers, [](double number) { return number == 0; });
}

/// The zero point is one for all, or one per index of the axis.
static Bytes bytesOf(Compose &c, Value x, Value zero, int64_t axis) {
  if (isZero(c, zero))
    return {x, {}};
  return {x, besideProduct(c, c.cast(zero, c.importer.builder.getI32Type()), c.shape(x),
                           axis)};
}

/// The integers without their zero point, in i32.
static Value centered(Compose &c, const Bytes &x) {
  Value wide = c.cast(x.numbers, c.importer.builder.getI32Type());
  return x.zero ? c.sub(wide, x.zero) : wide;
}

/// The filter as signed bytes whose zero point is 0, if its numbers are known to fit.
static Value signedFilter(Compose &c, const Bytes &filter) {
  if (!filter.zero && isa<IntegerType>(c.type(filter.numbers)) &&
      !c.type(filter.numbers).isUnsignedInteger())
    return filter.numbers;
  if (c.importer.isExternal(filter.numbers))
    return {};
  Value wide = centered(c, filter);
  auto known = wide ? c.importer.constantValue(wide) : std::nullopt;
  if (!known)
    return {};
  std::vector<double> numbers = reference::values<double>(*known);
  bool fits =
      std::ranges::all_of(numbers, [](double n) { return n >= -128 && n <= 127; });
  return fits ? c.cast(wide, c.importer.builder.getIntegerType(8)) : Value();
}

/// Notes on a constant of real numbers of which signed bytes it was made, and with which
/// scale, for products of the bytes (IntegerPairs.cpp).
static void noteNumbers(Compose &c, Value real, const Bytes &bytes, Value scale) {
  Operation *op = real ? real.getDefiningOp() : nullptr;
  if (c.importer.training || !isa_and_nonnull<graph::ConstantOp, graph::WeightOp>(op) ||
      !c.type(real).isF32() || !c.type(bytes.numbers).isInteger(8) ||
      c.importer.isExternal(real))
    return;
  Value numbers = signedFilter(c, bytes);
  auto sourceOf = [](Value value) -> Attribute {
    Operation *source = value ? value.getDefiningOp() : nullptr;
    if (auto constant = dyn_cast_or_null<graph::ConstantOp>(source))
      return constant.getValue();
    auto weight = dyn_cast_or_null<graph::WeightOp>(source);
    return weight ? Attribute(weight.getNameAttr()) : Attribute();
  };
  Attribute ofNumbers = sourceOf(numbers), ofScale = sourceOf(scale);
  if (ofNumbers && ofScale)
    op->setAttr(numbersAttr, c.importer.builder.getArrayAttr({ofNumbers, ofScale}));
}

static Expected<Values> importDequantize(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0), scale = importer.input(node, 1);
  Value zero = importer.input(node, 2);
  int64_t axis = intAttr(node, "axis", 1), block = intAttr(node, "block_size", 0);
  Type result = c.type(scale);
  if (int64_t type = intAttr(node, "output_dtype", 0); type != 0) {
    auto given = elementTypeOfOnnx(importer, type);
    if (!given)
      return tl::unexpected(given.error());
    result = *given;
  }
  // Differences of integers are exact in i32, those of floats in f32.
  bool isFloat = isa<FloatType>(c.type(x));
  Type wide = isFloat ? c.f32() : Type(importer.builder.getI32Type());
  Shape shape = c.shape(x);
  Value number = c.cast(x, wide), offset;
  if (zero)
    offset = beside(c, c.cast(zero, wide), shape, axis, block);
  if (offset)
    number = c.sub(number, offset);
  Value factor = c.cast(beside(c, scale, shape, axis, block), c.f32());
  Value real = c.cast(c.mul(c.cast(number, c.f32()), factor), result);
  if (block == 0 && !isFloat)
    noteNumbers(c, real, {x, isZero(c, offset) ? Value() : offset}, factor);
  return c.results({real});
}

/// To an integer type: rounded to even, with the zero point, saturated; to a float type
/// saturated only if the node says so.
static Value quantized(Compose &c, Value ratio, Value zero, Type element,
                       bool saturates = true) {
  DType to = *dtypeOf(element);
  if (const SmallFloat *format = smallFloat(to)) {
    double largest = smallToFloat(to, format->largest);
    Value sum = zero ? c.add(ratio, c.cast(zero, c.type(ratio))) : ratio;
    return c.cast(saturates ? c.clamp(sum, -largest, largest) : sum, element);
  }
  double count = std::ldexp(1, bitWidth(to)), low = isUnsigned(to) ? 0 : -count / 2;
  Value whole = c.op("round", ratio);
  if (zero)
    whole = c.add(whole, c.cast(zero, c.type(ratio)));
  return c.cast(c.clamp(whole, low, low + count - 1), element);
}

static Expected<Values> importQuantize(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0), scale = importer.input(node, 1);
  Value zero = importer.input(node, 2);
  int64_t axis = intAttr(node, "axis", 1), block = intAttr(node, "block_size", 0);
  Type element = zero ? c.type(zero) : importer.builder.getIntegerType(8, false);
  if (int64_t type = intAttr(node, "output_dtype", 0); type != 0 && !zero) {
    auto given = elementTypeOfOnnx(importer, type);
    if (!given)
      return tl::unexpected(given.error());
    element = *given;
  }
  Shape shape = c.shape(x);
  Value factor = c.cast(beside(c, scale, shape, axis, block), c.f32());
  Value offset = zero ? beside(c, c.cast(zero, c.f32()), shape, axis, block) : Value();
  return c.results({quantized(c, c.div(c.cast(x, c.f32()), factor), offset, element,
                              intAttr(node, "saturate", 1) != 0)});
}

/// Scale and zero point from the range of the data, which includes 0. Of zeros alone the
/// scale is 1, as in ONNX Runtime: by ONNX's formula it is 0, and the numbers 0 / 0.
static Values dynamicallyQuantized(Compose &c, Value x) {
  Importer &importer = c.importer;
  Type u8 = importer.builder.getIntegerType(8, false);
  auto all = c.dimsFrom(0, x);
  Value high = c.max(c.reduce(ReduceKind::Max, x, all, false), 0);
  Value low = c.min(c.reduce(ReduceKind::Min, x, all, false), 0);
  Value range = c.sub(high, low);
  Value scale = c.select(c.equal(range, 0), c.like(range, 1), c.div(range, 255));
  Value zero = c.clamp(c.op("round", c.div(c.sub(c.like(low, 0), low), scale)), 0, 255);
  zero = c.cast(zero, u8);
  return {quantized(c, c.div(x, scale), zero, u8), scale, zero};
}

static Expected<Values> importDynamicQuantize(Importer &importer, const Node &node) {
  Compose c(importer);
  return c.results(dynamicallyQuantized(c, importer.input(node, 0)));
}

/// Σ (a − za)(b − zb) over k as Σ a·b − za·(Σ b − k·zb) − zb·Σ a: the operands of the
/// product stay bytes. Sums of weights are folded.
static Value byteProduct(Compose &c, const Bytes &a, const Bytes &b) {
  if (!a.numbers || !b.numbers)
    return {};
  Type i32 = c.importer.builder.getI32Type();
  Shape left = c.shape(a.numbers), right = c.shape(b.numbers);
  if (left.empty() || right.empty())
    return c.fail("MatMul of a scalar");
  const int64_t depth = left.back();
  // Sums of what is there alone are taken of the centered numbers.
  const size_t summed = right.size() < 2 ? 0 : right.size() - 2;
  if (!c.type(a.numbers).isInteger(8) || !c.type(b.numbers).isInteger(8) ||
      c.importer.countOf(a.numbers, left.size() - 1) ||
      c.importer.countOf(b.numbers, summed))
    return c.take(matMul(c.importer, centered(c, a), centered(c, b)));
  Value product = c.take(matMul(c.importer, a.numbers, b.numbers, i32));
  auto sumsOf = [&](Value numbers, size_t d, bool keep) {
    return c.sum(c.cast(numbers, i32), {static_cast<int64_t>(d)}, keep);
  };
  if (a.zero) {
    Value sums = sumsOf(b.numbers, summed, left.size() > 1);
    if (b.zero)
      sums = c.sub(sums, c.mul(b.zero, static_cast<double>(depth)));
    product = c.sub(product, c.mul(a.zero, sums));
  }
  if (b.zero) {
    Value sums = sumsOf(a.numbers, left.size() - 1, right.size() > 1);
    product = c.sub(product, c.mul(b.zero, sums));
  }
  return product;
}

static Expected<Values> importMatMulInteger(Importer &importer, const Node &node) {
  Compose c(importer);
  auto in = [&](size_t i) { return importer.input(node, i); };
  return c.results(
      {byteProduct(c, bytesOf(c, in(0), in(2), -2), bytesOf(c, in(1), in(3), -1))});
}

/// A sum of i32 products scaled to the result's numbers.
static Value requantized(Compose &c, Value sum, Value scale, Value zero) {
  Value ratio = c.mul(c.cast(sum, c.f32()), c.cast(scale, c.f32()));
  return quantized(c, ratio, zero, c.type(zero));
}

static Expected<Values> importQLinearMatMul(Importer &importer, const Node &node) {
  Compose c(importer);
  auto in = [&](size_t i) { return importer.input(node, i); };
  Value a = in(0), b = in(3);
  Value product = byteProduct(c, bytesOf(c, a, in(2), -2), bytesOf(c, b, in(5), -1));
  auto scaleOf = [&](size_t i, Value of, int64_t axis) {
    return besideProduct(c, c.cast(in(i), c.f32()), c.shape(of), axis);
  };
  Value scale =
      c.div(c.mul(scaleOf(1, a, -2), scaleOf(4, b, -1)), scaleOf(6, product, -2));
  Value zero = besideProduct(c, in(7), c.shape(product), -2);
  return c.results({requantized(c, product, scale, zero)});
}

Value import::byteWindows(Compose &c, Value image, Value weights, double zero,
                          WindowAttrs window, int64_t group) {
  const size_t spatial = window.pads.size() / 2;
  bool hasPads = std::ranges::any_of(window.pads, [](int64_t pad) { return pad != 0; });
  if (zero != 0 && hasPads) {
    Shape low(2, 0), high(2, 0);
    auto middle = window.pads.begin() + static_cast<int64_t>(spatial);
    low.insert(low.end(), window.pads.begin(), middle);
    high.insert(high.end(), middle, window.pads.end());
    image = c.pad(image, low, high, zero);
    window.pads.assign(window.pads.size(), 0);
  }
  auto attrs = windowAttrs(c.importer, window);
  attrs.push_back(c.attr("group", group));
  attrs.push_back(c.attr("sums", TypeAttr::get(c.importer.builder.getI32Type())));
  return c.op("conv", {image, weights}, attrs);
}

/// The convolution of bytes, summed in i32, and a bias [O, 1, …], if any: around the
/// image stand elements of its zero point, which then is taken off everywhere alike,
/// times the sum of the channel's filter. Null where bytes do not do: a filter with
/// numbers of nine bits, padding whose value is computed, extents that are data.
static Value byteConv(Compose &c, const Node &node, const Bytes &image,
                      const Bytes &filter, Value bias) {
  Type i32 = c.importer.builder.getI32Type();
  if (!image.numbers || !filter.numbers || c.shape(image.numbers).size() < 3 ||
      c.shape(filter.numbers).size() != c.shape(image.numbers).size() ||
      !c.type(image.numbers).isInteger(8) || !c.type(filter.numbers).isInteger(8))
    return {};
  Value weights = signedFilter(c, filter), x = image.numbers;
  if (!weights)
    return {};
  Shape shape = c.shape(x), kernel = c.shape(weights);
  for (size_t d = 0; d < shape.size(); ++d)
    if (c.importer.countOf(image.numbers, d))
      return {};
  if (image.zero && elementCount(c.shape(image.zero)) != 1)
    return {};
  WindowAttrs window = windowOf(node, shape, Shape(kernel.begin() + 2, kernel.end()));
  bool hasPads = std::ranges::any_of(window.pads, [](int64_t pad) { return pad != 0; });
  double around = 0;
  if (image.zero && hasPads && window.pads.size() == 2 * (shape.size() - 2)) {
    auto known = c.importer.isExternal(image.zero) ? std::nullopt
                                                   : c.importer.constantValue(image.zero);
    if (!known || elementCount(known->shape) != 1)
      return {};
    around = reference::values<double>(*known)[0];
  }
  Value sum = byteWindows(c, x, weights, around, window, intAttr(node, "group", 1));
  if (!image.zero)
    return bias ? c.add(sum, bias) : sum;
  std::vector<int64_t> taps = c.dimsFrom(1, weights);
  Shape perChannel(kernel.size() - 1, 1);
  perChannel[0] = kernel[0];
  Value sums = c.reshape(c.sum(c.cast(weights, i32), taps, /*keep=*/false), perChannel);
  Value extra = c.mul(c.reshape(image.zero, {}), sums);
  return bias ? c.add(sum, c.sub(bias, extra)) : c.sub(sum, extra);
}

/// The convolution of integers in i32 and a bias [O, 1, …], if any; in f64, whose sums of
/// up to 2^53 are exact, where bytes do not do.
static Value integerConv(Compose &c, const Node &node, const Bytes &image,
                         const Bytes &filter, Value bias = Value()) {
  if (Value sum = byteConv(c, node, image, filter, bias); sum || c.failed())
    return sum;
  Type f64 = c.importer.builder.getF64Type(), i32 = c.importer.builder.getI32Type();
  Value x = c.cast(centered(c, image), f64), w = c.cast(centered(c, filter), f64);
  Value sum = c.cast(c.take(convolution(c.importer, node, x, w)), i32);
  return bias ? c.add(sum, bias) : sum;
}

static Expected<Values> importConvInteger(Importer &importer, const Node &node) {
  Compose c(importer);
  auto in = [&](size_t i) { return importer.input(node, i); };
  return c.results(
      {integerConv(c, node, bytesOf(c, in(0), in(2), 1), bytesOf(c, in(1), in(3), 0))});
}

static Expected<Values> importQLinearConv(Importer &importer, const Node &node) {
  Compose c(importer);
  auto in = [&](size_t i) { return importer.input(node, i); };
  Shape perChannel(c.shape(in(0)).size() - 1, 1);
  auto channel = [&](Value v) {
    Shape shape = perChannel;
    shape[0] = elementCount(c.shape(v));
    return c.reshape(v, shape);
  };
  Value sum =
      integerConv(c, node, bytesOf(c, in(0), in(2), 1), bytesOf(c, in(3), in(5), 0),
                  node.hasInput(8) ? channel(in(8)) : Value());
  Value scale =
      c.div(c.mul(c.reshape(c.cast(in(1), c.f32()), {}), channel(c.cast(in(4), c.f32()))),
            c.reshape(c.cast(in(6), c.f32()), {}));
  return c.results({requantized(c, sum, scale, c.reshape(in(7), {}))});
}

//===-- Operators of com.microsoft ----------------------------------------===//
//
// ONNX Runtime's quantizer leaves these: a tensor is numbers, a scale and a zero point,
// each an input. Products and functions are of f32, results are rounded to the numbers.

namespace {
/// The operands of a node of com.microsoft.
struct QuantizedNode {
  Compose &c;
  const Node &node;

  Value input(size_t i) const { return c.importer.input(node, i); }
  Value scale(size_t i) const { return c.reshape(c.cast(input(i), c.f32()), {}); }
  /// In f32; absent: 0.
  Value zero(size_t i) const {
    Value given = input(i);
    return given ? c.reshape(c.cast(given, c.f32()), {}) : c.scalar(c.f32(), 0);
  }
  /// Input `x`, whose scale and zero point are the next two, as real numbers.
  Value real(size_t x) const {
    return c.mul(c.sub(c.cast(input(x), c.f32()), zero(x + 2)), scale(x + 1));
  }
  /// The result's scale and zero point are inputs `i` and `i + 1`.
  Expected<Values> numbers(Value y, size_t i, Type element) const {
    return c.results({quantized(c, c.div(y, scale(i)), zero(i + 1), element)});
  }
};
} // namespace

/// Rounded with the zero point, which decides between two numbers that are as near.
static Expected<Values> importQLinearBinary(Importer &importer, const Node &node) {
  Compose c(importer);
  QuantizedNode q{c, node};
  Value a = q.real(0), b = q.real(3);
  Value y = node.opType == "QLinearAdd" ? c.add(a, b) : c.mul(a, b);
  y = c.add(c.div(y, q.scale(6)), q.zero(7));
  return c.results({quantized(c, y, Value(), c.type(q.input(0)))});
}

/// The sum of integers is exact, and scaled once.
static Expected<Values> importQLinearAverage(Importer &importer, const Node &node) {
  Compose c(importer);
  QuantizedNode q{c, node};
  Value x = q.input(0);
  size_t first = intAttr(node, "channels_last", 0) != 0 ? 1 : 2;
  std::vector<int64_t> spatial = c.dimsFrom(first, x);
  if (first == 1 && !spatial.empty())
    spatial.pop_back();
  int64_t count = 1;
  for (int64_t d : spatial)
    count *= c.shape(x)[static_cast<size_t>(d)];
  Type i32 = importer.builder.getI32Type();
  Value sum = c.sum(c.sub(c.cast(x, i32), c.cast(q.zero(2), i32)), spatial);
  Value scale = c.div(q.scale(1), c.mul(q.scale(3), static_cast<double>(count)));
  Value y = c.mul(c.cast(sum, c.f32()), scale);
  return c.results({quantized(c, y, q.zero(4), c.type(x))});
}

static Expected<Values> importQLinearFunction(Importer &importer, const Node &node) {
  Compose c(importer);
  QuantizedNode q{c, node};
  Value x = q.real(0), y;
  if (node.opType == "QLinearSigmoid") {
    y = c.op("sigmoid", x);
  } else if (node.opType == "QLinearLeakyRelu") {
    double alpha = floatAttr(node, "alpha", 0.01);
    y = c.op("leaky_relu", x,
             importer.attr("alpha", importer.builder.getF64FloatAttr(alpha)));
  } else {
    int64_t axis = intAttr(node, "axis", -1);
    // By the definition of opset 12 over all dims from the axis on.
    bool isFlat = intAttr(node, "opset", 13) < 13;
    size_t d = c.axis(axis, x);
    if (c.failed())
      return c.results({});
    Shape shape = c.shape(x),
          flat(shape.begin(), shape.begin() + static_cast<int64_t>(d));
    flat.push_back(
        elementCount(Shape(shape.begin() + static_cast<int64_t>(d), shape.end())));
    Value rows = isFlat ? c.reshape(x, flat) : x;
    y = c.op("softmax", rows, importer.attr("axis", static_cast<int64_t>(d)));
    y = c.reshape(y, shape);
  }
  return q.numbers(y, 3, c.type(q.input(0)));
}

/// Parts of one scale and zero point each, brought to those of the result.
static Expected<Values> importQLinearConcat(Importer &importer, const Node &node) {
  Compose c(importer);
  QuantizedNode q{c, node};
  Values parts;
  for (size_t i = 2; i + 2 < node.inputs.size(); i += 3)
    parts.push_back(q.real(i));
  if (parts.empty() || node.inputs.size() % 3 != 2)
    return makeError("expected a scale and a zero point for each tensor");
  return q.numbers(c.concat(parts, intAttr(node, "axis", 0)), 0, c.type(q.input(2)));
}

static Expected<Values> importQLinearWhere(Importer &importer, const Node &node) {
  Compose c(importer);
  QuantizedNode q{c, node};
  return q.numbers(c.select(q.input(0), q.real(1), q.real(4)), 7, c.type(q.input(1)));
}

static Value transposedIf(Compose &c, Value x, bool isTransposed) {
  return isTransposed ? c.transpose(x, {1, 0}) : x;
}

/// The product of integers with a bias in i32. Without a scale the result is real.
static Expected<Values> importQGemm(Importer &importer, const Node &node) {
  Compose c(importer);
  QuantizedNode q{c, node};
  bool transB = intAttr(node, "transB", 0) != 0;
  bool transA = intAttr(node, "transA", 0) != 0;
  Bytes a = bytesOf(c, transposedIf(c, q.input(0), transA), q.input(2), -2);
  Bytes b = bytesOf(c, transposedIf(c, q.input(3), transB), q.input(5), -1);
  Value sum = byteProduct(c, a, b);
  if (Value bias = q.input(6))
    sum = c.add(sum, bias);
  Value columns = c.cast(q.input(4), c.f32());
  if (elementCount(c.shape(columns)) == 1)
    columns = c.reshape(columns, {});
  Value scale = c.mul(c.mul(q.scale(1), columns), floatAttr(node, "alpha", 1));
  if (node.hasInput(7) != node.hasInput(8))
    return makeError("the result has a scale or a zero point, not both");
  if (!node.hasInput(7))
    return c.results({c.cast(c.mul(c.cast(sum, c.f32()), scale), c.type(q.input(1)))});
  Value y = c.mul(c.cast(sum, c.f32()), c.div(scale, q.scale(7)));
  return c.results({quantized(c, y, q.zero(8), c.type(q.input(8)))});
}

/// MatMulIntegerToFloat, and DynamicQuantizeMatMul, whose rows come as real numbers: the
/// product of integers, times both scales.
static Expected<Values> importScaledMatMul(Importer &importer, const Node &node) {
  Compose c(importer);
  auto in = [&](size_t i) { return importer.input(node, i); };
  bool isDynamic = node.opType == "DynamicQuantizeMatMul";
  Values a{in(0), in(2), in(4)}, b{in(1), in(3), in(5)};
  if (isDynamic)
    a = dynamicallyQuantized(c, in(0)), b = {in(1), in(2), in(3)};
  Value sum = byteProduct(c, bytesOf(c, a[0], a[2], -2), bytesOf(c, b[0], b[2], -1));
  Value scale = c.mul(besideProduct(c, a[1], c.shape(a[0]), -2),
                      besideProduct(c, b[1], c.shape(b[0]), -1));
  Value y = c.mul(c.cast(sum, c.type(scale)), scale);
  if (Value bias = in(isDynamic ? 4 : 6))
    y = c.add(y, bias);
  return c.results({y});
}

void import::addQuantization(HandlerTable &table) {
  table["DequantizeLinear"] = takesCounts(importDequantize);
  table["QuantizeLinear"] = takesCounts(importQuantize);
  table["DynamicQuantizeLinear"] = takesCounts(importDynamicQuantize);
  table["MatMulInteger"] = takesCounts(importMatMulInteger);
  table["QLinearMatMul"] = takesCounts(importQLinearMatMul);
  table["ConvInteger"] = takesCounts(importConvInteger);
  table["QLinearConv"] = takesCounts(importQLinearConv);
  auto add = [&](const char *name, OperatorImport handler) {
    table[std::string("com.microsoft.") + name] = handler;
  };
  add("QLinearAdd", takesCounts(importQLinearBinary));
  add("QLinearMul", takesCounts(importQLinearBinary));
  add("QLinearGlobalAveragePool", importQLinearAverage);
  add("QLinearSigmoid", takesCounts(importQLinearFunction));
  add("QLinearLeakyRelu", takesCounts(importQLinearFunction));
  add("QLinearSoftmax", importQLinearFunction);
  add("QLinearConcat", takesCounts(importQLinearConcat));
  add("QLinearWhere", takesCounts(importQLinearWhere));
  add("QuantizeLinear", takesCounts(importQuantize));
  add("DequantizeLinear", takesCounts(importDequantize));
  add("MatMulIntegerToFloat", takesCounts(importScaledMatMul));
  add("DynamicQuantizeMatMul", takesCounts(importScaledMatMul));
  add("QGemm", takesCounts(importQGemm));
  addBlockWeights(table);
}
