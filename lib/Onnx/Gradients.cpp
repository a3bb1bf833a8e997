//===- Gradients.cpp - The part of a graph that a Gradient node means -----===//
//
// A Gradient node names the program that it differentiates by its ends: values of the
// graph around it. That program is written out once more, on the node's own inputs,
// between two nodes of ownDomain; where those inputs are the values named, import merges
// it with the first one.
//
//===----------------------------------------------------------------------===//
#include "Internal.h"

#include <onnx/defs/schema.h>

#include <algorithm>
#include <unordered_set>

using namespace partita;
using namespace partita::onnx_model;

/// What goes in comes out; of the other end, what is asked for has the type of that in
/// which it is differentiated, which follows the value that is.
static void inferEnds(onnx::InferenceContext &context, size_t firstInput) {
  for (size_t i = 0; i < context.getNumOutputs(); ++i)
    if (const onnx::TypeProto *from = context.getInputType(i + firstInput))
      *context.getOutputType(i) = *from;
}

void onnx_model::declareGradients() {
  static const bool declared = [] {
    for (bool isBegin : {true, false}) {
      onnx::OpSchema schema;
      schema.SetName(isBegin ? "GradientBegin" : "GradientEnd")
          .SetDomain(std::string(ownDomain))
          .SinceVersion(1)
          .Attr("wanted", "values in which to differentiate", onnx::AttributeProto::INT)
          .Attr("begin", "the other node", onnx::AttributeProto::STRING, std::string())
          .Input(0, "values", "", "T", onnx::OpSchema::Variadic, false, 0)
          .Output(0, "results", "", "T", onnx::OpSchema::Variadic, false, 0)
          .TypeConstraint("T", onnx::OpSchema::all_tensor_types_ir13(), "")
          .TypeAndShapeInferenceFunction([isBegin](onnx::InferenceContext &context) {
            inferEnds(context, isBegin ? 0 : 1);
          });
      onnx::RegisterSchema(std::move(schema));
    }
    return true;
  }();
  (void)declared;
}

bool onnx_model::isGradient(const onnx::NodeProto &node) {
  return node.domain() == "ai.onnx.preview.training" && node.op_type() == "Gradient";
}

namespace {
using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

class GradientPlacer {
public:
  explicit GradientPlacer(onnx::GraphProto &graph) : graph(graph) {}

  Expected<void> run() {
    Nodes old;
    old.Swap(graph.mutable_node());
    reserveNames(old);
    for (const onnx::NodeProto &node : old)
      for (const std::string &output : node.output())
        makers[output] = &node;
    sort(old);
    // A program may contain other Gradient nodes: theirs are placed first.
    for (const onnx::NodeProto *node : order)
      if (isGradient(*node))
        if (auto ok = place(*node); !ok)
          return ok;
    for (const onnx::NodeProto &node : old)
      if (isGradient(node) && !placed.count(&node))
        return makeError("node '" + called(node) +
                         "' (Gradient) differentiates what depends on itself");
    Nodes &nodes = *graph.mutable_node();
    for (const onnx::NodeProto &node : old)
      if (auto it = placed.find(&node); it == placed.end())
        *nodes.Add() = node;
      else
        for (onnx::NodeProto &made : it->second)
          *nodes.Add() = std::move(made);
    return {};
  }

private:
  void reserveNames(const Nodes &nodes) {
    for (const auto &input : graph.input())
      values.reserve(input.name());
    for (const auto &tensor : graph.initializer())
      values.reserve(tensor.name());
    for (const onnx::NodeProto &node : nodes) {
      names.reserve(node.name());
      for (const std::string &output : node.output())
        values.reserve(output);
    }
  }

  /// What the node says of the program.
  struct Ends {
    std::vector<std::string> given; ///< xs, then zs
    size_t wanted = 0;
    std::string of;
  };

  static Expected<Ends> endsOf(const onnx::NodeProto &node) {
    Ends ends;
    for (const char *key : {"xs", "zs"})
      for (const auto &attribute : node.attribute())
        if (attribute.name() == key) {
          ends.given.insert(ends.given.end(), attribute.strings().begin(),
                            attribute.strings().end());
          if (std::string_view(key) == "xs")
            ends.wanted = ends.given.size();
        }
    for (const auto &attribute : node.attribute())
      if (attribute.name() == "y")
        ends.of = attribute.s();
    std::string what = "node '" + called(node) + "' (Gradient) ";
    if (ends.wanted == 0 || ends.of.empty())
      return makeError(what + "names nothing in \"" + (ends.of.empty() ? "y" : "xs") +
                       "\"");
    if (static_cast<size_t>(node.input_size()) != ends.given.size())
      return makeError(what + "has " + std::to_string(node.input_size()) +
                       " inputs for " + std::to_string(ends.given.size()) +
                       " names in \"xs\" and \"zs\"");
    if (static_cast<size_t>(node.output_size()) > ends.wanted)
      return makeError(what + "has " + std::to_string(node.output_size()) +
                       " outputs for " + std::to_string(ends.wanted) +
                       " names in \"xs\"");
    return ends;
  }

  static std::string called(const onnx::NodeProto &node) {
    return !node.name().empty() || node.output_size() == 0 ? node.name() : node.output(0);
  }

  /// The nodes, each behind those that it needs; a Gradient behind the value that it
  /// differentiates too. Those on a cycle are left out: the loader names them.
  void sort(const Nodes &nodes) {
    std::unordered_map<const onnx::NodeProto *, std::vector<const onnx::NodeProto *>>
        users;
    std::unordered_map<const onnx::NodeProto *, size_t> waiting;
    std::vector<const onnx::NodeProto *> ready;
    for (const onnx::NodeProto &node : nodes) {
      std::vector<std::string> needed = reads[&node] = readsOf(node);
      if (isGradient(node))
        for (const auto &attribute : node.attribute())
          if (attribute.name() == "y")
            needed.push_back(attribute.s());
      for (const std::string &value : needed)
        if (auto it = makers.find(value); it != makers.end()) {
          users[it->second].push_back(&node);
          ++waiting[&node];
        }
      if (!waiting.count(&node))
        ready.push_back(&node);
    }
    while (!ready.empty()) {
      const onnx::NodeProto *node = ready.back();
      ready.pop_back();
      order.push_back(node);
      for (const onnx::NodeProto *user : users[node])
        if (--waiting[user] == 0)
          ready.push_back(user);
    }
  }

  /// The nodes on the way from what is given to the value. What else they read does not
  /// depend on it, and is taken as it is.
  std::vector<const onnx::NodeProto *> programOf(const Ends &ends) const {
    std::unordered_set<std::string> depends(ends.given.begin(), ends.given.end());
    std::unordered_set<const onnx::NodeProto *> behind;
    auto reads = [&](const onnx::NodeProto *node) -> const std::vector<std::string> & {
      return this->reads.at(node);
    };
    for (const onnx::NodeProto *node : order)
      if (std::ranges::any_of(reads(node), [&](auto &v) { return depends.count(v); })) {
        behind.insert(node);
        depends.insert(node->output().begin(), node->output().end());
      }
    std::unordered_set<std::string> needed{ends.of};
    for (const std::string &value : ends.given)
      needed.erase(value);
    std::vector<const onnx::NodeProto *> program;
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      if (!behind.count(*it) ||
          std::ranges::none_of((*it)->output(), [&](auto &v) { return needed.count(v); }))
        continue;
      program.push_back(*it);
      for (const std::string &value : reads(*it))
        if (std::ranges::find(ends.given, value) == ends.given.end())
          needed.insert(value);
    }
    std::ranges::reverse(program);
    return program;
  }

  Expected<void> place(const onnx::NodeProto &node) {
    auto ends = endsOf(node);
    if (!ends)
      return tl::unexpected(ends.error());
    auto fail = [&](const std::string &what) {
      return makeError("node '" + called(node) + "' (Gradient) " + what);
    };
    if (!values.has(ends->of))
      return fail("differentiates '" + ends->of + "', which is no value of the graph");
    std::unordered_set<std::string> named;
    for (size_t i = 0; i < ends->given.size(); ++i) {
      const std::string &value = ends->given[i];
      if (value.empty() || !values.has(value))
        return fail("names '" + value + "', which is no value of the graph");
      if (!named.insert(value).second)
        return fail("names '" + value + "' twice in \"xs\" and \"zs\"");
      if (node.input(static_cast<int>(i)).empty())
        return fail("has no input for '" + value + "'");
    }
    placed[&node] = write(node, *ends, programOf(*ends));
    return {};
  }

  std::vector<onnx::NodeProto>
  write(const onnx::NodeProto &node, const Ends &ends,
        const std::vector<const onnx::NodeProto *> &program) {
    std::string name = called(node);
    NameMap inside, nodeNames;
    std::vector<onnx::NodeProto> made;
    auto addEnd = [&](const char *op) -> onnx::NodeProto & {
      made.emplace_back();
      made.back().set_op_type(op);
      made.back().set_domain(std::string(ownDomain));
      made.back().set_name(names.take(name + "/" + op));
      auto &wanted = *made.back().add_attribute();
      wanted.set_name("wanted");
      wanted.set_type(onnx::AttributeProto::INT);
      wanted.set_i(static_cast<int64_t>(ends.wanted));
      return made.back();
    };
    onnx::NodeProto &begin = addEnd("GradientBegin");
    std::string beginName = begin.name();
    *begin.mutable_input() = node.input();
    for (const std::string &value : ends.given) {
      std::string seen = values.take(name + "/" + value);
      inside[value] = seen;
      begin.add_output(seen);
    }
    for (const onnx::NodeProto *each : program)
      if (auto it = placed.find(each); it == placed.end())
        copy(*each, name, inside, nodeNames, made);
      else
        for (const onnx::NodeProto &part : it->second)
          copy(part, name, inside, nodeNames, made);
    onnx::NodeProto &end = addEnd("GradientEnd");
    auto &other = *end.add_attribute();
    other.set_name("begin");
    other.set_type(onnx::AttributeProto::STRING);
    other.set_s(beginName);
    end.add_input(inside.count(ends.of) ? inside[ends.of] : ends.of);
    for (size_t i = 0; i < ends.wanted; ++i) {
      end.add_input(inside[ends.given[i]]);
      auto at = static_cast<int>(i);
      bool isUsed = at < node.output_size() && !node.output(at).empty();
      end.add_output(isUsed ? node.output(at) : values.take(name + "/unused"));
    }
    return made;
  }

  /// A node of the program, on values of its own.
  void copy(const onnx::NodeProto &from, const std::string &name, NameMap &inside,
            NameMap &nodeNames, std::vector<onnx::NodeProto> &made) {
    onnx::NodeProto node = from;
    node.set_name(names.take(name + "/" + called(from)));
    nodeNames[from.name()] = node.name();
    for (const std::string &output : from.output())
      if (!output.empty())
        inside[output] = values.take(name + "/" + output);
    renameValues(node, inside);
    if (node.domain() == ownDomain)
      for (auto &attribute : *node.mutable_attribute())
        if (attribute.name() == "begin" && nodeNames.count(attribute.s()))
          attribute.set_s(nodeNames[attribute.s()]);
    made.push_back(std::move(node));
  }

  onnx::GraphProto &graph;
  UniqueNames values, names;
  std::unordered_map<std::string, const onnx::NodeProto *> makers;
  std::unordered_map<const onnx::NodeProto *, std::vector<onnx::NodeProto>> placed;
  std::unordered_map<const onnx::NodeProto *, std::vector<std::string>> reads;
  std::vector<const onnx::NodeProto *> order;
};
} // namespace

Expected<void> onnx_model::placeGradients(onnx::GraphProto &graph) {
  return GradientPlacer(graph).run();
}
