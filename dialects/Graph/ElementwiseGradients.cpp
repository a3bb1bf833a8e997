//===- ElementwiseGradients.cpp - Gradients from scalar payloads ----------===//
#include "dialects/Graph/Formula.h"

using namespace mlir;
using namespace partita;
using namespace partita::graph;

/// The number that every element of a constant is.
static std::optional<double> uniformValue(Value value) {
  auto constant = value.getDefiningOp<ConstantOp>();
  if (!constant || !constant.getValue().isSplat() ||
      !isa<FloatType>(getElementTypeOrSelf(value.getType())))
    return std::nullopt;
  return constant.getValue().getSplatValue<APFloat>().convertToDouble();
}

/// The op of a payload on the operands that it reads.
static Value mapOf(Formula &f, const Payload &payload, ValueRange operands) {
  if (payload == *Payload::parse("x"))
    return operands[0];
  std::vector<int32_t> read = payload.operandsRead();
  std::vector<Payload::Leaf> places(operands.size(), 0.0);
  Values values;
  for (int32_t operand : read) {
    places[static_cast<size_t>(operand)] = static_cast<int32_t>(values.size());
    values.push_back(operands[static_cast<size_t>(operand)]);
  }
  Payload compact = payload.withLeaves(places);
  if (compact == *Payload::parse("x * y"))
    return f.mul(values[0], values[1]);
  return f.map(compact, values);
}

/// The payload of the cotangent by one operand: x is the cotangent, operand i is i + 1.
/// Numbers that the program knows (an exponent) are in it.
static Payload cotangentPayload(PayloadOpInterface op, int32_t operand) {
  const Payload &payload = op.getPayload();
  std::vector<Payload::Leaf> leaves;
  for (auto [i, value] : llvm::enumerate(op->getOperands()))
    if (auto known = uniformValue(value); known && static_cast<int32_t>(i) != operand)
      leaves.emplace_back(*known);
    else
      leaves.emplace_back(static_cast<int32_t>(i));
  std::vector<double> numbers = op.getPayloadAttributes();
  Payload bound = payload.withLeaves(leaves, {numbers.begin(), numbers.end()});
  Payload slope = bound.derivative(operand);
  for (auto [i, leaf] : llvm::enumerate(leaves))
    leaf = static_cast<int32_t>(i);
  return slope.withLeaves(leaves).timesCotangent();
}

static bool isZero(const Payload &payload) {
  const ScalarNode &node = payload.nodes().back();
  return node.op == ScalarOp::Constant && node.value == 0;
}

Expected<std::vector<Value>>
graph::detail::payloadGradients(Operation *op, StringRef text, OpBuilder &builder,
                                ArrayRef<Value> cotangents,
                                const std::vector<bool> &wanted) {
  Formula f(builder, op->getLoc());
  Values results(op->getNumOperands());
  for (unsigned i = 0; i < op->getNumOperands(); ++i) {
    if (!wanted[i])
      continue;
    Values read{cotangents[0]};
    llvm::append_range(read, op->getOperands());
    Payload payload;
    if (text.empty()) {
      payload = cotangentPayload(cast<PayloadOpInterface>(op), static_cast<int32_t>(i));
    } else {
      payload = *Payload::parse(std::string_view(text));
      read.push_back(op->getResult(0));
    }
    if (isZero(payload))
      continue;
    Value operand = op->getOperand(i);
    Value made = f.unbroadcast(mapOf(f, payload, read), f.shape(operand));
    results[i] = f.cast(made, f.type(operand));
  }
  return f.results(results);
}
