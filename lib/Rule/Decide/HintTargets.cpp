//===- HintTargets.cpp - What the names in a hints file stand for ---------===//
#include "HintTargets.h"

#include "NodeInputs.h"
#include "partita/Rule/Decide/ModuleNames.h"

#include <algorithm>
#include <map>
#include <set>

using namespace partita;

const TensorFactors &HintPlace::factors(const FlowGraph &graph) const {
  const ShardingRule &rule = graph.ops[op].rule;
  return isOperand ? rule.operands[index] : rule.results[index];
}

const std::vector<int32_t> &HintPlace::loops(const FlowGraph &graph, size_t dim) const {
  if (order)
    return factors(graph)[static_cast<size_t>((*order)[dim])];
  const auto &orders = graph.ops[op].operandOrder;
  bool ordered =
      isOperand && static_cast<size_t>(index) < orders.size() && !orders[index].empty();
  return factors(graph)[ordered ? static_cast<size_t>(orders[index][dim]) : dim];
}

namespace {
class TargetFinder {
public:
  /// `unknown` is filled instead of reporting globs that match nothing.
  TargetFinder(const FlowGraph &graph, const Hints &hints,
               UnknownHints *unknown = nullptr)
      : graph(graph), hints(hints), unknown(unknown), modules(moduleOps(graph)) {
    std::map<std::string, size_t> numbers;
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      if (graph.ops[i].kind != FlowKind::Compute)
        continue;
      auto [it, isNew] = numbers.try_emplace(graph.ops[i].name, nodes.size());
      if (isNew)
        nodes.emplace_back();
      nodes[it->second].push_back(static_cast<int32_t>(i));
    }
  }

  Expected<std::vector<HintGroup>> run() {
    for (const NodeHint &hint : hints.nodes)
      if (auto ok = findNodes(hint); !ok)
        return tl::unexpected(ok.error());
    for (const NamedTensorHint &hint : hints.tensors)
      if (auto ok = findTensors(hint); !ok)
        return tl::unexpected(ok.error());
    return std::move(groups);
  }

private:
  /// An error about the hint for `glob`.
  tl::unexpected<Error> error(const std::string &glob, const std::string &message) const {
    return tl::unexpected<Error>({.message = hints.file + ": " + message, .hint = glob});
  }

  /// A value of a node with the places where its ops have it.
  struct Tensor {
    int32_t value;
    std::vector<HintPlace> places;
  };

  Expected<void> findNodes(const NodeHint &hint) {
    bool found = false;
    for (const std::vector<int32_t> &ops : nodes) {
      const std::string &node = graph.ops[ops[0]].name;
      if (!matchesGlob(hint.glob, node))
        continue;
      found = true;
      if (auto ok = addNode(hint, "node", node, ops); !ok)
        return ok;
    }
    return found ? Expected<void>() : findGoneNode(hint);
  }

  /// A group for ops that are one thing to the user: a node, or a module.
  Expected<void> addNode(const NodeHint &hint, const char *kind, const std::string &name,
                         const std::vector<int32_t> &ops) {
    const std::string origin = std::string("hint for ") + kind + " '" + name + "'";
    HintGroup group{origin, hint.priority, ops, {}, -1};
    std::vector<Tensor> inputs = inputsOf(ops, Repeats::Merged);
    if (hint.in.size() > inputs.size())
      inputs = inputsOf(ops, Repeats::Apart);
    std::vector<Tensor> outputs = outputsOf(ops);
    for (auto [list, tensors, what] :
         {std::tuple(&hint.in, &inputs, "input"), {&hint.out, &outputs, "output"}}) {
      if (list->size() > tensors->size())
        return error(hint.glob, origin + ": it has " + std::to_string(tensors->size()) +
                                    " " + what + "s, the hint " +
                                    std::to_string(list->size()));
      for (size_t i = 0; i < list->size(); ++i)
        if ((*list)[i])
          group.targets.push_back(
              {(*tensors)[i].places, &*(*list)[i],
               std::string(what) + " " + std::to_string(i) + " of '" + name + "'"});
    }
    return add(std::move(group));
  }

  /// A module is to hints what a node is that has become several ops.
  Expected<bool> findModules(const NodeHint &hint) {
    bool found = false;
    for (const auto &[path, ops] : modules) {
      if (!matchesGlob(hint.glob, path))
        continue;
      found = true;
      if (auto ok = addNode(hint, "module", path, ops); !ok)
        return tl::unexpected(ok.error());
    }
    return found;
  }

  /// A node that changes nothing is no op: its name is one of the value that goes through
  /// it, and that is its input and its output.
  Expected<void> findGoneNode(const NodeHint &hint) {
    bool found = false;
    for (const FlowValue &value : graph.values) {
      if (value.producer < 0 ||
          std::none_of(
              value.otherNames.begin(), value.otherNames.end(),
              [&](const std::string &name) { return matchesGlob(hint.glob, name); }))
        continue;
      found = true;
      HintGroup group{"hint for node '" + hint.glob + "'",
                      hint.priority,
                      {value.producer},
                      {},
                      graph.ops[value.producer].results[value.result]};
      for (const auto *list : {&hint.in, &hint.out}) {
        if (list->size() > 1)
          return error(hint.glob, "hint for node '" + hint.glob + "': it has one " +
                                      (list == &hint.in ? "input" : "output") +
                                      ", the hint " + std::to_string(list->size()));
        if (!list->empty() && list->front())
          group.targets.push_back({{{value.producer, false, value.result}},
                                   &*list->front(),
                                   std::string(list == &hint.in ? "input" : "output") +
                                       " 0 of '" + hint.glob + "'"});
      }
      if (auto ok = add(std::move(group)); !ok)
        return ok;
    }
    if (found)
      return {};
    for (const auto *list : {&hint.in, &hint.out})
      if (list->size() > 1 && isAbsorbed(hint.glob))
        return error(hint.glob, "hint for node '" + hint.glob + "': it has one " +
                                    (list == &hint.in ? "input" : "output") +
                                    ", the hint " + std::to_string(list->size()));
    auto absorbed =
        findAbsorbed(hint.glob, hint.priority, hint.in.empty() ? nullptr : &hint.in[0],
                     hint.out.empty() ? nullptr : &hint.out[0]);
    if (!absorbed)
      return tl::unexpected(absorbed.error());
    if (*absorbed)
      return {};
    auto modules = findModules(hint);
    if (!modules)
      return tl::unexpected(modules.error());
    if (*modules)
      return {};
    if (!unknown)
      return error(hint.glob, "no node and no module is named '" + hint.glob + "'" +
                                  nearMisses(graph, hint.glob));
    unknown->nodes.insert(hint.glob);
    return {};
  }

  bool isAbsorbed(const std::string &glob) const {
    return std::any_of(graph.ops.begin(), graph.ops.end(), [&](const FlowOp &op) {
      return std::any_of(op.absorbed.begin(), op.absorbed.end(),
                         [&](const auto &it) { return matchesGlob(glob, it.name); });
    });
  }

  /// A transpose that a contraction has absorbed: its result and its input are that
  /// operand of the contraction, in the order of dims that each has.
  Expected<bool> findAbsorbed(const std::string &glob, int priority, const TensorHint *in,
                              const TensorHint *out) {
    bool found = false;
    for (size_t i = 0; i < graph.ops.size(); ++i)
      for (const FlowOp::Absorbed &transpose : graph.ops[i].absorbed) {
        if (!matchesGlob(glob, transpose.name))
          continue;
        found = true;
        auto op = static_cast<int32_t>(i);
        HintGroup group{"hint for '" + glob + "'", priority, {op}, {}, -1};
        for (auto [dims, order, what] : {std::tuple(in, &transpose.input, "input"),
                                         {out, &transpose.result, "output"}})
          if (dims && *dims)
            group.targets.push_back({{{op, true, transpose.operand, order}},
                                     &**dims,
                                     std::string(what) + " 0 of '" + glob + "'"});
        if (auto ok = add(std::move(group)); !ok)
          return tl::unexpected(ok.error());
      }
    return found;
  }

  static bool contains(const std::vector<int32_t> &ops, int32_t op) {
    return std::binary_search(ops.begin(), ops.end(), op);
  }

  std::vector<Tensor> inputsOf(const std::vector<int32_t> &ops, Repeats repeats) const {
    std::vector<Tensor> inputs;
    for (const NodeInput &input : partita::inputsOf(graph, ops, repeats)) {
      inputs.push_back({input.value, {}});
      std::vector<HintPlace> &places = inputs.back().places;
      for (const FlowUse &use : input.uses)
        places.push_back({use.op, true, use.operand});
      // A step in 16 bits casts what a node reads: the hint is meant for who computes.
      for (const FlowUse &use : input.uses)
        if (isCast(graph.ops[use.op]))
          for (const FlowUse &behind : graph.values[graph.ops[use.op].results[0]].uses)
            if (contains(ops, behind.op))
              places.push_back({behind.op, true, behind.operand, nullptr, true});
    }
    return inputs;
  }

  bool isCast(const FlowOp &op) const {
    return op.operands.size() == 1 && op.results.size() == 1 &&
           op.rule.operands[0] == op.rule.results[0] &&
           graph.values[op.operands[0]].type != graph.values[op.results[0]].type;
  }

  std::vector<Tensor> outputsOf(const std::vector<int32_t> &ops) const {
    std::vector<Tensor> outputs;
    for (int32_t value : partita::outputsOf(graph, ops)) {
      const FlowValue &it = graph.values[value];
      outputs.push_back({value, {{it.producer, false, it.result}}});
    }
    return outputs;
  }

  /// Whether a value is called like its node only because it has no name of its own, and
  /// does not leave the node.
  bool isStep(const FlowValue &value) const {
    const std::string &node = graph.ops[value.producer].name;
    return value.name == node && !value.uses.empty() &&
           std::all_of(value.uses.begin(), value.uses.end(), [&](const FlowUse &use) {
             const FlowOp &user = graph.ops[use.op];
             return user.kind == FlowKind::Compute && user.name == node;
           });
  }

  /// Whether a source is called like a node because its import made it: folded weights of
  /// a BatchNormalization, the scalar that a Pad fills with. Equal ones are one, so that
  /// other nodes may read it too; a scalar may even have lost the reader that it is
  /// called after.
  bool isPartOfNode(const FlowOp &source) const {
    if (!source.isSource())
      return false;
    const FlowValue &value = graph.values[source.results[0]];
    auto isNode = [&](const FlowOp &op) {
      return op.kind == FlowKind::Compute && op.name == source.name;
    };
    if (value.name == source.name &&
        std::any_of(value.uses.begin(), value.uses.end(),
                    [&](const FlowUse &use) { return isNode(graph.ops[use.op]); }))
      return true;
    return elementCount(value.shape) == 1 &&
           std::any_of(nodes.begin(), nodes.end(), [&](const std::vector<int32_t> &ops) {
             return isNode(graph.ops[ops[0]]);
           });
  }

  Expected<void> findTensors(const NamedTensorHint &hint) {
    std::set<int32_t> values;
    for (size_t v = 0; v < graph.values.size(); ++v) {
      const FlowValue &value = graph.values[v];
      if (value.producer < 0)
        continue;
      const FlowOp &producer = graph.ops[value.producer];
      auto isMeant = [&](const std::string &name) {
        return matchesGlob(hint.glob, name);
      };
      // The name of its node is not the value's own: outputsOf finds what leaves a node.
      if ((isMeant(value.name) && !isStep(value) && !isPartOfNode(producer)) ||
          std::any_of(value.otherNames.begin(), value.otherNames.end(),
                      [&](const std::string &name) {
                        return name != producer.name && isMeant(name);
                      }))
        values.insert(static_cast<int32_t>(v));
    }
    for (const FlowOp &op : graph.ops)
      if ((op.isSource() || op.kind == FlowKind::State) &&
          matchesGlob(hint.glob, op.name) && !isPartOfNode(op))
        values.insert(op.results[0]);
    for (const std::vector<int32_t> &ops : nodes)
      if (matchesGlob(hint.glob, graph.ops[ops[0]].name))
        for (const Tensor &output : outputsOf(ops))
          values.insert(output.value);
    if (auto ok = checkUnique(hint.glob, values); !ok)
      return ok;
    if (values.empty()) {
      auto found = findAbsorbed(hint.glob, hint.priority, nullptr, &hint.dims);
      if (!found)
        return tl::unexpected(found.error());
      if (*found)
        return {};
      for (const auto &[path, ops] : modules)
        if (matchesGlob(hint.glob, path))
          for (const Tensor &output : outputsOf(ops))
            values.insert(output.value);
      if (values.empty() && !unknown)
        return error(hint.glob, "no tensor is named '" + hint.glob + "'" +
                                    nearMisses(graph, hint.glob));
      if (values.empty())
        unknown->tensors.insert(hint.glob);
    }
    for (int32_t value : values) {
      if (!hint.dims)
        continue;
      const FlowValue &it = graph.values[value];
      HintGroup group{
          "hint for tensor '" + it.name + "'", hint.priority, {it.producer}, {}, value};
      group.targets.push_back(
          {{{it.producer, false, it.result}}, &*hint.dims, "tensor '" + it.name + "'"});
      if (auto ok = add(std::move(group)); !ok)
        return ok;
    }
    return {};
  }

  /// A module's name for a parameter may be that of two tensors of the file: which one
  /// is meant is for the user to say.
  Expected<void> checkUnique(const std::string &glob, const std::set<int32_t> &values) {
    std::map<std::string, int32_t> known;
    for (int32_t value : values)
      for (const std::string &name : graph.values[value].otherNames) {
        auto [it, isNew] = known.try_emplace(name, value);
        if (!isNew && it->second != value && matchesGlob(glob, name))
          return error(glob, "'" + name + "' may be tensor '" +
                                 graph.values[it->second].name + "' or tensor '" +
                                 graph.values[value].name + "'; use these names");
      }
    return {};
  }

  Expected<void> add(HintGroup group) {
    for (const HintTarget &target : group.targets)
      if (size_t rank = target.places[0].factors(graph).size();
          target.dims->size() != rank)
        return error(target.what, target.what + " has " + std::to_string(rank) +
                                      " dims, the hint " +
                                      std::to_string(target.dims->size()));
    groups.push_back(std::move(group));
    return {};
  }

  const FlowGraph &graph;
  const Hints &hints;
  UnknownHints *unknown;
  std::map<std::string, std::vector<int32_t>> modules; ///< by path
  std::vector<std::vector<int32_t>> nodes;             ///< ops of one name, ascending
  std::vector<HintGroup> groups;
};
} // namespace

Expected<std::vector<HintGroup>> partita::findTargets(const FlowGraph &graph,
                                                      const Hints &hints) {
  return TargetFinder(graph, hints).run();
}

UnknownHints partita::unknownHints(const FlowGraph &graph, const Hints &hints) {
  UnknownHints unknown;
  // One after the other: an error of one says nothing of the others.
  for (const NodeHint &hint : hints.nodes) {
    Hints one;
    one.nodes = {hint};
    (void)TargetFinder(graph, one, &unknown).run();
  }
  for (const NamedTensorHint &hint : hints.tensors) {
    Hints one;
    one.tensors = {hint};
    (void)TargetFinder(graph, one, &unknown).run();
  }
  return unknown;
}
