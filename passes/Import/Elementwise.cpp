//===- Elementwise.cpp - Import of scalar functions -----------------------===//
#include "passes/Import/Importer.h"

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

static Expected<Values> importCast(Importer &importer, const Node &node) {
  // Codes of onnx.TensorProto.DataType.
  static constexpr std::pair<int64_t, DType> codes[] = {
      {1, DType::F32},  {2, DType::U8},   {3, DType::I8},   {4, DType::U16},
      {5, DType::I16},  {6, DType::I32},  {7, DType::I64},  {9, DType::Bool},
      {10, DType::F16}, {11, DType::F64}, {12, DType::U32}, {13, DType::U64},
      {16, DType::BF16}};
  int64_t to = intAttr(node, "to", 0);
  for (auto [code, type] : codes) {
    if (code != to)
      continue;
    Value input = importer.input(node, 0);
    Type element = elementTypeOf(importer.builder.getContext(), type);
    if (getElementTypeOrSelf(input.getType()) == element)
      return Values{input};
    return single(
        importer.emit("graph.cast", input, importer.attr("to", TypeAttr::get(element))));
  }
  return makeError("conversion to ONNX element type " + std::to_string(to));
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

static Expected<Value> castTo(Importer &importer, Value value, Type element) {
  if (getElementTypeOrSelf(value.getType()) == element)
    return value;
  return importer.emit("graph.cast", value, importer.attr("to", TypeAttr::get(element)));
}

/// Base and exponent may have different types; the result has the base's. A fractional
/// power of an integer is one of the number: computed in f64, then rounded to zero.
static Expected<Values> importPow(Importer &importer, const Node &node) {
  Value base = importer.input(node, 0), exponent = importer.input(node, 1);
  Type element = getElementTypeOrSelf(base.getType()), computed = element;
  if (!isa<FloatType>(element) &&
      isa<FloatType>(getElementTypeOrSelf(exponent.getType())))
    computed = importer.builder.getF64Type();
  auto x = castTo(importer, base, computed);
  if (!x)
    return tl::unexpected(x.error());
  auto y = castTo(importer, exponent, computed);
  if (!y)
    return tl::unexpected(y.error());
  auto power = importer.emit("graph.pow", {*x, *y});
  if (!power)
    return tl::unexpected(power.error());
  return single(castTo(importer, *power, element));
}

template <const char *op>
static Expected<Values> importBinary(Importer &importer, const Node &node) {
  return single(importer.emit(op, {importer.input(node, 0), importer.input(node, 1)}));
}

static Expected<Values> importIdentity(Importer &importer, const Node &node) {
  return Values{importer.input(node, 0)};
}

static constexpr char maxName[] = "graph.max";
static constexpr char minName[] = "graph.min";
static constexpr char modName[] = "graph.mod";

static Expected<Values> importMod(Importer &importer, const Node &node) {
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(importer.input(node, 0).getType()));
  // fmod has the dividend's sign, as the payload has for floats; the integer form the
  // divisor's.
  if (isFloat != (intAttr(node, "fmod", 0) == 1))
    return makeError("Mod with fmod=" + std::to_string(intAttr(node, "fmod", 0)) +
                     " on this element type");
  return importBinary<modName>(importer, node);
}

void import::addElementwise(HandlerTable &table) {
  table["Cast"] = importCast;
  table["Clip"] = importClip;
  table["Gelu"] = importGelu;
  table["Swish"] = importSwish;
  table["Pow"] = importPow;
  table["Max"] = importBinary<maxName>;
  table["Min"] = importBinary<minName>;
  table["Mod"] = importMod;
  table["Identity"] = importIdentity;
}
