//===- FlowProgram.h - Small programs for tests of flow graphs --*- C++ -*-===//
#ifndef PARTITA_TEST_UNIT_RULE_FLOWPROGRAM_H
#define PARTITA_TEST_UNIT_RULE_FLOWPROGRAM_H

#include "partita/Rule/Sharding/Families.h"
#include "partita/Rule/Sharding/Flow.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace partita {

/// A program by names, built into a flow graph in any order that its data flow allows.
class Program {
public:
  void source(const std::string &name, Shape shape, FlowKind kind = FlowKind::Source) {
    ShardingRule rule = identity(shape);
    rule.operands.clear();
    add(name, kind, std::move(rule), {}, 0);
  }
  void argument(const std::string &name, Shape shape) {
    source(name, std::move(shape), FlowKind::Argument);
  }
  void result(const std::string &operand) {
    ShardingRule rule = identity(shapes.at(operand));
    rule.results.clear();
    add("result of " + operand, FlowKind::Sink, std::move(rule), {operand}, 0);
  }
  /// An argument is a state that becomes `value`, which is a result for that.
  void update(const std::string &argument, const std::string &value) {
    entry(argument).op.kind = FlowKind::State;
    result(value);
    states.emplace_back(argument, ops.size() - 1);
  }
  /// The same of what a training step learns.
  void learn(const std::string &argument, const std::string &value) {
    update(argument, value);
    entry(argument).op.isParameter = true;
  }
  /// As graph.contract, with its linear sets.
  void contract(const std::string &name, const std::string &a, const std::string &b,
                const std::string &equation) {
    ShardingRule rule = *ShardingRule::parse(equation, {shapes.at(a), shapes.at(b)});
    rule.linear = {{ReduceKind::Sum, {0}}, {ReduceKind::Sum, {1}}};
    add(name, FlowKind::Compute, std::move(rule), {a, b}, 1);
  }
  void elementwise(const std::string &name, const std::vector<std::string> &operands,
                   std::vector<LinearSet> linear = {}) {
    std::vector<Shape> all;
    for (const std::string &operand : operands)
      all.push_back(shapes.at(operand));
    ShardingRule rule = *broadcastRule(all);
    rule.linear = std::move(linear);
    add(name, FlowKind::Compute, std::move(rule), operands, 0);
  }
  void reshape(const std::string &name, const std::string &operand, const Shape &shape) {
    move(name, operand, *reshapeRule(shapes.at(operand), shape));
  }
  /// Repeats each element of the last dim.
  void stretch(const std::string &name, const std::string &operand, int64_t times) {
    const Shape &shape = shapes.at(operand);
    ShardingRule rule;
    rule.operands.emplace_back(shape.size());
    rule.results.emplace_back(shape.size());
    for (size_t d = 0; d < shape.size(); ++d)
      addStretchedDim(rule, shape[d], d + 1 == shape.size() ? times : 1,
                      rule.operands[0][d], rule.results[0][d]);
    move(name, operand, std::move(rule));
  }
  void transpose(const std::string &name, const std::string &operand,
                 const std::vector<int64_t> &permutation) {
    move(name, operand, *transposeRule(shapes.at(operand), permutation));
  }
  void slice(const std::string &name, const std::string &operand, const Shape &shape,
             const std::vector<int64_t> &starts) {
    move(name, operand,
         *sliceRule(shapes.at(operand), shape, starts,
                    std::vector<int64_t>(shape.size(), 1)));
  }
  /// A maximum over windows of the last dim.
  void windows(const std::string &name, const std::string &operand, int64_t kernel,
               int64_t stride, int64_t low, int64_t high) {
    const Shape &shape = shapes.at(operand);
    ShardingRule rule;
    rule.operands.emplace_back();
    rule.results.emplace_back();
    for (size_t d = 0; d + 1 < shape.size(); ++d) {
      rule.operands[0].push_back({rule.addFactor(shape[d])});
      rule.results[0].push_back(rule.operands[0].back());
    }
    SpatialDim dim{shape.back(),
                   (shape.back() + low + high - kernel) / stride + 1,
                   kernel,
                   stride,
                   1,
                   low};
    rule.operands[0].emplace_back();
    rule.results[0].emplace_back();
    addSpatialDim(rule, dim, ReduceKind::Max, rule.operands[0].back(),
                  rule.results[0].back());
    rule.linear = {{ReduceKind::Max, {0}}};
    add(name, FlowKind::Compute, std::move(rule), {operand}, 1);
  }
  /// As graph.conv without groups: [n c h w] by a filter [o c k k], with pads that keep
  /// the size where the stride is 1.
  void conv(const std::string &name, const std::string &operand,
            const std::string &filter, int64_t stride = 1, int64_t dilation = 1) {
    const Shape &in = shapes.at(operand), &of = shapes.at(filter);
    ShardingRule rule;
    int32_t n = rule.addFactor(in[0]), c = rule.addFactor(in[1], loop::Reduction{}),
            o = rule.addFactor(of[0]);
    rule.operands = {{{n}, {c}}, {{o}, {c}}};
    rule.results = {{{n}, {o}}};
    int64_t points = 2 * in[0] * in[1] * of[0];
    for (size_t d : {2, 3}) {
      int64_t low = of[d] / 2 * dilation, out = (in[d] - 1) / stride + 1;
      for (auto *tensor : {&rule.operands[0], &rule.results[0]})
        tensor->emplace_back();
      addSpatialDim(rule, {in[d], out, of[d], stride, dilation, low}, ReduceKind::Sum,
                    rule.operands[0][d], rule.results[0][d]);
      rule.operands[1].push_back({rule.addFactor(of[d], loop::Replicate{})});
      points *= out * of[d];
    }
    rule.linear = {{ReduceKind::Sum, {0}}, {ReduceKind::Sum, {1}}};
    add(name, FlowKind::Compute, std::move(rule), {operand, filter}, 1);
    work(name, points);
  }
  /// Softmax or normalization of the last dim.
  void rows(const std::string &name, const std::string &operand) {
    add(name, FlowKind::Compute, *rowRule(shapes.at(operand), {-1}), {operand}, 1);
  }

  /// The op that computes `value` takes this many operations; without it none.
  void work(const std::string &value, int64_t flops) { entry(value).op.flops = flops; }

  /// The op that computes `value` has functions of real numbers, of so many steps.
  void function(const std::string &value, int64_t steps = 0) {
    entry(value).op.isFunction = true;
    entry(value).op.steps = steps;
  }

  /// The op that computes `value` is part of a node of another name.
  void partOf(const std::string &node, const std::string &value) {
    entry(value).op.name = node;
  }
  /// The op that computes `value` differentiates a node.
  void backward(const std::string &node, const std::string &value,
                Phase phase = Phase::Backward) {
    FlowOp &op = entry(value).op;
    op.name = node + "/" + std::string(name(phase));
    op.phase = phase;
  }
  /// The op that computes `value` is a node's in the backward pass.
  void recomputed(const std::string &node, const std::string &value) {
    entry(value).op.name = node + "/recompute";
    entry(value).op.phase = Phase::Backward;
  }
  /// The op that computes `copy` runs again what computed `original`.
  void repeats(const std::string &copy, const std::string &original) {
    entry(copy).original = original;
  }
  /// The node that computes `value` has dim d of an operand where the op has order[d].
  void reorder(const std::string &value, size_t operand, std::vector<int32_t> order) {
    FlowOp &op = entry(value).op;
    op.operandOrder.resize(op.rule.operands.size());
    op.operandOrder[operand] = std::move(order);
  }

  /// The file has the node's inputs in this order, its ops in another one.
  void inputs(const std::string &node, std::vector<std::string> names) {
    nodeInputs[node] = std::move(names);
  }

  /// The flow graph with ops in the given order of preference, data flow first.
  FlowGraph build(const Mesh &mesh, std::mt19937 *shuffle = nullptr) const {
    FlowGraph graph(mesh);
    graph.nodeInputs = nodeInputs;
    std::map<std::string, int32_t> values;
    std::vector<int32_t> numbers(ops.size());
    std::vector<bool> done(ops.size(), false);
    std::vector<size_t> order(ops.size());
    std::iota(order.begin(), order.end(), 0);
    for (size_t built = 0; built < ops.size(); ++built) {
      if (shuffle)
        std::shuffle(order.begin(), order.end(), *shuffle);
      size_t next = *std::find_if(order.begin(), order.end(), [&](size_t i) {
        return !done[i] && std::all_of(ops[i].inputs.begin(), ops[i].inputs.end(),
                                       [&](const auto &v) { return values.count(v); });
      });
      done[next] = true;
      FlowOp op = ops[next].op;
      for (const std::string &input : ops[next].inputs)
        op.operands.push_back(values.at(input));
      if (auto original = values.find(ops[next].original); original != values.end())
        op.repeats = graph.values[static_cast<size_t>(original->second)].producer;
      if (op.kind != FlowKind::Sink) {
        const std::string &value = ops[next].value;
        values[value] = graph.addValue(value, shapes.at(value), 4);
        op.results = {values[value]};
      }
      numbers[next] = graph.addOp(std::move(op));
    }
    for (const auto &[argument, sink] : states)
      graph.tie(graph.values[values.at(argument)].producer, numbers[sink]);
    graph.finalize();
    return graph;
  }

private:
  struct Entry {
    FlowOp op;
    std::vector<std::string> inputs;
    std::string value;         ///< what it computes; its name unless it is part of a node
    std::string original = {}; ///< what it computes again
  };
  Entry &entry(const std::string &value) {
    return *std::find_if(ops.begin(), ops.end(),
                         [&](const Entry &e) { return e.value == value; });
  }

  static ShardingRule identity(const Shape &shape) {
    std::vector<int64_t> order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    return *transposeRule(shape, order);
  }
  void move(const std::string &name, const std::string &operand, ShardingRule rule) {
    rule.linear = {{ReduceKind::Sum, {0}},
                   {ReduceKind::Max, {0}},
                   {ReduceKind::Min, {0}},
                   {ReduceKind::Prod, {0}}};
    add(name, FlowKind::Compute, std::move(rule), {operand}, 0);
  }
  void add(const std::string &name, FlowKind kind, ShardingRule rule,
           std::vector<std::string> inputs, int priority) {
    if (kind != FlowKind::Sink)
      shapes[name] = rule.shape(rule.results[0]);
    FlowOp op{name, kind, std::move(rule), priority, 1, 0, {}, {}};
    ops.push_back({std::move(op), std::move(inputs), name});
  }

  std::vector<Entry> ops;
  std::map<std::string, Shape> shapes;
  std::vector<std::pair<std::string, size_t>> states; ///< and the places of their sinks
  std::map<std::string, std::vector<std::string>> nodeInputs;
};

/// One GPT-2 layer as exporters write it: rows flattened for each matmul, QKV fused.
inline Program gpt2Layer(int64_t batch = 2, int64_t length = 4, int64_t heads = 4,
                         int64_t width = 4) {
  int64_t hidden = heads * width, rows = batch * length;
  Shape model{batch, length, hidden};
  Program p;
  p.argument("tokens", model);
  p.elementwise("x", {"tokens"});
  auto linear = [&](const std::string &name, const std::string &in, int64_t from,
                    int64_t to) {
    p.source(name + ".w", {from, to});
    p.source(name + ".b", {to});
    p.reshape(name + "/flatten", in, {rows, from});
    p.contract(name, name + "/flatten", name + ".w", "m k, k n -> m n");
    p.elementwise(name + "/bias", {name, name + ".b"}, {{ReduceKind::Sum, {0, 1}}});
    p.reshape(name + "/out", name + "/bias", {batch, length, to});
  };
  p.rows("ln_1", "x");
  linear("c_attn", "ln_1", hidden, 3 * hidden);
  for (int64_t i = 0; i < 3; ++i) {
    std::string part(1, "qkv"[i]);
    p.slice(part, "c_attn/out", model, {0, 0, i * hidden});
    p.reshape(part + "/heads", part, {batch, length, heads, width});
    p.transpose(part + "/turned", part + "/heads",
                part == "k" ? std::vector<int64_t>{0, 2, 3, 1}
                            : std::vector<int64_t>{0, 2, 1, 3});
  }
  p.contract("scores", "q/turned", "k/turned", "b h s d, b h d t -> b h s t");
  p.rows("softmax", "scores");
  p.contract("mixed", "softmax", "v/turned", "b h s t, b h t d -> b h s d");
  p.transpose("merge/turned", "mixed", {0, 2, 1, 3});
  p.reshape("merge", "merge/turned", model);
  linear("c_proj", "merge", hidden, hidden);
  p.elementwise("residual_1", {"x", "c_proj/out"}, {{ReduceKind::Sum, {0, 1}}});
  p.rows("ln_2", "residual_1");
  linear("c_fc", "ln_2", hidden, 4 * hidden);
  p.elementwise("gelu", {"c_fc/out"});
  linear("mlp_proj", "gelu", 4 * hidden, hidden);
  p.elementwise("residual_2", {"residual_1", "mlp_proj/out"},
                {{ReduceKind::Sum, {0, 1}}});
  p.result("residual_2");
  return p;
}

} // namespace partita

#endif // PARTITA_TEST_UNIT_RULE_FLOWPROGRAM_H
