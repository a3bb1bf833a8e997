//===- Elementwise.cpp - Payloads as ONNX nodes ---------------------------===//
#include "partita/Base/Files/TensorProto.h"
#include "passes/RankFiles/RankWriter.h"

using namespace mlir;
using namespace partita;
using namespace partita::rank_files;

//===-- Formulas ----------------------------------------------------------===//

namespace {
/// Nodes of a payload. Comparisons and && || ! give booleans here, and numbers where
/// something is computed with them.
class Formula {
public:
  Formula(RankWriter &writer, Operation *op, const Payload &payload, DType type)
      : w(writer), op(op), payload(payload), type(type) {}

  /// The payload's value in `result`'s element type.
  std::string run(DType result) {
    attributes = graph::detail::payloadAttributes(op, payload);
    for (const ScalarNode &node : payload.nodes())
      parts.push_back(write(node));
    const auto last = static_cast<int32_t>(parts.size()) - 1;
    if (result == DType::Bool)
      return truth(last);
    std::string value = number(last);
    return result == type ? value : w.castTo(value, result);
  }

private:
  struct Part {
    std::string name;
    bool isBool = false;
  };

  std::string number(int32_t i) {
    const Part &part = parts[static_cast<size_t>(i)];
    return part.isBool ? w.castTo(part.name, type) : part.name;
  }
  std::string truth(int32_t i) {
    const Part &part = parts[static_cast<size_t>(i)];
    return part.isBool ? part.name : w.castTo(part.name, DType::Bool);
  }
  Part apply(StringRef name, const ScalarNode &node, Attributes attributes = {}) {
    Names inputs;
    for (int32_t argument : node.args)
      inputs.push_back(number(argument));
    return {w.node(name, std::move(inputs), std::move(attributes))};
  }
  Part compare(StringRef name, const ScalarNode &node) {
    Part part = apply(name, node);
    return {part.name, true};
  }
  Part logic(StringRef name, const ScalarNode &node) {
    Names inputs;
    for (int32_t argument : node.args)
      inputs.push_back(truth(argument));
    return {w.node(name, std::move(inputs)), true};
  }

  Part operand(const ScalarNode &node) {
    Value value = op->getOperand(static_cast<unsigned>(node.operand));
    DType own = typeOf(value);
    if (own == DType::Bool || own == type)
      return {w.name(value), own == DType::Bool};
    return {w.castTo(w.name(value), type)};
  }

  /// log(1 + x), without losing what 1 + x rounds away: with u = 1 + x that is
  /// log(u) · x / (u − 1), and x where u is 1.
  Part log1p(const ScalarNode &node) {
    std::string x = number(node.args[0]), one = w.scalar(type, 1);
    std::string u = w.node("Add", {x, one});
    std::string same = w.node("Equal", {u, one});
    std::string rest = w.where(same, one, w.node("Sub", {u, one}));
    std::string value = w.node("Div", {w.node("Mul", {w.node("Log", {u}), x}), rest});
    // An infinite u would be divided by itself.
    std::string limit = w.node("IsInf", {u});
    return {w.where(same, x, w.where(limit, u, value))};
  }

  Part write(const ScalarNode &node);

  RankWriter &w;
  Operation *op;
  const Payload &payload;
  DType type;
  std::vector<double> attributes;
  std::vector<Part> parts;
};
} // namespace

/// The operator of ONNX that computes what a scalar operation does; "" where there is
/// none.
static StringRef operatorOf(ScalarOp op) {
  switch (op) {
  case ScalarOp::Add:
    return "Add";
  case ScalarOp::Sub:
    return "Sub";
  case ScalarOp::Mul:
    return "Mul";
  case ScalarOp::Div:
    return "Div";
  case ScalarOp::Neg:
    return "Neg";
  case ScalarOp::Exp:
    return "Exp";
  case ScalarOp::Log:
    return "Log";
  case ScalarOp::Sqrt:
    return "Sqrt";
  case ScalarOp::Erf:
    return "Erf";
  case ScalarOp::Tanh:
    return "Tanh";
  case ScalarOp::Atan:
    return "Atan";
  case ScalarOp::Sin:
    return "Sin";
  case ScalarOp::Cos:
    return "Cos";
  case ScalarOp::Abs:
    return "Abs";
  case ScalarOp::Floor:
    return "Floor";
  case ScalarOp::Ceil:
    return "Ceil";
  case ScalarOp::Round:
    return "Round";
  case ScalarOp::Sign:
    return "Sign";
  case ScalarOp::Pow:
    return "Pow";
  case ScalarOp::Min:
    return "Min";
  case ScalarOp::Max:
    return "Max";
  case ScalarOp::BitAnd:
    return "BitwiseAnd";
  case ScalarOp::BitOr:
    return "BitwiseOr";
  case ScalarOp::BitXor:
    return "BitwiseXor";
  default:
    return "";
  }
}

Formula::Part Formula::write(const ScalarNode &node) {
  if (StringRef name = operatorOf(node.op); !name.empty())
    return apply(name, node);
  switch (node.op) {
  case ScalarOp::Operand:
    return operand(node);
  case ScalarOp::Attribute:
    return {w.scalar(type, attributes[static_cast<size_t>(node.operand)])};
  case ScalarOp::Constant:
    return {w.scalar(type, node.value)};
  case ScalarOp::Less:
    return compare("Less", node);
  case ScalarOp::LessEqual:
    return compare("LessOrEqual", node);
  case ScalarOp::Greater:
    return compare("Greater", node);
  case ScalarOp::GreaterEqual:
    return compare("GreaterOrEqual", node);
  case ScalarOp::Equal:
    return compare("Equal", node);
  case ScalarOp::NotEqual:
    return {w.node("Not", {compare("Equal", node).name}), true};
  case ScalarOp::And:
    return logic("And", node);
  case ScalarOp::Or:
    return logic("Or", node);
  case ScalarOp::Not:
    return logic("Not", node);
  case ScalarOp::IsNaN:
    return compare("IsNaN", node);
  case ScalarOp::Log1p:
    return log1p(node);
  case ScalarOp::Mod:
    return apply("Mod", node, {{"fmod", int64_t(isFloat(type))}});
  case ScalarOp::ShiftLeft:
    return apply("BitShift", node, {{"direction", std::string("LEFT")}});
  case ScalarOp::ShiftRight:
    return apply("BitShift", node, {{"direction", std::string("RIGHT")}});
  case ScalarOp::Select:
    return {w.where(truth(node.args[0]), number(node.args[1]), number(node.args[2]))};
  default:
    w.fail("(" + op->getName().getStringRef().str() +
           ") takes bits as those of another type, which ONNX has no operator for");
    return {};
  }
}

static void writeFormula(RankWriter &w, Operation *op, const Payload &payload) {
  DType result = typeOf(op->getResult(0));
  // Comparisons compute in the type of what they compare.
  DType type = result == DType::Bool ? typeOf(op->getOperand(0)) : result;
  // A formula of halves rounds once, at its end.
  if (type == DType::F16 || type == DType::BF16)
    type = DType::F32;
  w.define(op->getResult(0), Formula(w, op, payload, type).run(result));
}

void rank_files::writePayload(RankWriter &w, Operation *op) {
  writeFormula(w, op, cast<PayloadOpInterface>(op).getPayload());
}

//===-- Operators of their own --------------------------------------------===//

/// Attributes of numbers have ONNX's names.
static Attributes numbersOf(Operation *op) {
  Attributes attributes;
  for (StringRef name : {"alpha", "beta", "gamma"})
    if (auto number = op->getAttrOfType<FloatAttr>(name))
      attributes[name.str()] = static_cast<float>(number.getValueAsDouble());
  return attributes;
}

template <typename Op> static void writeNamed(RankWriter &w, Operation *op) {
  w.define(op->getResult(0),
           w.node(Op::onnxName(), w.names(op->getOperands()), numbersOf(op)));
}

template <typename Op> static void addNamed(WriterTable &table) {
  if (!Op::onnxName().empty())
    table[Op::getOperationName()] = writeNamed<Op>;
}

static bool isBool(Operation *op) { return typeOf(op->getResult(0)) == DType::Bool; }

static void writeMax(RankWriter &w, Operation *op) {
  w.define(op->getResult(0),
           w.node(isBool(op) ? "Or" : "Max", w.names(op->getOperands())));
}

static void writeMin(RankWriter &w, Operation *op) {
  w.define(op->getResult(0),
           w.node(isBool(op) ? "And" : "Min", w.names(op->getOperands())));
}

static void writeClip(RankWriter &w, Operation *op) {
  Names inputs = w.names(op->getOperands());
  const bool isByNumbers =
      shapeOf(op->getOperand(1)).empty() && shapeOf(op->getOperand(2)).empty();
  w.define(op->getResult(0),
           isByNumbers
               ? w.node("Clip", inputs)
               : w.node("Min", {w.node("Max", {inputs[0], inputs[1]}), inputs[2]}));
}

static void writeCast(RankWriter &w, Operation *op) {
  w.define(op->getResult(0),
           w.castTo(w.name(op->getOperand(0)), typeOf(op->getResult(0))));
}

static void writeBitcast(RankWriter &w, Operation *op) {
  w.define(op->getResult(0),
           w.laterNode(26, "BitCast", w.names(op->getOperands()),
                       {{"to", int64_t(onnxNumber(typeOf(op->getResult(0))))}}));
}

static void writeGelu(RankWriter &w, Operation *op) {
  const bool isTanh = isa<graph::GeluTanhOp>(op);
  w.define(op->getResult(0),
           w.node("Gelu", w.names(op->getOperands()),
                  {{"approximate", std::string(isTanh ? "tanh" : "none")}}));
}

void rank_files::addElementwise(WriterTable &table) {
  using namespace graph;
  addNamed<ReluOp>(table), addNamed<SigmoidOp>(table), addNamed<TanhOp>(table);
  addNamed<ErfOp>(table), addNamed<ExpOp>(table), addNamed<LogOp>(table);
  addNamed<SqrtOp>(table), addNamed<FloorOp>(table), addNamed<CeilOp>(table);
  addNamed<RoundOp>(table), addNamed<SoftplusOp>(table), addNamed<NegOp>(table);
  addNamed<AbsOp>(table), addNamed<SignOp>(table), addNamed<ReciprocalOp>(table);
  addNamed<SinOp>(table), addNamed<CosOp>(table), addNamed<TanOp>(table);
  addNamed<AtanOp>(table), addNamed<AsinOp>(table), addNamed<AcosOp>(table);
  addNamed<SinhOp>(table), addNamed<CoshOp>(table), addNamed<AsinhOp>(table);
  addNamed<AcoshOp>(table), addNamed<AtanhOp>(table), addNamed<HardSwishOp>(table);
  addNamed<MishOp>(table), addNamed<SoftsignOp>(table), addNamed<NotOp>(table);
  addNamed<IsNaNOp>(table), addNamed<LeakyReluOp>(table), addNamed<EluOp>(table);
  addNamed<CeluOp>(table), addNamed<SeluOp>(table), addNamed<ThresholdedReluOp>(table);
  addNamed<HardSigmoidOp>(table), addNamed<AddOp>(table), addNamed<SubOp>(table);
  addNamed<MulOp>(table), addNamed<DivOp>(table), addNamed<PowOp>(table);
  addNamed<PReluOp>(table), addNamed<EqualOp>(table), addNamed<LessOp>(table);
  addNamed<LessEqualOp>(table), addNamed<GreaterOp>(table);
  addNamed<GreaterEqualOp>(table), addNamed<AndOp>(table), addNamed<OrOp>(table);
  addNamed<XorOp>(table), addNamed<BitAndOp>(table), addNamed<BitOrOp>(table);
  addNamed<BitXorOp>(table), addNamed<BitNotOp>(table), addNamed<WhereOp>(table);
  table[MaxOp::getOperationName()] = writeMax;
  table[MinOp::getOperationName()] = writeMin;
  table[ClipOp::getOperationName()] = writeClip;
  table[CastOp::getOperationName()] = writeCast;
  table[BitcastOp::getOperationName()] = writeBitcast;
  table[GeluOp::getOperationName()] = writeGelu;
  table[GeluTanhOp::getOperationName()] = writeGelu;
  table[MapOp::getOperationName()] = [](RankWriter &w, Operation *op) {
    writeFormula(w, op, cast<MapOp>(op).getPayload());
  };
}
