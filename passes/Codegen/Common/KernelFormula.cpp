//===- KernelFormula.cpp - Kernels as data for the runtime ----------------===//
#include "passes/Codegen/Common/KernelFormula.h"

#include "dialects/Graph/Graph.h"
#include "dialects/Interfaces/ValueNames.h"
#include "passes/Codegen/Common/Fusion.h"
#include "passes/Codegen/Common/TaskFormer.h"

using namespace mlir;
using namespace partita;
using namespace partita::codegen;
using Node = KernelFormula::Node;

MadeName codegen::madeBy(Operation *op, int result) {
  if (!op)
    return {};
  MadeName name{sourceName(op), {}};
  auto names = valueNames(op->getResult(static_cast<unsigned>(result)));
  name.value = names.empty() ? name.node : names.front().str();
  return name;
}

static KernelFormula::Operand operandOf(const KernelOperand &operand) {
  KernelFormula::Operand made{operand.type, operand.offset, operand.strides,
                              {},           operand.perRow, operand.node};
  for (const Parts &parts : operand.view.dims)
    for (const Part &part : parts)
      made.whole.emplace_back(part.size, part.stride);
  // A view of one element has no parts.
  if (made.whole.empty() && !operand.view.dims.empty())
    made.whole.emplace_back(1, 0);
  return made;
}

/// The op of a row in the runtime's words; empty: it has none.
static std::string rowText(Operation *op, Node &node) {
  auto epsilon = [&](const auto &value) { node.attributes = {value.convertToDouble()}; };
  if (auto reduce = dyn_cast<graph::ReduceOp>(op))
    return "reduce " + std::string(name(reduce.getKind()));
  if (isa<graph::SoftmaxOp>(op))
    return "softmax";
  if (isa<graph::LogSoftmaxOp>(op))
    return "log_softmax";
  if (auto norm = dyn_cast<graph::LayerNormOp>(op)) {
    epsilon(norm.getEpsilon());
    return "layer_norm";
  }
  if (auto norm = dyn_cast<graph::RmsNormOp>(op)) {
    epsilon(norm.getEpsilon());
    return "rms_norm";
  }
  return {};
}

static Node nodeOf(const KernelNode &node) {
  Node made{Node::Opaque, node.type, node.operand, node.args, node.reads, {}, {}};
  switch (node.kind) {
  case KernelNode::Load:
    made.kind = Node::Load;
    break;
  case KernelNode::Constant:
    made.kind = Node::Constant;
    made.attributes = {uniformOf(node.op->getResult(0)).value_or(0)};
    break;
  case KernelNode::Payload:
    if (auto payload = dyn_cast_or_null<PayloadOpInterface>(node.op);
        payload && !node.own) {
      made.text = payload.getPayload().str();
      made.attributes = payload.getPayloadAttributes();
    } else if (node.own) {
      made.text = node.own->str();
    }
    // The evaluator knows no bits.
    if (!made.text.empty() && !made.text.starts_with("bits("))
      made.kind = Node::Payload;
    break;
  case KernelNode::Row:
    made.text = rowText(node.op, made);
    if (!made.text.empty() && node.reads.empty())
      made.kind = Node::Row;
    break;
  case KernelNode::Indexed:
    if (isa<graph::GatherOp, graph::GatherElementsOp, graph::GatherNDOp>(node.op))
      made.text = "moves";
    break;
  case KernelNode::Result:
  case KernelNode::Score:
    break;
  }
  return made;
}

KernelFormula codegen::formulaOf(const KernelSpec &spec) {
  KernelFormula formula;
  formula.domain = spec.domain;
  formula.rowDims = spec.rowDims;
  formula.storedPoints = spec.storedPoints;
  if (spec.attention) {
    formula.isWhole = false;
    // Operands behind hide keys, where infinities are as they should be.
    formula.ownReads = spec.attention->isGradient() ? 7 : 3;
  }
  for (const KernelOperand &operand : spec.operands)
    formula.reads.push_back(operandOf(operand));
  for (const KernelNode &node : spec.nodes)
    formula.nodes.push_back(nodeOf(node));
  for (const KernelOperand &operand : spec.outputs)
    formula.writes.push_back(operandOf(operand));
  return formula;
}
