//===- Functions.cpp - Inlining and expanding function calls --------------===//
//
// ONNX's own inliner wants functions and model to agree on opsets and forgets where a
// node came from. Here every node keeps the opsets it was written for (the normaliser
// needs no more) and the node of the file that it stands for.
//
//===----------------------------------------------------------------------===//
#include "Internal.h"
#include "Unroll.h"

#include "partita/Base/Files/TensorProto.h"

#include <onnx/defs/schema.h>
#include <onnx/shape_inference/attribute_binder.h>
#include <onnx/shape_inference/implementation.h>

#include <functional>
#include <unordered_set>

using namespace partita;
using namespace partita::onnx_model;

std::string UniqueNames::take(const std::string &base) {
  if (used.insert(base).second)
    return base;
  int &number = next.try_emplace(base, 2).first->second;
  for (;; ++number)
    if (std::string name = base + "_" + std::to_string(number); used.insert(name).second)
      return name;
}

namespace {
class Expander {
public:
  Expander(onnx::ModelProto &model, const Opsets &opsets,
           const std::set<std::string> &kept, bool keepLoops);
  Expected<ExpandedGraph> run();

private:
  Expected<void> expandLocal(PendingNode node, std::vector<PendingNode> &out);
  bool expandSchema(PendingNode node, bool mayUseTypes, std::vector<PendingNode> &out);
  bool unroll(const PendingNode &node, std::vector<PendingNode> &out);
  bool keepBranches(const PendingNode &node, std::vector<PendingNode> &out);
  std::optional<int64_t> knownInteger(const std::string &value) const;
  const onnx::GraphProto *takenBranch(const onnx::NodeProto &node) const;
  std::vector<PendingNode> inlineFunction(const PendingNode &call,
                                          onnx::FunctionProto body);
  std::vector<PendingNode> inlineBranch(const PendingNode &call, onnx::GraphProto body);
  void passThrough(const PendingNode &call, const std::string &from,
                   const std::string &to, std::vector<PendingNode> &out);
  void finishNodes(const PendingNode &call, const NameMap &names,
                   std::shared_ptr<const Opsets> opsets,
                   google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes,
                   std::vector<PendingNode> &out);
  void inferTypes(std::vector<PendingNode> &nodes);
  void nameNodes();

  onnx::ModelProto &model;
  std::shared_ptr<const Opsets> modelOpsets;
  const std::set<std::string> &kept;
  bool keepLoops;
  std::map<std::array<std::string, 3>, const onnx::FunctionProto *> functions;
  std::map<std::string, bool> conditions;
  std::map<std::string, int64_t> integers; ///< of Constant nodes
  std::vector<const onnx::FunctionProto *> stack;
  static constexpr size_t mostExpanded = 250'000, mostNested = 200;
  size_t expanded = 0;
  std::vector<PendingNode> pending;
  ModulePaths modules;
  CallInputs callInputs;
  ProtoTypes protoTypes;
  UniqueNames nodeNames, valueNames;
};
} // namespace

/// A single boolean, if that is what the tensor holds.
static std::optional<bool> condition(const onnx::TensorProto &tensor) {
  if (tensor.data_type() != onnx::TensorProto::BOOL ||
      tensor.data_location() == onnx::TensorProto::EXTERNAL)
    return std::nullopt;
  auto decoded = decodeTensorProto(tensor.SerializeAsString(), "");
  if (!decoded || decoded->tensor.bytes.size() != 1)
    return std::nullopt;
  return decoded->tensor.bytes[0] != std::byte{0};
}

/// A single 64-bit integer, if that is what the tensor holds.
static std::optional<int64_t> integerOf(const onnx::TensorProto &tensor) {
  if (tensor.data_type() != onnx::TensorProto::INT64 ||
      tensor.data_location() == onnx::TensorProto::EXTERNAL)
    return std::nullopt;
  auto decoded = decodeTensorProto(tensor.SerializeAsString(), "");
  if (!decoded || decoded->tensor.size() != 1)
    return std::nullopt;
  return *decoded->tensor.data<int64_t>();
}

Expander::Expander(onnx::ModelProto &model, const Opsets &opsets,
                   const std::set<std::string> &kept, bool keepLoops)
    : model(model), modelOpsets(std::make_shared<const Opsets>(opsets)), kept(kept),
      keepLoops(keepLoops) {
  for (const auto &function : model.functions())
    functions[{plainDomain(function.domain()), function.name(), function.overload()}] =
        &function;
  const onnx::GraphProto &graph = model.graph();
  for (const auto &input : graph.input())
    valueNames.reserve(input.name());
  for (const auto &tensor : graph.initializer()) {
    valueNames.reserve(tensor.name());
    if (auto value = condition(tensor))
      conditions[tensor.name()] = *value;
  }
  for (const auto &node : graph.node()) {
    for (const auto &output : node.output())
      valueNames.reserve(output);
    if (node.op_type() == "Constant" && node.attribute_size() == 1 &&
        node.output_size() == 1 && node.attribute(0).has_t()) {
      if (auto value = condition(node.attribute(0).t()))
        conditions[node.output(0)] = *value;
      if (auto value = integerOf(node.attribute(0).t()))
        integers[node.output(0)] = *value;
    }
  }
}

/// A nameless or repeated node is called by its first output.
void Expander::nameNodes() {
  auto &nodes = *model.mutable_graph()->mutable_node();
  std::unordered_map<std::string, int> count;
  for (const auto &node : nodes)
    ++count[node.name()];
  // Names that stay go first, so that they really stay.
  for (const auto &node : nodes)
    if (!node.name().empty() && count[node.name()] == 1)
      nodeNames.reserve(node.name());
  for (auto &node : nodes) {
    std::string name = node.name();
    if (name.empty() || count[name] > 1)
      name =
          nodeNames.take(node.output_size() && !node.output(0).empty() ? node.output(0)
                                                                       : node.op_type());
    if (std::string module = modulePathOf(node); !module.empty())
      modules[name] = std::move(module);
    pending.push_back({std::move(node), name, name, modelOpsets});
  }
  nodes.Clear();
}

/// What the bodies of branches and loops read; names that are theirs alone are among it.
static void collectReads(const onnx::AttributeProto &attribute,
                         std::vector<std::string> &read) {
  auto collect = [&](const onnx::GraphProto &inner) {
    for (const onnx::NodeProto &node : inner.node()) {
      read.insert(read.end(), node.input().begin(), node.input().end());
      for (const auto &deeper : node.attribute())
        collectReads(deeper, read);
    }
    for (const auto &output : inner.output())
      read.push_back(output.name());
  };
  if (attribute.has_g())
    collect(attribute.g());
  for (const onnx::GraphProto &inner : attribute.graphs())
    collect(inner);
}

std::vector<std::string> onnx_model::readsOf(const onnx::NodeProto &node) {
  std::vector<std::string> read(node.input().begin(), node.input().end());
  for (const auto &attribute : node.attribute())
    collectReads(attribute, read);
  return read;
}

void onnx_model::renameValues(onnx::NodeProto &node, const NameMap &names) {
  auto replace = [&](std::string &name) {
    if (auto it = names.find(name); it != names.end())
      name = it->second;
  };
  for (auto &input : *node.mutable_input())
    replace(input);
  for (auto &output : *node.mutable_output())
    replace(output);
  auto renameGraph = [&](onnx::GraphProto &graph) {
    for (auto &inner : *graph.mutable_node())
      renameValues(inner, names);
    for (auto &output : *graph.mutable_output())
      replace(*output.mutable_name());
  };
  for (auto &attribute : *node.mutable_attribute()) {
    if (attribute.has_g())
      renameGraph(*attribute.mutable_g());
    for (auto &graph : *attribute.mutable_graphs())
      renameGraph(graph);
  }
}

void Expander::finishNodes(const PendingNode &call, const NameMap &names,
                           std::shared_ptr<const Opsets> opsets,
                           google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes,
                           std::vector<PendingNode> &out) {
  for (auto &node : nodes) {
    renameValues(node, names);
    const std::string &own = node.name().empty() ? node.op_type() : node.name();
    out.push_back(
        {std::move(node), nodeNames.take(call.name + "/" + own), call.origin, opsets});
  }
}

void Expander::passThrough(const PendingNode &call, const std::string &from,
                           const std::string &to, std::vector<PendingNode> &out) {
  PendingNode identity{
      {}, nodeNames.take(call.name + "/Identity"), call.origin, call.opsets};
  identity.proto.set_op_type("Identity");
  identity.proto.add_input(from);
  identity.proto.add_output(to);
  out.push_back(std::move(identity));
}

/// The nodes that replace `call`: the function's body with formal names replaced by the
/// actual ones and inner ones made unique.
std::vector<PendingNode> Expander::inlineFunction(const PendingNode &call,
                                                  onnx::FunctionProto body) {
  onnx::internal::AttributeMap attributes;
  for (const auto &attribute : body.attribute_proto())
    attributes[attribute.name()] = &attribute;
  for (const auto &attribute : call.proto.attribute())
    attributes[attribute.name()] = &attribute;
  onnx::internal::AttributeBinder(attributes).VisitFunction(&body);

  if (call.name == call.origin)
    callInputs[call.origin].assign(call.proto.input().begin(), call.proto.input().end());
  NameMap names;
  for (int i = 0; i < body.input_size(); ++i)
    names[body.input(i)] = i < call.proto.input_size() ? call.proto.input(i) : "";
  std::vector<PendingNode> out;
  std::vector<std::pair<std::string, std::string>> passed;
  for (int i = 0; i < body.output_size() && i < call.proto.output_size(); ++i) {
    const std::string &actual = call.proto.output(i);
    if (actual.empty())
      continue;
    if (!names.emplace(body.output(i), actual).second)
      passed.emplace_back(names[body.output(i)], actual);
  }
  for (const auto &node : body.node())
    for (const auto &output : node.output())
      if (!output.empty() && !names.contains(output))
        names[output] = valueNames.take(call.name + "/" + output);
  auto opsets = std::make_shared<Opsets>(*call.opsets);
  for (const auto &import : body.opset_import())
    (*opsets)[plainDomain(import.domain())] = import.version();
  finishNodes(call, names, opsets, *body.mutable_node(), out);
  for (const auto &[from, to] : passed)
    passThrough(call, from, to, out);
  return out;
}

/// The same for the branch of an If: it has no formal inputs, but initializers.
std::vector<PendingNode> Expander::inlineBranch(const PendingNode &call,
                                                onnx::GraphProto body) {
  std::unordered_set<std::string> computed;
  for (const auto &node : body.node())
    computed.insert(node.output().begin(), node.output().end());
  NameMap names;
  for (auto &tensor : *body.mutable_initializer()) {
    std::string name = valueNames.take(call.name + "/" + tensor.name());
    names[tensor.name()] = name;
    tensor.set_name(name);
    *model.mutable_graph()->add_initializer() = std::move(tensor);
  }
  std::vector<std::pair<std::string, std::string>> passed;
  for (int i = 0; i < body.output_size() && i < call.proto.output_size(); ++i) {
    const std::string &inner = body.output(i).name(), &actual = call.proto.output(i);
    if (actual.empty())
      continue;
    if (!computed.contains(inner) || !names.emplace(inner, actual).second)
      passed.emplace_back(names.contains(inner) ? names[inner] : inner, actual);
  }
  for (const std::string &output : computed)
    if (!output.empty() && !names.contains(output))
      names[output] = valueNames.take(call.name + "/" + output);
  std::vector<PendingNode> out;
  finishNodes(call, names, call.opsets, *body.mutable_node(), out);
  for (const auto &[from, to] : passed)
    passThrough(call, from, to, out);
  return out;
}

const onnx::GraphProto *Expander::takenBranch(const onnx::NodeProto &node) const {
  if (node.op_type() != "If" || !plainDomain(node.domain()).empty() ||
      node.input_size() != 1)
    return nullptr;
  auto known = conditions.find(node.input(0));
  if (known == conditions.end())
    return nullptr;
  for (const auto &attribute : node.attribute())
    if (attribute.name() == (known->second ? "then_branch" : "else_branch"))
      return &attribute.g();
  return nullptr;
}

/// Appends `node`, or what it stands for if it calls a function of the model or is an
/// If with a known condition.
Expected<void> Expander::expandLocal(PendingNode node, std::vector<PendingNode> &out) {
  const onnx::NodeProto &proto = node.proto;
  std::vector<PendingNode> inner;
  const onnx::FunctionProto *function = nullptr;
  if (const auto *branch = takenBranch(proto)) {
    inner = inlineBranch(node, *branch);
  } else if (auto it = functions.find(
                 {plainDomain(proto.domain()), proto.op_type(), proto.overload()});
             it != functions.end()) {
    function = it->second;
    if (std::find(stack.begin(), stack.end(), function) != stack.end())
      return makeError("function '" + function->name() + "' calls itself (from node '" +
                       node.origin + "')");
    inner = inlineFunction(node, *function);
  } else {
    out.push_back(std::move(node));
    return {};
  }
  // Functions that call each other twice double the nodes with every level.
  expanded += inner.size();
  if (expanded > mostExpanded || stack.size() > mostNested)
    return makeError("expanding node '" + node.origin + "' needs more than " +
                     std::to_string(mostExpanded) + " nodes or " +
                     std::to_string(mostNested) + " nested functions");
  if (function)
    stack.push_back(function);
  for (PendingNode &each : inner)
    if (auto done = expandLocal(std::move(each), out); !done)
      return done;
  if (function)
    stack.pop_back();
  return {};
}

/// Operators that got a function body late, but have meant the same since opset 7: the
/// newest body is good for the oldest node.
static bool hasTimelessBody(const std::string &op) {
  // clang-format off
  static const std::unordered_set<std::string> ops = {
      "Elu", "HardSigmoid", "LeakyRelu", "PRelu", "Relu", "Selu", "Shrink", "Softplus",
      "Softsign", "ThresholdedRelu"};
  // clang-format on
  return ops.contains(op);
}

/// The value of an initializer, or of a Constant, of one integer.
std::optional<int64_t> Expander::knownInteger(const std::string &value) const {
  if (auto known = integers.find(value); known != integers.end())
    return known->second;
  for (const auto &tensor : model.graph().initializer())
    if (tensor.name() == value)
      return integerOf(tensor);
  return std::nullopt;
}

/// Appends the iterations of a Scan or Loop if their number is known.
bool Expander::unroll(const PendingNode &node, std::vector<PendingNode> &out) {
  const onnx::NodeProto &proto = node.proto;
  bool isScan = proto.op_type() == "Scan", isLoop = proto.op_type() == "Loop";
  if (!plainDomain(proto.domain()).empty() || !(isScan || isLoop) ||
      expanded > mostExpanded)
    return false;
  UnrollNames names{[&](const std::string &name) { return valueNames.take(name); },
                    [&](const std::string &name) { return nodeNames.take(name); },
                    [&](const PendingNode &call, onnx::FunctionProto body) {
                      return inlineFunction(call, std::move(body));
                    }};
  std::vector<PendingNode> made;
  Unroller unroller(node, std::move(names), made, keepLoops);
  std::optional<bool> condition = true;
  if (isLoop && proto.input_size() > 1 && !proto.input(1).empty()) {
    auto known = conditions.find(proto.input(1));
    condition = known == conditions.end() ? std::nullopt : std::optional(known->second);
  }
  bool isDone = isScan ? unroller.scan(protoTypes)
                       : proto.input_size() > 1 &&
                             unroller.loopTimes(knownInteger(proto.input(0)), condition);
  if (!isDone)
    return false;
  expanded += made.size();
  for (PendingNode &each : made)
    out.push_back(std::move(each));
  return true;
}

/// Appends both branches of an If whose condition is not known, between two nodes that
/// say what they read and what they give (see ownDomain).
bool Expander::keepBranches(const PendingNode &node, std::vector<PendingNode> &out) {
  const onnx::NodeProto &proto = node.proto;
  if (!plainDomain(proto.domain()).empty() || proto.op_type() != "If" ||
      proto.input_size() != 1 || expanded > mostExpanded)
    return false;
  std::vector<PendingNode> both;
  std::vector<std::string> given;
  for (const char *branch : {"then_branch", "else_branch"})
    for (const auto &attribute : proto.attribute()) {
      if (attribute.name() != branch || attribute.g().output_size() < proto.output_size())
        continue;
      PendingNode call = node;
      for (std::string &output : *call.proto.mutable_output()) {
        output = valueNames.take(node.name + "/" + output);
        given.push_back(output);
      }
      for (PendingNode &each : inlineBranch(call, attribute.g()))
        both.push_back(std::move(each));
    }
  auto outputs = static_cast<size_t>(proto.output_size());
  if (given.size() != 2 * outputs)
    return false;
  std::unordered_set<std::string> made;
  for (const PendingNode &each : both)
    made.insert(each.proto.output().begin(), each.proto.output().end());
  PendingNode begin{{}, nodeNames.take(node.name + "/IfBegin"), node.origin, node.opsets};
  begin.proto.set_op_type("IfBegin");
  begin.proto.set_domain(std::string(ownDomain));
  NameMap seen;
  auto see = [&](const std::string &value) {
    if (!seen.emplace(value, "").second)
      return;
    seen[value] = valueNames.take(node.name + "/" + value);
    begin.proto.add_input(value);
    begin.proto.add_output(seen[value]);
  };
  see(proto.input(0)); // so that the end needs the beginning, whatever branches read
  for (const PendingNode &each : both)
    for (const std::string &value : readsOf(each.proto))
      if (!value.empty() && !made.contains(value) && valueNames.has(value))
        see(value);
  PendingNode end{{}, nodeNames.take(node.name + "/IfEnd"), node.origin, node.opsets};
  end.proto.set_op_type("IfEnd");
  end.proto.set_domain(std::string(ownDomain));
  end.proto.add_input(seen[proto.input(0)]);
  for (const std::string &value : given)
    end.proto.add_input(value);
  *end.proto.mutable_output() = proto.output();
  onnx::AttributeProto &other = *end.proto.add_attribute();
  other.set_name("begin");
  other.set_type(onnx::AttributeProto::STRING);
  other.set_s(begin.name);
  expanded += both.size();
  out.push_back(std::move(begin));
  for (PendingNode &each : both) {
    renameValues(each.proto, seen);
    out.push_back(std::move(each));
  }
  out.push_back(std::move(end));
  return true;
}

/// Appends `node`, or the body that its operator's definition gives; says whether it
/// did the latter. Bodies that depend on input types are only built in the outermost
/// call, since the types of values made meanwhile are not known yet.
bool Expander::expandSchema(PendingNode node, bool mayUseTypes,
                            std::vector<PendingNode> &out) {
  std::string domain = plainDomain(node.proto.domain());
  const std::string &op = node.proto.op_type();
  if (mayUseTypes && (unroll(node, out) || keepBranches(node, out)))
    return true;
  auto version = node.opsets->find(domain);
  const onnx::OpSchema *schema =
      version == node.opsets->end() || (domain.empty() && kept.contains(op))
          ? nullptr
          : onnx::OpSchemaRegistry::Schema(op, static_cast<int>(version->second), domain);
  onnx::FunctionProto body;
  bool found = false;
  if (schema) {
    int opset = static_cast<int>(version->second);
    if (const auto *fixed = schema->GetFunction(opset, false)) {
      body = *fixed;
      found = true;
    } else if (schema->HasContextDependentFunction() && mayUseTypes) {
      std::vector<onnx::TypeProto> inputs;
      for (const auto &input : node.proto.input())
        inputs.push_back(protoTypes[input]);
      onnx::FunctionBodyBuildContextImpl context(node.proto, inputs);
      try {
        found = schema->BuildContextDependentFunction(context, body, opset);
      } catch (const std::exception &) {
        found = false; // no body for these types: the operator stays as it is
      }
    } else if (domain.empty() && hasTimelessBody(op)) {
      if (const auto *late = onnx::OpSchemaRegistry::Schema(op, domain)->GetFunction()) {
        body = *late;
        found = true;
      }
    }
  }
  if (!found) {
    out.push_back(std::move(node));
    return false;
  }
  // A body refers to attributes of the call; those left out have the schema's default.
  for (const auto &[name, attribute] : schema->attributes()) {
    const auto &given = node.proto.attribute();
    bool isGiven = std::any_of(given.begin(), given.end(),
                               [&](const auto &a) { return a.name() == name; });
    if (!isGiven && attribute.default_value.has_name())
      *node.proto.add_attribute() = attribute.default_value;
  }
  for (PendingNode &each : inlineFunction(node, std::move(body)))
    expandSchema(std::move(each), false, out);
  return true;
}

/// Runs ONNX's inference over the nodes for `protoTypes`. Failures are no errors here:
/// what stays unknown is treated as such, and the compiler infers shapes itself.
void Expander::inferTypes(std::vector<PendingNode> &nodes) {
  onnx::GraphProto &graph = *model.mutable_graph();
  for (PendingNode &node : nodes)
    graph.add_node()->Swap(&node.proto);
  graph.clear_value_info();
  try {
    onnx::ShapeInferenceOptions options{false, 0, true};
    onnx::shape_inference::InferShapes(model, onnx::OpSchemaRegistry::Instance(),
                                       options);
  } catch (const std::exception &) {
  }
  for (size_t i = 0; i < nodes.size(); ++i)
    graph.mutable_node(static_cast<int>(i))->Swap(&nodes[i].proto);
  graph.clear_node();
  protoTypes.clear();
  for (const auto *values : {&graph.value_info(), &graph.input(), &graph.output()})
    for (const auto &value : *values)
      protoTypes[value.name()] = value.type();
  for (const auto &tensor : graph.initializer()) {
    auto &type = *protoTypes[tensor.name()].mutable_tensor_type();
    type.set_elem_type(tensor.data_type());
    type.clear_shape();
    for (int64_t extent : tensor.dims())
      type.mutable_shape()->add_dim()->set_dim_value(extent);
    type.mutable_shape();
  }
}

static std::optional<TypeInfo> plainType(const onnx::TypeProto &proto) {
  if (!proto.has_tensor_type())
    return std::nullopt;
  auto type = dtypeFromOnnx(proto.tensor_type().elem_type());
  if (!type)
    return std::nullopt;
  TypeInfo info{*type, std::nullopt};
  if (proto.tensor_type().has_shape()) {
    info.shape.emplace();
    for (const auto &dim : proto.tensor_type().shape().dim())
      info.shape->push_back(dim.has_dim_value() ? dim.dim_value() : -1);
  }
  return info;
}

Expected<ExpandedGraph> Expander::run() {
  nameNodes();
  std::vector<PendingNode> nodes;
  for (PendingNode &node : pending)
    if (auto done = expandLocal(std::move(node), nodes); !done)
      return tl::unexpected(done.error());
  // The functions are gone from the nodes; inference need not look at them.
  functions.clear();
  model.clear_functions();
  inferTypes(nodes);
  // Every round expands what the types of the round before allow. Function bodies nest
  // three deep at most in the ONNX of today.
  constexpr int mostRounds = 8;
  bool changed = true;
  for (int round = 0; changed && round < mostRounds; ++round) {
    changed = false;
    std::vector<PendingNode> next;
    for (PendingNode &node : nodes)
      changed |= expandSchema(std::move(node), true, next);
    nodes = std::move(next);
    if (changed)
      inferTypes(nodes);
  }
  if (auto ok = checkTypes(nodes, protoTypes); !ok)
    return tl::unexpected(ok.error());
  // Those of the model's own graph are placed; these came out of what was inlined.
  for (const PendingNode &node : nodes)
    if (isGradient(node.proto))
      return makeError("node '" + node.name +
                       "' (Gradient) stands in a function, a branch or a loop; it names "
                       "values that it differentiates, which must be of the model's own "
                       "graph");
  ExpandedGraph result{std::move(nodes), {}, std::move(modules), std::move(callInputs)};
  for (const auto &[name, proto] : protoTypes)
    if (auto type = plainType(proto))
      result.types.emplace(name, std::move(*type));
  return result;
}

Expected<ExpandedGraph> onnx_model::expandFunctions(onnx::ModelProto &model,
                                                    const Opsets &opsets,
                                                    const std::set<std::string> &kept,
                                                    bool keepLoops) {
  declareOwnOperators(model);
  if (auto placed = placeGradients(*model.mutable_graph()); !placed)
    return tl::unexpected(placed.error());
  return Expander(model, opsets, kept, keepLoops).run();
}
