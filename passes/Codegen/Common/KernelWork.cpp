//===- KernelWork.cpp - What a kernel computes, reads and writes ----------===//
#include "passes/Codegen/Common/Memory.h"

#include "dialects/Graph/Graph.h"

#include <algorithm>

using namespace mlir;
using namespace partita;
using namespace partita::codegen;

/// Scores and what they lead to: forward the sum of values, backward the cotangent of a
/// weight and one or three sums.
int64_t AttentionSpec::products(int64_t depth, int64_t width) const {
  if (!isGradient())
    return depth + width;
  return (1 + ofQueries + ofKeys) * depth + (1 + ofKeys) * width;
}

bool KernelSpec::isGroup(size_t dim) const {
  return attention && attention->ofKeys && domain[dim] != 1 &&
         outputs.back().strides[dim] == 0;
}

/// The payload of a Payload node.
static const partita::Payload &payloadOf(const KernelNode &node) {
  return node.own ? *node.own : cast<PayloadOpInterface>(node.op).getPayload();
}

int64_t KernelSpec::work() const {
  int64_t steps = 0;
  if (attention) // a step has eight flops
    steps = attention->products(domain[numOuter()], domain[numOuter() + 1]) / 4;
  for (const KernelNode &node : nodes) {
    switch (node.kind) {
    case KernelNode::Constant:
    case KernelNode::Result:
    case KernelNode::Score:
      break;
    case KernelNode::Load:
      steps += 1;
      break;
    case KernelNode::Payload:
      steps += payloadOf(node).flops();
      break;
    case KernelNode::Row: // a pass or three
    case KernelNode::Indexed:
      steps += 8;
      break;
    }
  }
  for (size_t d = 0; d < domain.size(); ++d)
    if (!attention || d < numOuter() || d >= numOuter() + 2)
      steps *= domain[d];
  return steps;
}

double KernelSpec::points() const {
  double points = 1;
  for (size_t d = 0; d < domain.size(); ++d)
    if (!attention || d < numOuter() || d >= numOuter() + 2)
      points *= static_cast<double>(domain[d]);
  return points;
}

/// Sums up what nodes take: one of a payload `ofPayload` per point, of an op that sees a
/// row `ofOp` in all.
static double sumOver(const KernelSpec &spec,
                      llvm::function_ref<int64_t(const KernelNode &)> ofPayload,
                      llvm::function_ref<int64_t(ShardingRuleOpInterface)> ofOp) {
  double perPoint = 0, ofRows = 0;
  if (spec.attention)
    perPoint = 2.0 * static_cast<double>(spec.attention->products(
                         spec.domain[spec.numOuter()], spec.domain[spec.numOuter() + 1]));
  for (const KernelNode &node : spec.nodes) {
    if (node.kind == KernelNode::Payload)
      perPoint += static_cast<double>(ofPayload(node));
    else if (node.kind == KernelNode::Row || node.kind == KernelNode::Indexed)
      if (auto op = dyn_cast<ShardingRuleOpInterface>(node.op))
        ofRows += static_cast<double>(ofOp(op));
  }
  return perPoint * spec.points() + ofRows;
}

double KernelSpec::flops() const {
  return sumOver(
      *this, [](const KernelNode &node) { return payloadOf(node).flops(); },
      [](ShardingRuleOpInterface op) { return op.getFlops(); });
}

double codegen::stepsOf(const KernelSpec &kernel) {
  return sumOver(
      kernel,
      [&](const KernelNode &node) {
        std::vector<std::optional<double>> known;
        for (int arg : node.args) {
          const KernelNode &operand = kernel.nodes[static_cast<size_t>(arg)];
          known.push_back(operand.kind == KernelNode::Constant
                              ? uniformOf(operand.op->getResult(0))
                              : std::nullopt);
        }
        return payloadOf(node).steps(known);
      },
      [](ShardingRuleOpInterface op) { return op.getKernelSteps(); });
}

double KernelSpec::bytes() const {
  double bytes = 0;
  for (const auto *list : {&operands, &outputs})
    for (const KernelOperand &operand : *list) {
      double elements = 1;
      for (size_t d = 0; d < operand.strides.size(); ++d)
        if (operand.strides[d] != 0 && !(operand.perRow && d >= numOuter()))
          elements *= static_cast<double>(
              list == &outputs && d >= numOuter() && storedPoints >= 0 ? storedPoints
                                                                       : domain[d]);
      if (!operand.view.dims.empty()) // at computed places: one for each point, or all
        elements = std::min(points(), static_cast<double>(operand.view.elements()));
      bytes += elements * static_cast<double>(byteWidth(operand.type));
    }
  return bytes;
}
