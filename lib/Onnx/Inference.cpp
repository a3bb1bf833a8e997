//===- Inference.cpp - Training-mode operators back in inference mode -----===//
#include "Internal.h"

using namespace partita;
using namespace partita::onnx_model;

using Names = std::set<std::string>;

/// Every value that somebody reads, in loops and branches too.
static void collectUses(const onnx::GraphProto &graph, Names &uses) {
  for (const onnx::ValueInfoProto &output : graph.output())
    uses.insert(output.name());
  for (const onnx::NodeProto &node : graph.node()) {
    uses.insert(node.input().begin(), node.input().end());
    for (const onnx::AttributeProto &attribute : node.attribute()) {
      collectUses(attribute.g(), uses);
      for (const onnx::GraphProto &inner : attribute.graphs())
        collectUses(inner, uses);
    }
  }
}

/// Whether somebody reads an output behind the first, which only training gives.
static bool givesMore(const onnx::NodeProto &node, const Names &uses) {
  for (int i = 1; i < node.output_size(); ++i)
    if (uses.contains(node.output(i)))
      return true;
  return false;
}

static void dropOutputs(onnx::NodeProto &node) {
  while (node.output_size() > 1)
    node.mutable_output()->RemoveLast();
}

/// With its running moments. Before opset 14 the number of outputs says the mode.
static void normalizeByRunning(onnx::NodeProto &node) {
  dropOutputs(node);
  for (onnx::AttributeProto &attribute : *node.mutable_attribute())
    if (attribute.name() == "training_mode")
      attribute.set_i(0);
}

/// Its third input says the mode from opset 12 on; it is false where there is none. The
/// mask stays, as inference gives one too.
static void dropNothing(onnx::NodeProto &node) {
  if (node.input_size() > 2)
    node.mutable_input()->RemoveLast();
}

static void convertNodes(onnx::GraphProto &graph, const Names &uses) {
  for (onnx::NodeProto &node : *graph.mutable_node()) {
    bool isStandard = plainDomain(node.domain()).empty();
    if (isStandard && node.op_type() == "BatchNormalization" && !givesMore(node, uses))
      normalizeByRunning(node);
    if (isStandard && node.op_type() == "Dropout")
      dropNothing(node);
    for (onnx::AttributeProto &attribute : *node.mutable_attribute()) {
      if (attribute.has_g())
        convertNodes(*attribute.mutable_g(), uses);
      for (onnx::GraphProto &inner : *attribute.mutable_graphs())
        convertNodes(inner, uses);
    }
  }
}

void onnx_model::toInference(onnx::GraphProto &graph) {
  Names uses;
  collectUses(graph, uses);
  convertNodes(graph, uses);
}
