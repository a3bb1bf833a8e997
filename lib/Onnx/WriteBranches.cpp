//===- WriteBranches.cpp - Nodes of a graph, with branches and loops ------===//
//
// The loader has the nodes of both branches of an If in the graph, between IfBegin and
// IfEnd, and those of a loop's body between RepeatBegin and RepeatEnd (ownDomain). A file
// has them as graphs of a node, which see the values around it by their names.
//
//===----------------------------------------------------------------------===//
#include "Internal.h"
#include "partita/Onnx/Model.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <set>
#include <string_view>

using namespace partita;
using namespace partita::onnx_model;

namespace {
using Nodes = std::vector<const Node *>;
/// Names that a branch has for values, and those that the values have around the If.
using Seen = std::map<std::string, std::string>;

class BranchWriter {
public:
  BranchWriter(std::set<std::string> taken, onnx::GraphProto &whole)
      : taken(std::move(taken)), whole(whole) {}

  /// `results`: names that are read behind these nodes.
  Expected<void> write(const Nodes &nodes, const std::set<std::string> &results,
                       onnx::GraphProto &graph) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      const size_t end = endOf(nodes, i);
      auto ok = end == nodes.size() ? writePlain(*nodes[i], graph)
                : nodes[i]->opType == "IfBegin"
                    ? writeIf(nodes, i, end, readBehind(nodes, end, results), graph)
                    : writeLoop(nodes, i, end, readBehind(nodes, end, results), graph);
      if (!ok)
        return ok;
      i = end == nodes.size() ? i : end;
    }
    return {};
  }

private:
  /// The place of the end that belongs to a beginning; behind all nodes: there is none.
  static size_t endOf(const Nodes &nodes, size_t begin) {
    const std::string &type = nodes[begin]->opType;
    if (nodes[begin]->domain != ownDomain || (type != "IfBegin" && type != "RepeatBegin"))
      return nodes.size();
    const char *wanted = type == "IfBegin" ? "IfEnd" : "RepeatEnd";
    auto end = std::ranges::find_if(nodes, [&](const Node *node) {
      const auto *other = node->attribute<std::string>("begin");
      return other && node->opType == wanted && *other == nodes[begin]->name;
    });
    return static_cast<size_t>(end - nodes.begin());
  }

  static std::set<std::string> readBehind(const Nodes &nodes, size_t place,
                                          std::set<std::string> results) {
    for (size_t i = place + 1; i < nodes.size(); ++i)
      results.insert(nodes[i]->inputs.begin(), nodes[i]->inputs.end());
    return results;
  }

  /// Nodes among `within` that these values need.
  static std::set<const Node *> neededBy(const Nodes &within,
                                         std::set<std::string> values) {
    std::set<const Node *> needed;
    for (const Node *node : std::views::reverse(within))
      if (std::ranges::any_of(node->outputs, [&](const std::string &output) {
            return values.contains(output);
          })) {
        needed.insert(node);
        values.insert(node->inputs.begin(), node->inputs.end());
      }
    return needed;
  }

  std::string around(const std::string &value) const {
    auto other = seen.find(value);
    return other == seen.end() ? value : other->second;
  }

  Expected<void> writePlain(const Node &node, onnx::GraphProto &graph) {
    onnx::NodeProto &proto = *graph.add_node();
    if (auto ok = writeNode(node, proto); !ok)
      return ok;
    for (std::string &input : *proto.mutable_input())
      input = around(input);
    return {};
  }

  Expected<void> writeIf(const Nodes &nodes, size_t first, size_t last,
                         const std::set<std::string> &behind, onnx::GraphProto &graph) {
    const Node &begin = *nodes[first], &end = *nodes[last];
    const size_t count = end.outputs.size();
    if (begin.inputs.size() != begin.outputs.size() || end.inputs.size() != 1 + 2 * count)
      return makeError("node '" + end.name +
                       "' (IfEnd) does not have what each of the "
                       "branches gives as inputs");
    for (size_t i = 0; i < begin.inputs.size(); ++i)
      seen[begin.outputs[i]] = around(begin.inputs[i]);
    const Nodes inside(nodes.begin() + static_cast<ptrdiff_t>(first) + 1,
                       nodes.begin() + static_cast<ptrdiff_t>(last));
    std::vector<std::string> given[2];
    std::set<const Node *> needed[2];
    for (size_t branch : {0, 1}) {
      auto from = end.inputs.begin() + 1 + static_cast<ptrdiff_t>(branch * count);
      given[branch].assign(from, from + static_cast<ptrdiff_t>(count));
      needed[branch] = neededBy(inside, {given[branch].begin(), given[branch].end()});
    }
    // Nodes that both need, or that are read behind the If, stand before it.
    std::set<const Node *> common = neededBy(inside, behind);
    std::ranges::set_intersection(needed[0], needed[1],
                                  std::inserter(common, common.end()));
    auto only = [&](const std::set<const Node *> &some, bool isCommon) {
      Nodes list;
      std::ranges::copy_if(inside, std::back_inserter(list), [&](const Node *node) {
        return some.contains(node) && common.contains(node) == isCommon;
      });
      return list;
    };
    std::set<std::string> results = behind;
    results.insert(end.inputs.begin(), end.inputs.end());
    if (auto ok = write(only(common, true), results, graph); !ok)
      return ok;
    onnx::NodeProto proto;
    proto.set_name(end.name);
    proto.set_op_type("If");
    proto.add_input(around(end.inputs[0]));
    for (const std::string &output : end.outputs)
      proto.add_output(output);
    for (size_t branch : {0, 1}) {
      onnx::AttributeProto &attribute = *proto.add_attribute();
      attribute.set_name(branch == 0 ? "then_branch" : "else_branch");
      attribute.set_type(onnx::AttributeProto::GRAPH);
      attribute.mutable_g()->set_name(end.name + (branch == 0 ? "/then" : "/else"));
      if (auto ok = writeBranch(only(needed[branch], false), given[branch],
                                *attribute.mutable_g());
          !ok)
        return ok;
    }
    *graph.add_node() = std::move(proto);
    return {};
  }

  /// A Loop, which looks up the row of a trip itself: a Scan has as many trips as its
  /// rows, whose number who reads the file would have to infer.
  Expected<void> writeLoop(const Nodes &nodes, size_t first, size_t last,
                           const std::set<std::string> &behind, onnx::GraphProto &graph) {
    const Node &begin = *nodes[first], &end = *nodes[last];
    const auto *trips = end.attribute<int64_t>("trips");
    const auto *carried = end.attribute<int64_t>("carried");
    if (!trips || !carried || begin.inputs.size() != begin.outputs.size() ||
        begin.inputs.size() < static_cast<size_t>(*carried))
      return makeError("node '" + end.name +
                       "' (RepeatEnd) does not have what a loop has");
    const Nodes inside(nodes.begin() + static_cast<ptrdiff_t>(first) + 1,
                       nodes.begin() + static_cast<ptrdiff_t>(last));
    const std::set<const Node *> before = neededBy(inside, behind);
    Nodes common, body;
    for (const Node *node : inside)
      (before.contains(node) ? common : body).push_back(node);
    std::set<std::string> results = behind;
    for (const Node *node : body)
      results.insert(node->inputs.begin(), node->inputs.end());
    results.insert(end.inputs.begin(), end.inputs.end());
    if (auto ok = write(common, results, graph); !ok)
      return ok;
    onnx::NodeProto proto;
    proto.set_name(end.name);
    proto.set_op_type("Loop");
    onnx::AttributeProto &attribute = *proto.add_attribute();
    attribute.set_name("body");
    attribute.set_type(onnx::AttributeProto::GRAPH);
    attribute.mutable_g()->set_name(end.name + "/body");
    const std::string trip = addTrips(*trips, proto, *attribute.mutable_g());
    for (size_t i = 0; i < begin.inputs.size(); ++i)
      if (i < static_cast<size_t>(*carried)) {
        proto.add_input(around(begin.inputs[i]));
        attribute.mutable_g()->add_input()->set_name(begin.outputs[i]);
      } else {
        addRow(around(begin.inputs[i]), trip, begin.outputs[i], *attribute.mutable_g());
      }
    for (const std::string &output : end.outputs)
      proto.add_output(output);
    if (auto ok = writeBranch(body, end.inputs, *attribute.mutable_g()); !ok)
      return ok;
    *graph.add_node() = std::move(proto);
    return {};
  }

  void addRow(const std::string &rows, const std::string &trip, const std::string &row,
              onnx::GraphProto &body) {
    onnx::NodeProto &lookup = *body.add_node();
    lookup.set_name(fresh(row + "/Gather"));
    lookup.set_op_type("Gather");
    lookup.add_input(rows);
    lookup.add_input(trip);
    lookup.add_output(row);
  }

  /// ONNX Runtime infers no types of the inputs that are no values around the loop.
  static void addScalarInput(const std::string &name, int32_t type,
                             onnx::GraphProto &body) {
    onnx::ValueInfoProto &input = *body.add_input();
    input.set_name(name);
    auto &tensor = *input.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type);
    tensor.mutable_shape();
  }

  std::string fresh(std::string name) {
    while (!taken.insert(name).second)
      name += "_";
    return name;
  }

  /// The count of a Loop, an initializer of the whole graph, where whoever reads the file
  /// finds it, and the condition, which stays true. The result is the number of the trip,
  /// in the body.
  std::string addTrips(int64_t trips, onnx::NodeProto &loop, onnx::GraphProto &body) {
    onnx::TensorProto &count = *whole.add_initializer();
    count.set_name(fresh(loop.name() + "/trips"));
    count.set_data_type(onnx::TensorProto::INT64);
    count.add_int64_data(trips);
    loop.add_input(count.name());
    loop.add_input("");
    const std::string trip = fresh(loop.name() + "/trip");
    addScalarInput(trip, onnx::TensorProto::INT64, body);
    const std::string goesOn = fresh(loop.name() + "/goes_on");
    addScalarInput(goesOn, onnx::TensorProto::BOOL, body);
    onnx::NodeProto &same = *body.add_node();
    same.set_name(fresh(goesOn + "/Identity"));
    same.set_op_type("Identity");
    same.add_input(goesOn);
    same.add_output(same.name());
    body.add_output()->set_name(same.name());
    return trip;
  }

  /// A graph gives values that its own nodes make.
  Expected<void> writeBranch(const Nodes &nodes, const std::vector<std::string> &given,
                             onnx::GraphProto &graph) {
    if (auto ok = write(nodes, {given.begin(), given.end()}, graph); !ok)
      return ok;
    for (const std::string &value : given) {
      const std::string name = fresh(graph.name() + "/" + value);
      onnx::NodeProto &identity = *graph.add_node();
      identity.set_name(name);
      identity.set_op_type("Identity");
      identity.add_input(around(value));
      identity.add_output(name);
      graph.add_output()->set_name(name);
    }
    return {};
  }

  std::set<std::string> taken; ///< names of values and nodes
  onnx::GraphProto &whole;     ///< around everything
  Seen seen;
};
} // namespace

Expected<void> onnx_model::writeNodes(const Graph &graph, onnx::GraphProto &proto) {
  std::set<std::string> taken;
  Nodes nodes;
  for (const Tensor &tensor : graph.initializers)
    taken.insert(tensor.name);
  for (const Node &node : graph.nodes) {
    taken.insert(node.name);
    taken.insert(node.outputs.begin(), node.outputs.end());
    nodes.push_back(&node);
  }
  return BranchWriter(std::move(taken), proto)
      .write(nodes, {graph.outputs.begin(), graph.outputs.end()}, proto);
}
