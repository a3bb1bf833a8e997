//===- Quantization.cpp - Import of quantized numbers and their products --===//
#include "passes/Import/Compose.h"

#include <cmath>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

/// A scale or zero point as it stands beside a tensor of this shape: one for all, one per
/// element of `axis`, or one per block of `block` elements along it.
static Value beside(Compose &c, Value parameter, const Shape &shape, int64_t axis,
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
  Value number = c.cast(x, wide);
  if (zero)
    number = c.sub(number, beside(c, c.cast(zero, wide), shape, axis, block));
  Value factor = c.cast(beside(c, scale, shape, axis, block), c.f32());
  return c.results({c.cast(c.mul(c.cast(number, c.f32()), factor), result)});
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

/// Scale and zero point from the range of the data, which includes 0.
static Expected<Values> importDynamicQuantize(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  Type u8 = importer.builder.getIntegerType(8, false);
  auto all = c.dimsFrom(0, x);
  Value high = c.max(c.reduce(ReduceKind::Max, x, all, false), 0);
  Value low = c.min(c.reduce(ReduceKind::Min, x, all, false), 0);
  Value scale = c.div(c.sub(high, low), 255);
  Value zero = c.clamp(c.op("round", c.div(c.sub(c.like(low, 0), low), scale)), 0, 255);
  zero = c.cast(zero, u8);
  return c.results({quantized(c, c.div(x, scale), zero, u8), scale, zero});
}

/// A scale or zero point of a product: one for all, one per row or column (`axis`), or of
/// as many dims as the operand, of which that dim is whole.
static Value besideProduct(Compose &c, Value parameter, const Shape &shape,
                           int64_t axis) {
  bool isWhole = c.shape(parameter).size() > 1 && elementCount(c.shape(parameter)) != 1;
  return isWhole ? parameter : beside(c, parameter, shape, axis, 0);
}

/// Integers without their zero point, in i32.
static Value centered(Compose &c, Value x, Value zero, int64_t axis) {
  Type i32 = c.importer.builder.getI32Type();
  Value wide = c.cast(x, i32);
  return zero ? c.sub(wide, besideProduct(c, c.cast(zero, i32), c.shape(x), axis)) : wide;
}

static Expected<Values> importMatMulInteger(Importer &importer, const Node &node) {
  Compose c(importer);
  Value a = centered(c, importer.input(node, 0), importer.input(node, 2), -2);
  Value b = centered(c, importer.input(node, 1), importer.input(node, 3), -1);
  return c.results({c.take(matMul(importer, a, b))});
}

/// A sum of i32 products scaled to the result's numbers.
static Value requantized(Compose &c, Value sum, Value scale, Value zero) {
  Value ratio = c.mul(c.cast(sum, c.f32()), c.cast(scale, c.f32()));
  return quantized(c, ratio, zero, c.type(zero));
}

static Expected<Values> importQLinearMatMul(Importer &importer, const Node &node) {
  Compose c(importer);
  auto in = [&](size_t i) { return importer.input(node, i); };
  Value a = centered(c, in(0), in(2), -2), b = centered(c, in(3), in(5), -1);
  Value product = c.take(matMul(importer, a, b));
  auto scaleOf = [&](size_t i, Value of, int64_t axis) {
    return besideProduct(c, c.cast(in(i), c.f32()), c.shape(of), axis);
  };
  Value scale =
      c.div(c.mul(scaleOf(1, a, -2), scaleOf(4, b, -1)), scaleOf(6, product, -2));
  Value zero = besideProduct(c, in(7), c.shape(product), -2);
  return c.results({requantized(c, product, scale, zero)});
}

/// The convolution of integers, in f64: its sums of up to 2^53 are exact.
static Value integerConv(Compose &c, const Node &node, Value x, Value filter) {
  Type f64 = c.importer.builder.getF64Type();
  return c.take(convolution(c.importer, node, c.cast(x, f64), c.cast(filter, f64)));
}

static Expected<Values> importConvInteger(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = centered(c, importer.input(node, 0), importer.input(node, 2), 1);
  Value w = centered(c, importer.input(node, 1), importer.input(node, 3), 0);
  return c.results({c.cast(integerConv(c, node, x, w), importer.builder.getI32Type())});
}

static Expected<Values> importQLinearConv(Importer &importer, const Node &node) {
  Compose c(importer);
  auto in = [&](size_t i) { return importer.input(node, i); };
  Value x = centered(c, in(0), in(2), 1), w = centered(c, in(3), in(5), 0);
  Value sum = c.cast(integerConv(c, node, x, w), importer.builder.getI32Type());
  Shape perChannel(c.shape(x).size() - 1, 1);
  auto channel = [&](Value v) {
    Shape shape = perChannel;
    shape[0] = elementCount(c.shape(v));
    return c.reshape(v, shape);
  };
  if (node.hasInput(8))
    sum = c.add(sum, channel(in(8)));
  Value scale =
      c.div(c.mul(c.reshape(c.cast(in(1), c.f32()), {}), channel(c.cast(in(4), c.f32()))),
            c.reshape(c.cast(in(6), c.f32()), {}));
  return c.results({requantized(c, sum, scale, c.reshape(in(7), {}))});
}

void import::addQuantization(HandlerTable &table) {
  table["DequantizeLinear"] = takesCounts(importDequantize);
  table["QuantizeLinear"] = takesCounts(importQuantize);
  table["DynamicQuantizeLinear"] = takesCounts(importDynamicQuantize);
  table["MatMulInteger"] = takesCounts(importMatMulInteger);
  table["QLinearMatMul"] = takesCounts(importQLinearMatMul);
  table["ConvInteger"] = takesCounts(importConvInteger);
  table["QLinearConv"] = takesCounts(importQLinearConv);
}
