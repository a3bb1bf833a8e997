//===- KeepLoops.cpp - Loops whose body stands once -----------------------===//
//
// The body of a Scan or Loop is inlined once, between a node that says what an iteration
// sees and one that says what comes out (ownDomain). All else of the loader works on it
// as on any node.
//
//===----------------------------------------------------------------------===//
#include "Unroll.h"

#include "partita/Onnx/Model.h"

#include <onnx/defs/schema.h>
#include <onnx/defs/shape_inference.h>

#include <algorithm>
#include <numeric>

using namespace partita;
using namespace partita::onnx_model;

static int64_t intOf(onnx::InferenceContext &context, const char *name) {
  const auto *attribute = context.getAttribute(name);
  return attribute ? attribute->i() : 0;
}

/// What is carried keeps its type; of others one row is seen, or all are given.
static void inferEnds(onnx::InferenceContext &context, bool isBegin) {
  auto carried = static_cast<size_t>(intOf(context, "carried"));
  for (size_t i = 0; i < context.getNumOutputs(); ++i) {
    const onnx::TypeProto *from = context.getInputType(i);
    if (!from || !from->has_tensor_type())
      continue;
    onnx::TypeProto &to = *context.getOutputType(i);
    to = *from;
    if (i < carried || !from->tensor_type().has_shape())
      continue;
    auto &shape = *to.mutable_tensor_type()->mutable_shape();
    shape.Clear();
    const auto &dims = from->tensor_type().shape().dim();
    if (!isBegin)
      shape.add_dim()->set_dim_value(intOf(context, "trips"));
    for (int d = isBegin ? 1 : 0; d < dims.size(); ++d)
      *shape.add_dim() = dims[d];
  }
}

/// Of IfEnd the inputs are the condition, what one branch gives, what the other gives.
static void declareBranches() {
  for (bool isBegin : {true, false}) {
    onnx::OpSchema schema;
    schema.SetName(isBegin ? "IfBegin" : "IfEnd")
        .SetDomain(std::string(ownDomain))
        .SinceVersion(1)
        .Attr("begin", "the other node", onnx::AttributeProto::STRING, std::string())
        .Input(0, "values", "", "T", onnx::OpSchema::Variadic, false, 0)
        .Output(0, "results", "", "T", onnx::OpSchema::Variadic, false, 0)
        .TypeConstraint("T", onnx::OpSchema::all_tensor_types_ir13(), "")
        .TypeAndShapeInferenceFunction([isBegin](onnx::InferenceContext &context) {
          for (size_t i = 0; i < context.getNumOutputs(); ++i)
            if (const auto *from = context.getInputType(isBegin ? i : i + 1)) {
              auto &to = *context.getOutputType(i)->mutable_tensor_type();
              to.set_elem_type(from->tensor_type().elem_type());
              // The branches may give other shapes, of which import takes one.
              if (isBegin && from->tensor_type().has_shape())
                *to.mutable_shape() = from->tensor_type().shape();
            }
        });
    onnx::RegisterSchema(std::move(schema));
  }
}

/// ONNX Runtime has LayerNormalization in every opset, and its optimizers write it into
/// models of any: below the opset in which it came, its definition is the same.
static void declareEarlyNorm() {
  const char *name = "LayerNormalization";
  onnx::OpSchema schema = *onnx::OpSchemaRegistry::Schema(name, 17, "");
  onnx::RegisterSchema(std::move(schema.SinceVersion(1)));
}

void onnx_model::declareOwnOperators(onnx::ModelProto &model) {
  const std::string domain(ownDomain);
  static const bool declared = [&] {
    onnx::OpSchemaRegistry::DomainToVersionRange::Instance().AddDomainToVersion(domain, 1,
                                                                                1);
    declareGradients();
    for (bool isBegin : {true, false}) {
      onnx::OpSchema schema;
      schema.SetName(isBegin ? "RepeatBegin" : "RepeatEnd")
          .SetDomain(domain)
          .SinceVersion(1)
          .Attr("trips", "iterations", onnx::AttributeProto::INT)
          .Attr("carried", "values that are carried", onnx::AttributeProto::INT)
          .Attr("begin", "the other node", onnx::AttributeProto::STRING, std::string())
          .Input(0, "values", "", "T", onnx::OpSchema::Variadic, false, 0)
          .Output(0, "results", "", "T", onnx::OpSchema::Variadic, false, 0)
          .TypeConstraint("T", onnx::OpSchema::all_tensor_types_ir13(), "")
          .TypeAndShapeInferenceFunction([isBegin](onnx::InferenceContext &context) {
            inferEnds(context, isBegin);
          });
      onnx::RegisterSchema(std::move(schema));
    }
    declareBranches();
    declareEarlyNorm();
    return true;
  }();
  (void)declared;
  for (const auto &import : model.opset_import())
    if (import.domain() == domain)
      return;
  auto &import = *model.add_opset_import();
  import.set_domain(domain);
  import.set_version(1);
}

static onnx::AttributeProto &addAttribute(PendingNode &node, const std::string &name,
                                          onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto &attribute = *node.proto.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}

static void addInt(PendingNode &node, const std::string &name, int64_t value) {
  addAttribute(node, name, onnx::AttributeProto::INT).set_i(value);
}

std::string Unroller::integers(const std::vector<int64_t> &values) {
  std::string name = names.value(loop.name + "/constant");
  auto &tensor =
      *addAttribute(add("Constant", {}, name), "value", onnx::AttributeProto::TENSOR)
           .mutable_t();
  tensor.set_data_type(onnx::TensorProto::INT64);
  tensor.add_dims(static_cast<int64_t>(values.size()));
  for (int64_t value : values)
    tensor.add_int64_data(value);
  return name;
}

/// The rows in the order in which the iterations see them, or give them.
std::string Unroller::turned(const std::string &rows, int64_t trips, bool isReverse) {
  if (!isReverse)
    return rows;
  std::vector<int64_t> places(static_cast<size_t>(trips));
  std::iota(places.rbegin(), places.rend(), 0);
  std::string order = integers(places), result = names.value(loop.name + "/turned");
  addInt(add("Gather", {rows, order}, result), "axis", 0);
  return result;
}

/// With dim `axis` before the others.
std::string Unroller::atFront(const std::string &value, int64_t axis, int64_t rank) {
  if (axis == 0)
    return value;
  std::string result = names.value(loop.name + "/rows");
  auto &order =
      addAttribute(add("Transpose", {value}, result), "perm", onnx::AttributeProto::INTS);
  order.add_ints(axis);
  for (int64_t d = 0; d < rank; ++d)
    if (d != axis)
      order.add_ints(d);
  return result;
}

std::vector<std::string> Unroller::kept(
    int64_t trips, const std::vector<std::string> &carried,
    const std::vector<std::string> &scanned,
    const std::function<std::vector<std::string>(const std::vector<std::string> &)>
        &step) {
  auto count = static_cast<int64_t>(carried.size());
  auto addEnd = [&](const char *op, const std::vector<std::string> &inputs,
                    std::vector<std::string> &outputs) -> PendingNode & {
    PendingNode node{{}, names.node(loop.name + "/" + op), loop.origin, loop.opsets};
    node.proto.set_op_type(op);
    node.proto.set_domain(std::string(ownDomain));
    for (const std::string &input : inputs) {
      node.proto.add_input(input);
      outputs.push_back(names.value(loop.name + "/value"));
      node.proto.add_output(outputs.back());
    }
    addInt(node, "trips", trips);
    addInt(node, "carried", count);
    out.push_back(std::move(node));
    return out.back();
  };
  std::vector<std::string> inputs = carried, seen, results;
  inputs.insert(inputs.end(), scanned.begin(), scanned.end());
  std::string begin = addEnd("RepeatBegin", inputs, seen).name;
  std::vector<std::string> given = step(seen);
  addAttribute(addEnd("RepeatEnd", given, results), "begin", onnx::AttributeProto::STRING)
      .set_s(begin);
  return results;
}

static const onnx::AttributeProto *find(const onnx::NodeProto &node, const char *name) {
  for (const auto &attribute : node.attribute())
    if (attribute.name() == name)
      return &attribute;
  return nullptr;
}

static int64_t listedAt(const onnx::NodeProto &node, const char *name, int i) {
  const auto *list = find(node, name);
  return list && i < list->ints_size() ? list->ints(i) : 0;
}

bool Unroller::keptScan(const onnx::GraphProto &graph, const ProtoTypes &types,
                        int64_t trips) {
  const onnx::NodeProto &proto = loop.proto;
  onnx::FunctionProto body = bodyAsFunction(graph);
  int scannedCount = static_cast<int>(find(proto, "num_scan_inputs")->i());
  int states = proto.input_size() - scannedCount, rows = body.output_size() - states;
  // Where rows are another dim of a result, its rank would have to be known.
  for (int i = 0; i < rows; ++i)
    if (listedAt(proto, "scan_output_axes", i) != 0)
      return false;
  std::vector<std::string> carried(proto.input().begin(), proto.input().begin() + states);
  std::vector<std::string> scanned;
  for (int i = 0; i < scannedCount; ++i) {
    const std::string &name = proto.input(states + i);
    auto type = types.find(name);
    if (type == types.end() || !type->second.tensor_type().has_shape())
      return false;
    const auto &dims = type->second.tensor_type().shape().dim();
    int64_t axis = listedAt(proto, "scan_input_axes", i);
    axis += axis < 0 ? dims.size() : 0;
    if (axis < 0 || axis >= dims.size() ||
        dims[static_cast<int>(axis)].dim_value() != trips)
      return false;
    scanned.push_back(turned(atFront(name, axis, dims.size()), trips,
                             listedAt(proto, "scan_input_directions", i) != 0));
  }
  std::vector<std::string> results =
      kept(trips, carried, scanned,
           [&](const std::vector<std::string> &seen) { return iterate(body, seen); });
  for (int i = 0; i < rows; ++i) {
    std::string &name = results[static_cast<size_t>(states + i)];
    name = turned(name, trips, listedAt(proto, "scan_output_directions", i) != 0);
  }
  finish(results);
  return true;
}

void Unroller::keptLoop(const onnx::FunctionProto &body, const std::string &goOn,
                        int64_t trips) {
  std::vector<int64_t> numbers(static_cast<size_t>(trips));
  std::iota(numbers.begin(), numbers.end(), 0);
  std::vector<std::string> carried(loop.proto.input().begin() + 2,
                                   loop.proto.input().end());
  finish(kept(trips, carried, {integers(numbers)},
              [&](const std::vector<std::string> &seen) {
                std::vector<std::string> inputs{seen.back(), goOn};
                inputs.insert(inputs.end(), seen.begin(), seen.end() - 1);
                std::vector<std::string> results = iterate(body, inputs);
                results.erase(results.begin()); // the condition
                return results;
              }));
}
