//===- Elementwise.cpp - Import of scalar functions -----------------------===//
#include "passes/Import/Compose.h"

#include "partita/Base/Files/TensorProto.h"

#include <limits>
#include <tuple>

using namespace mlir;
using namespace partita;
using namespace partita::import;
using onnx_model::Node;

namespace {
/// ONNX name → graph op name, from the ops' own definitions: no second list exists.
template <typename Op> void addName(llvm::StringMap<StringRef> &table) {
  if constexpr (requires { Op::payloadText(); })
    if (!Op::onnxName().empty())
      table[Op::onnxName()] = Op::getOperationName();
}
template <typename... Ops> llvm::StringMap<StringRef> collectNames(std::tuple<Ops...> *) {
  llvm::StringMap<StringRef> table;
  (addName<Ops>(table), ...);
  return table;
}
using AllOps = std::tuple<
#define GET_OP_LIST
#include "dialects/Graph/GraphOps.cpp.inc"
    >;
} // namespace

static const llvm::StringMap<StringRef> &payloadOps() {
  static const auto table = collectNames(static_cast<AllOps *>(nullptr));
  return table;
}

bool import::isPayloadOp(StringRef onnxName) { return payloadOps().contains(onnxName); }

Expected<Values> import::importPayloadOp(Importer &importer, const Node &node) {
  Values operands;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    operands.push_back(importer.input(node, i));
  SmallVector<NamedAttribute> attrs;
  for (const auto &[name, value] : node.attributes)
    if (const auto *number = std::get_if<float>(&value))
      attrs.push_back(importer.attr(name, importer.builder.getF64FloatAttr(*number)));
  return single(importer.emit(payloadOps().lookup(node.opType), operands, attrs));
}

Expected<Type> import::elementTypeOfOnnx(Importer &importer, int64_t number) {
  auto type = dtypeFromOnnx(number);
  if (!type)
    return makeError("element type " + onnxTypeName(number) + " is not supported");
  return elementTypeOf(importer.builder.getContext(), *type);
}

/// Signed floats of one byte: numbers beyond the largest become it, or NaN or an
/// infinity, as the node says.
static Value saturated(Compose &c, Value x, const Node &node, DType to) {
  double largest = smallToFloat(to, smallFloat(to)->largest);
  if (intAttr(node, "saturate", 1) == 0)
    return x;
  Value inside = c.clamp(x, -largest, largest);
  // Before opset 24 an infinity becomes NaN in the types that have no negative zero.
  if (!smallFloat(to)->isNegativeZeroNaN || node.sinceVersion >= 24)
    return inside;
  return c.select(c.op("isinf", x), x, inside);
}

/// Powers of two, whose bits are an exponent: that of an f32, and one more where the
/// fraction is rounded up. The least, 2^-127, is half the least normal f32.
static Value powerOfTwo(Compose &c, Value x, const Node &node, Type element) {
  Builder &builder = c.importer.builder;
  std::string mode = stringAttr(node, "round_mode", "up");
  x = c.cast(x, c.f32());
  Value bits =
      c.op("bitcast", x,
           c.importer.attr("to", TypeAttr::get(builder.getIntegerType(32, false))));
  Value exponent = c.op("shift_right", {bits, c.like(bits, 23)});
  Value fraction = c.op("bit_and", {bits, c.like(bits, 0x7fffff)});
  double half = 0x400000;
  Value isLow = c.equal(exponent, 0), above;
  if (mode == "up")
    above = c.select(isLow, c.like(bits, half), c.like(bits, 0));
  else if (mode == "nearest")
    above = c.select(isLow, c.like(bits, half * 1.5 - 1), c.like(bits, half - 1));
  else if (mode == "down")
    above = c.like(bits, 0x7fffff);
  else
    return c.fail("round_mode \"" + mode + "\" is not known");
  Value power = c.add(exponent, c.cast(c.less(above, fraction), c.type(bits)));
  constexpr double nan = 255;
  bool saturate = intAttr(node, "saturate", 1) != 0;
  power = c.min(power, saturate ? nan - 1 : nan);
  Value hasNone = c.op("or", {c.op("isnan", x), c.less(x, 0)});
  if (!saturate)
    hasNone = c.op("or", {hasNone, c.less(x, 0x1p-127)});
  power = c.select(hasNone, c.like(power, nan), power);
  return c.op("bitcast", c.cast(power, builder.getIntegerType(8, false)),
              c.importer.attr("to", TypeAttr::get(element)));
}

static Expected<Values> castTo(Importer &importer, const Node &node, Value input,
                               Type element) {
  Compose c(importer);
  DType to = *dtypeOf(element);
  bool fromFloat = input && isa<FloatType>(c.type(input));
  if (to == DType::F8E8M0 && c.type(input) != element)
    return c.results({powerOfTwo(c, input, node, element)});
  if (fromFloat && smallFloat(to) && smallFloat(to)->hasSign)
    input = saturated(c, input, node, to);
  // An integer of less than a byte is the low bits of the whole number.
  if (fromFloat && !isa<FloatType>(element) && bitWidth(to) < 8 && to != DType::Bool)
    input = c.cast(input, importer.builder.getI32Type());
  return c.results({c.cast(input, element)});
}

static Expected<Values> importCast(Importer &importer, const Node &node) {
  auto element = elementTypeOfOnnx(importer, intAttr(node, "to", 0));
  if (!element)
    return tl::unexpected(element.error());
  return castTo(importer, node, importer.input(node, 0), *element);
}

static Expected<Values> importBitCast(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  auto element = elementTypeOfOnnx(importer, intAttr(node, "to", 0));
  if (!element)
    return tl::unexpected(element.error());
  DType from = *dtypeOf(c.type(x)), to = *dtypeOf(*element);
  if (bitWidth(from) != bitWidth(to))
    return makeError("BitCast of " + std::string(name(from)) + " to " +
                     std::string(name(to)) + ", which has not as many bits");
  return c.results({c.op("bitcast", x, importer.attr("to", TypeAttr::get(*element)))});
}

static Expected<Values> importIsInf(Importer &importer, const Node &node) {
  auto flag = [&](const char *name, const char *onnxName) {
    return importer.attr(
        name, importer.builder.getF64FloatAttr(intAttr(node, onnxName, 1) != 0 ? 1 : 0));
  };
  return single(importer.emit(
      "graph.isinf", importer.input(node, 0),
      {flag("positive", "detect_positive"), flag("negative", "detect_negative")}));
}

static Expected<Values> importBitShift(Importer &importer, const Node &node) {
  bool isLeft = stringAttr(node, "direction", "") == "LEFT";
  return single(importer.emit(isLeft ? "graph.shift_left" : "graph.shift_right",
                              {importer.input(node, 0), importer.input(node, 1)}));
}

static Expected<Values> importClip(Importer &importer, const Node &node) {
  Value input = importer.input(node, 0);
  Value low = importer.input(node, 1), high = importer.input(node, 2);
  Expected<Value> result = input;
  if (low && high)
    result = importer.emit("graph.clip", {input, low, high});
  else if (low)
    result = importer.emit("graph.max", {input, low});
  else if (high)
    result = importer.emit("graph.min", {input, high});
  return single(result);
}

static Expected<Values> importGelu(Importer &importer, const Node &node) {
  bool tanh = stringAttr(node, "approximate", "none") == "tanh";
  return single(
      importer.emit(tanh ? "graph.gelu_tanh" : "graph.gelu", importer.input(node, 0)));
}

static Expected<Values> importSwish(Importer &importer, const Node &node) {
  Value x = importer.input(node, 0);
  double alpha = floatAttr(node, "alpha", 1);
  Expected<Value> inner = x;
  if (alpha != 1)
    inner = importer.emit("graph.mul",
                          {x, importer.scalar(getElementTypeOrSelf(x.getType()), alpha)});
  if (inner)
    inner = importer.emit("graph.sigmoid", *inner);
  if (inner)
    inner = importer.emit("graph.mul", {x, *inner});
  return single(inner);
}

static Expected<Value> converted(Importer &importer, Value value, Type element) {
  if (getElementTypeOrSelf(value.getType()) == element)
    return value;
  return importer.emit("graph.cast", value, importer.attr("to", TypeAttr::get(element)));
}

/// An integer to the power of a float: a product where the exponent is a whole number,
/// else a power in f64 rounded to zero. What that misses a whole number by, as far as its
/// own rounding reaches, is no fraction: √9 is 3.
static Value powerOfInteger(Compose &c, Value base, Value exponent) {
  Type element = c.type(base), f64 = c.importer.builder.getF64Type();
  Value y = c.cast(exponent, f64), whole = c.cast(y, element);
  Value power = c.op("pow", {c.cast(base, f64), y}), near = c.op("round", power);
  Value miss = c.op("abs", c.sub(power, near));
  Value isNear = c.less(miss, c.mul(c.op("abs", near), 0x1p-46));
  Value rounded = c.cast(c.select(isNear, near, power), element);
  return c.select(c.equal(c.cast(whole, f64), y), c.op("pow", {base, whole}), rounded);
}

/// Base and exponent may have different types; the result has the base's.
static Expected<Values> importPow(Importer &importer, const Node &node) {
  Value base = importer.input(node, 0), exponent = importer.input(node, 1);
  Type element = getElementTypeOrSelf(base.getType());
  Compose c(importer);
  if (!isa<FloatType>(element) && isa<FloatType>(c.type(exponent)))
    return c.results({powerOfInteger(c, base, exponent)});
  auto y = converted(importer, exponent, element);
  if (!y)
    return tl::unexpected(y.error());
  return single(importer.emit("graph.pow", {base, *y}));
}

/// Below 1 there is none.
static Expected<Values> importAcosh(Importer &importer, const Node &node) {
  Compose c(importer);
  Value x = importer.input(node, 0);
  Value none = c.like(x, std::numeric_limits<double>::quiet_NaN());
  return c.results({c.select(c.less(x, 1), none, c.op("acosh", x))});
}

template <const char *op>
static Expected<Values> importBinary(Importer &importer, const Node &node) {
  return single(importer.emit(op, {importer.input(node, 0), importer.input(node, 1)}));
}

static Expected<Values> importIdentity(Importer &importer, const Node &node) {
  return Values{importer.input(node, 0)};
}

/// Of a tensor, which is there, or of nothing: an input that may be absent is refused.
static Expected<Values> importHasElement(Importer &importer, const Node &node) {
  return Values{
      importer.scalar(importer.builder.getI1Type(), importer.input(node, 0) ? 1 : 0)};
}

static constexpr char maxName[] = "graph.max";
static constexpr char minName[] = "graph.min";
static constexpr char modName[] = "graph.mod";

static Expected<Values> importMod(Importer &importer, const Node &node) {
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(importer.input(node, 0).getType()));
  // fmod has the dividend's sign, as the payload has for floats; the integer form the
  // divisor's.
  bool isFmod = intAttr(node, "fmod", 0) == 1;
  if (isFloat == isFmod)
    return importBinary<modName>(importer, node);
  if (isFloat)
    return makeError("Mod with fmod=0 on this element type");
  Compose c(importer);
  Value x = importer.input(node, 0), y = importer.input(node, 1);
  return c.results({c.sub(x, c.mul(c.div(x, y), y))});
}

void import::addElementwise(HandlerTable &table) {
  table["Cast"] = takesCounts(importCast);
  table["BitCast"] = takesCounts(importBitCast);
  table["IsInf"] = takesCounts(importIsInf);
  table["BitShift"] = takesCounts(importBitShift);
  table["Clip"] = takesCounts(importClip);
  table["Gelu"] = takesCounts(importGelu);
  table["Swish"] = takesCounts(importSwish);
  table["Pow"] = takesCounts(importPow);
  table["Acosh"] = takesCounts(importAcosh);
  table["Max"] = takesCounts(importBinary<maxName>);
  table["Min"] = takesCounts(importBinary<minName>);
  table["Mod"] = takesCounts(importMod);
  table["Identity"] = takesCounts(importIdentity);
  table["OptionalGetElement"] = takesCounts(importIdentity);
  table["OptionalHasElement"] = takesCounts(importHasElement);
}
