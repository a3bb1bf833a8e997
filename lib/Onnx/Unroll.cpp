//===- Unroll.cpp - Scan and Loop of known length -------------------------===//
//
// Unrolled, the body stands in the program once per iteration. What it carries goes from
// one to the next by name; slices of scanned inputs and the joined results are nodes of
// their own.
//
//===----------------------------------------------------------------------===//
#include "Unroll.h"

#include "partita/Base/Files/TensorProto.h"

#include <algorithm>

using namespace partita;
using namespace partita::onnx_model;

static const onnx::AttributeProto *attributeOf(const onnx::NodeProto &node,
                                               const std::string &name) {
  for (const auto &attribute : node.attribute())
    if (attribute.name() == name)
      return &attribute;
  return nullptr;
}

/// Element `i` of a list attribute, 0 where it is absent.
static int64_t listed(const onnx::NodeProto &node, const char *name, int i) {
  const auto *list = attributeOf(node, name);
  return list && i < list->ints_size() ? list->ints(i) : 0;
}

onnx::FunctionProto onnx_model::bodyAsFunction(const onnx::GraphProto &body) {
  onnx::FunctionProto function;
  for (const auto &input : body.input())
    function.add_input(input.name());
  for (const auto &output : body.output())
    function.add_output(output.name());
  for (const auto &tensor : body.initializer()) {
    onnx::NodeProto &constant = *function.add_node();
    constant.set_op_type("Constant");
    constant.add_output(tensor.name());
    onnx::AttributeProto &value = *constant.add_attribute();
    value.set_name("value");
    value.set_type(onnx::AttributeProto::TENSOR);
    *value.mutable_t() = tensor;
  }
  for (const auto &node : body.node())
    *function.add_node() = node;
  return function;
}

PendingNode &Unroller::add(const std::string &op, const std::vector<std::string> &inputs,
                           const std::string &output) {
  PendingNode node{{}, names.node(loop.name + "/" + op), loop.origin, loop.opsets};
  node.proto.set_op_type(op);
  for (const std::string &input : inputs)
    node.proto.add_input(input);
  node.proto.add_output(output);
  out.push_back(std::move(node));
  return out.back();
}

static void setInt(PendingNode &node, const std::string &name, int64_t value) {
  onnx::AttributeProto &attribute = *node.proto.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INT);
  attribute.set_i(value);
}

/// A constant of one i64: a scalar, or a list of one.
std::string Unroller::integer(int64_t value, bool isList) {
  std::string name = names.value(loop.name + "/constant");
  PendingNode &node = add("Constant", {}, name);
  onnx::AttributeProto &attribute = *node.proto.add_attribute();
  attribute.set_name("value");
  attribute.set_type(onnx::AttributeProto::TENSOR);
  attribute.mutable_t()->set_data_type(onnx::TensorProto::INT64);
  attribute.mutable_t()->add_int64_data(value);
  if (isList)
    attribute.mutable_t()->add_dims(1);
  return name;
}

/// `value` with a dim of size 1 at `axis`.
std::string Unroller::unsqueezed(const std::string &value, int64_t axis) {
  std::string result = names.value(loop.name + "/slice");
  auto version = loop.opsets->find("");
  if (version != loop.opsets->end() && version->second >= 13) {
    std::string axes = integer(axis, true);
    add("Unsqueeze", {value, axes}, result);
    return result;
  }
  onnx::AttributeProto &attribute =
      *add("Unsqueeze", {value}, result).proto.add_attribute();
  attribute.set_name("axes");
  attribute.set_type(onnx::AttributeProto::INTS);
  attribute.add_ints(axis);
  return result;
}

/// What the iterations give is joined; `axis` counts in the result.
void Unroller::join(const std::vector<std::string> &parts, int64_t axis,
                    const std::string &result) {
  if (result.empty())
    return;
  std::vector<std::string> slices;
  for (const std::string &part : parts)
    slices.push_back(unsqueezed(part, axis));
  setInt(add("Concat", slices, result), "axis", axis);
}

std::vector<std::string> Unroller::iterate(const onnx::FunctionProto &body,
                                           const std::vector<std::string> &inputs) {
  PendingNode call{{}, loop.name, loop.origin, loop.opsets};
  std::vector<std::string> results;
  for (const std::string &input : inputs)
    call.proto.add_input(input);
  for (const std::string &output : body.output()) {
    results.push_back(names.value(loop.name + "/" + output));
    call.proto.add_output(results.back());
  }
  for (PendingNode &node : names.inlined(call, body))
    out.push_back(std::move(node));
  return results;
}

void Unroller::finish(const std::vector<std::string> &states) {
  for (size_t i = 0; i < states.size(); ++i)
    if (static_cast<int>(i) < loop.proto.output_size() &&
        !loop.proto.output(static_cast<int>(i)).empty())
      add("Identity", {states[i]}, loop.proto.output(static_cast<int>(i)));
}

bool Unroller::scan(const ProtoTypes &types) {
  const auto *graph = attributeOf(loop.proto, "body");
  const auto *count = attributeOf(loop.proto, "num_scan_inputs");
  auto version = loop.opsets->find("");
  // Before opset 9 a Scan had a batch dim of its own.
  if (!graph || !count || version == loop.opsets->end() || version->second < 9)
    return false;
  int scanned = static_cast<int>(count->i());
  int states = loop.proto.input_size() - scanned;
  auto axisOf = [&](int i) -> std::optional<std::pair<int64_t, int64_t>> {
    auto type = types.find(loop.proto.input(states + i));
    if (type == types.end() || !type->second.tensor_type().has_shape())
      return std::nullopt;
    const auto &dims = type->second.tensor_type().shape().dim();
    int64_t axis = listed(loop.proto, "scan_input_axes", i);
    axis += axis < 0 ? dims.size() : 0;
    if (axis < 0 || axis >= dims.size() || !dims[static_cast<int>(axis)].has_dim_value())
      return std::nullopt;
    return std::pair(axis, dims[static_cast<int>(axis)].dim_value());
  };
  auto first = scanned > 0 && states >= 0 ? axisOf(0) : std::nullopt;
  if (!first || first->second < 1 || graph->g().input_size() != states + scanned)
    return false;
  if (keepLoops && first->second > alwaysUnrolled &&
      keptScan(graph->g(), types, first->second))
    return true;
  if (first->second > mostIterations)
    return false;
  onnx::FunctionProto body = bodyAsFunction(graph->g());
  int outputs = body.output_size() - states;
  std::vector<std::string> carried(loop.proto.input().begin(),
                                   loop.proto.input().begin() + states);
  std::vector<std::vector<std::string>> given(static_cast<size_t>(std::max(0, outputs)));
  for (int64_t t = 0; t < first->second; ++t) {
    std::vector<std::string> inputs = carried;
    for (int i = 0; i < scanned; ++i) {
      auto axis = axisOf(i);
      if (!axis || axis->second != first->second)
        return false;
      bool isReverse = listed(loop.proto, "scan_input_directions", i) != 0;
      std::string place = integer(isReverse ? first->second - 1 - t : t, false);
      inputs.push_back(names.value(loop.name + "/slice"));
      setInt(add("Gather", {loop.proto.input(states + i), place}, inputs.back()), "axis",
             axis->first);
    }
    std::vector<std::string> results = iterate(body, inputs);
    carried.assign(results.begin(), results.begin() + states);
    for (int i = 0; i < outputs; ++i)
      given[static_cast<size_t>(i)].push_back(results[static_cast<size_t>(states + i)]);
  }
  finish(carried);
  for (int i = 0; i < outputs && states + i < loop.proto.output_size(); ++i) {
    auto &parts = given[static_cast<size_t>(i)];
    if (listed(loop.proto, "scan_output_directions", i) != 0)
      std::reverse(parts.begin(), parts.end());
    join(parts, listed(loop.proto, "scan_output_axes", i), loop.proto.output(states + i));
  }
  return true;
}

/// Whether the body goes on whatever it computes: its condition is the one it was given,
/// or a constant.
static bool goesOn(const onnx::GraphProto &body) {
  std::string condition = body.output(0).name();
  for (const auto &tensor : body.initializer())
    if (tensor.name() == condition)
      return true;
  for (int i = body.node_size(); i-- > 0;) {
    const onnx::NodeProto &node = body.node(i);
    if (node.output_size() == 0 || node.output(0) != condition)
      continue;
    if (node.op_type() == "Constant")
      return true;
    if (node.op_type() != "Identity")
      return false;
    condition = node.input(0);
  }
  return body.input_size() > 1 && condition == body.input(1).name();
}

/// Without an iteration what is carried comes out as it went in. What would be collected
/// has no rows, and stays for the compiler to report.
bool Unroller::loopNever() {
  std::vector<std::string> carried(loop.proto.input().begin() + 2,
                                   loop.proto.input().end());
  for (int i = static_cast<int>(carried.size()); i < loop.proto.output_size(); ++i)
    if (!loop.proto.output(i).empty())
      return false;
  finish(carried);
  return true;
}

bool Unroller::loopTimes(std::optional<int64_t> trips, std::optional<bool> condition) {
  const auto *graph = attributeOf(loop.proto, "body");
  if ((trips && *trips < 1) || condition == false)
    return loopNever();
  bool isKept = keepLoops && trips && *trips > alwaysUnrolled;
  if (!graph || !trips || (*trips > mostIterations && !isKept) || !condition ||
      graph->g().output_size() == 0 || !goesOn(graph->g()))
    return false;
  onnx::FunctionProto body = bodyAsFunction(graph->g());
  int states = loop.proto.input_size() - 2;
  int outputs = body.output_size() - 1 - states;
  if (states < 0 || outputs < 0 || body.input_size() != states + 2)
    return false;
  std::string goOn = loop.proto.input(1);
  if (goOn.empty()) {
    goOn = names.value(loop.name + "/condition");
    std::string one = integer(1, false);
    setInt(add("Cast", {one}, goOn), "to", onnx::TensorProto::BOOL);
  }
  if (isKept) {
    keptLoop(body, goOn, *trips);
    return true;
  }
  std::vector<std::string> carried(loop.proto.input().begin() + 2,
                                   loop.proto.input().end());
  std::vector<std::vector<std::string>> given(static_cast<size_t>(outputs));
  for (int64_t t = 0; t < *trips; ++t) {
    std::vector<std::string> inputs{integer(t, false), goOn};
    inputs.insert(inputs.end(), carried.begin(), carried.end());
    std::vector<std::string> results = iterate(body, inputs);
    carried.assign(results.begin() + 1, results.begin() + 1 + states);
    for (int i = 0; i < outputs; ++i)
      given[static_cast<size_t>(i)].push_back(
          results[static_cast<size_t>(1 + states + i)]);
  }
  finish(carried);
  for (int i = 0; i < outputs && states + i < loop.proto.output_size(); ++i)
    join(given[static_cast<size_t>(i)], 0, loop.proto.output(states + i));
  return true;
}
