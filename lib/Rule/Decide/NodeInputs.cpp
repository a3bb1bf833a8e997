//===- NodeInputs.cpp - What a node or a module reads and makes ------------===//
#include "NodeInputs.h"

#include <algorithm>

using namespace partita;

/// What ops of the node compute, and what its import made for them (Gemm's alpha, the
/// folded weights of a BatchNormalization): it is called like the node, or like the first
/// of those that it was made for.
static bool isInner(const FlowGraph &graph, int32_t value,
                    const std::vector<int32_t> &ops) {
  int32_t producer = graph.values[value].producer;
  if (std::binary_search(ops.begin(), ops.end(), producer))
    return true;
  if (producer < 0 || graph.ops[producer].kind != FlowKind::Source)
    return false;
  const FlowOp &source = graph.ops[producer];
  return std::any_of(ops.begin(), ops.end(), [&](int32_t op) {
    const std::string &node = graph.ops[op].name;
    return source.name == node ||
           std::count(source.madeFor.begin(), source.madeFor.end(), node) != 0;
  });
}

/// Whether an input is what the node's file calls `name`: by a name of the value, or as
/// the transpose that its reader has absorbed.
static bool isCalled(const FlowGraph &graph, const NodeInput &input,
                     const std::string &name) {
  const FlowValue &value = graph.values[input.value];
  if (value.name == name ||
      std::count(value.otherNames.begin(), value.otherNames.end(), name) != 0)
    return true;
  return std::any_of(input.uses.begin(), input.uses.end(), [&](const FlowUse &use) {
    const auto &absorbed = graph.ops[use.op].absorbed;
    return std::any_of(absorbed.begin(), absorbed.end(), [&](const auto &transpose) {
      return transpose.operand == use.operand && transpose.name == name;
    });
  });
}

/// Sorts the inputs of a node by the places that `names` gives them; of a value that
/// stands there twice the first is first. What has no place comes last.
static void sortByFile(const FlowGraph &graph, std::vector<NodeInput> &inputs,
                       const std::vector<std::string> &names) {
  std::vector<std::pair<size_t, NodeInput>> placed;
  for (NodeInput &input : inputs) {
    auto before = static_cast<size_t>(
        std::count_if(placed.begin(), placed.end(), [&](const auto &other) {
          return other.second.value == input.value;
        }));
    size_t place = names.size();
    for (size_t i = 0, seen = 0; i < names.size() && seen <= before; ++i)
      if (isCalled(graph, input, names[i]))
        place = i, ++seen;
    placed.emplace_back(place, std::move(input));
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const auto &a, const auto &b) { return a.first < b.first; });
  for (size_t i = 0; i < inputs.size(); ++i)
    inputs[i] = std::move(placed[i].second);
}

std::vector<NodeInput> partita::inputsOf(const FlowGraph &graph,
                                         const std::vector<int32_t> &ops,
                                         Repeats repeats) {
  std::vector<NodeInput> inputs;
  for (int32_t op : ops) {
    auto before = static_cast<int64_t>(inputs.size());
    const FlowOp &it = graph.ops[op];
    for (size_t o = 0; o < it.operands.size(); ++o) {
      int32_t value = it.operands[o];
      if (isInner(graph, value, ops))
        continue;
      FlowUse use{op, static_cast<int32_t>(o)};
      auto end = inputs.begin() + before;
      auto known = std::find_if(inputs.begin(), end,
                                [&](const NodeInput &i) { return i.value == value; });
      if (repeats == Repeats::Merged && known != end)
        known->uses.push_back(use);
      else
        inputs.push_back({value, {use}});
    }
  }
  const std::string &node = graph.ops[ops.front()].name;
  auto names = graph.nodeInputs.find(node);
  bool isNode = std::all_of(ops.begin(), ops.end(),
                            [&](int32_t op) { return graph.ops[op].name == node; });
  if (isNode && names != graph.nodeInputs.end())
    sortByFile(graph, inputs, names->second);
  return inputs;
}

std::vector<int32_t> partita::outputsOf(const FlowGraph &graph,
                                        const std::vector<int32_t> &ops) {
  std::vector<int32_t> outputs, inner;
  const std::string prefix = graph.ops[ops[0]].name + "/";
  for (int32_t op : ops)
    for (int32_t value : graph.ops[op].results) {
      const FlowValue &it = graph.values[value];
      bool leaves = it.uses.empty() ||
                    std::any_of(it.uses.begin(), it.uses.end(), [&](const FlowUse &use) {
                      return !std::binary_search(ops.begin(), ops.end(), use.op);
                    });
      if (leaves)
        (it.name.starts_with(prefix) ? inner : outputs).push_back(value);
    }
  return outputs.empty() ? inner : outputs;
}
