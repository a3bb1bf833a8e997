//===- Shapes.cpp - Static shapes for the inputs --------------------------===//
#include "Internal.h"

#include "partita/Base/Files/TensorProto.h"

#include <charconv>
#include <unordered_set>

using namespace partita;
using namespace partita::onnx_model;

Expected<ShapeBinding> onnx_model::parseShapeBinding(std::string_view text) {
  auto failure = [&](const std::string &why) {
    return makeError("shape '" + std::string(text) + "': " + why);
  };
  // The last '=': exporters put odd characters into names, but never into extents.
  size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0)
    return failure("expected NAME=1,128");
  ShapeBinding binding{std::string(text.substr(0, equals)), {}};
  std::string_view rest = text.substr(equals + 1);
  while (!rest.empty()) {
    size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    int64_t extent = 0;
    auto [stop, status] = std::from_chars(item.data(), item.data() + item.size(), extent);
    if (status != std::errc() || stop != item.data() + item.size() || extent < 0)
      return failure("'" + std::string(item) + "' is not an extent");
    binding.shape.push_back(extent);
    if (comma == std::string_view::npos)
      break;
    rest = rest.substr(comma + 1);
    if (rest.empty())
      return failure("there is nothing after the last comma");
  }
  return binding;
}

std::string ShapeBinding::str() const {
  std::string text = name + "=";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? "," : "") + std::to_string(shape[i]);
  return text;
}

static std::string shapeText(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

namespace {
/// The inputs of one graph and the extents of symbols found so far.
struct Binder {
  onnx::GraphProto &graph;
  /// Symbol to extent, and who said so.
  std::map<std::string, std::pair<int64_t, std::string>> symbols;
  /// What is wrong with the first input that stays open, and the options that would bind
  /// all of them.
  std::string missing, examples;

  Expected<void> setSymbol(const std::string &symbol, int64_t extent,
                           const std::string &source);
  Expected<void> bindInput(onnx::ValueInfoProto &input, const ShapeBinding &binding);
  Expected<void> bindSymbol(const ShapeBinding &binding);
  Expected<void> resolve(onnx::ValueInfoProto &input);
  onnx::ValueInfoProto *find(const std::string &name);
};
} // namespace

/// A dim that the file leaves open: a symbol, nothing at all, or a negative number.
static bool isOpen(const onnx::TensorShapeProto::Dimension &dim) {
  return !dim.has_dim_value() || dim.dim_value() < 0;
}

std::string onnx_model::symbolOf(const onnx::TensorShapeProto::Dimension &dim) {
  const std::string &name = dim.dim_param();
  bool isPlaceholder = name == "?" || name == "-1" || name == "None";
  return isPlaceholder ? std::string() : name;
}

onnx::ValueInfoProto *Binder::find(const std::string &name) {
  for (auto &input : *graph.mutable_input())
    if (input.name() == name)
      return &input;
  return nullptr;
}

Expected<void> Binder::setSymbol(const std::string &symbol, int64_t extent,
                                 const std::string &source) {
  auto [it, isNew] = symbols.emplace(symbol, std::pair(extent, source));
  if (!isNew && it->second.first != extent)
    return makeError("dimension '" + symbol + "' is " + std::to_string(it->second.first) +
                     " by " + it->second.second + ", but " + std::to_string(extent) +
                     " by " + source);
  return {};
}

Expected<void> Binder::bindInput(onnx::ValueInfoProto &input,
                                 const ShapeBinding &binding) {
  auto &type = *input.mutable_type()->mutable_tensor_type();
  std::string source = "the shape given for input '" + input.name() + "'";
  if (!type.has_shape())
    for (size_t i = 0; i < binding.shape.size(); ++i)
      type.mutable_shape()->add_dim();
  auto &dims = *type.mutable_shape()->mutable_dim();
  if (static_cast<size_t>(dims.size()) != binding.shape.size())
    return makeError("input '" + input.name() + "' has " + std::to_string(dims.size()) +
                     " dims, but the shape given for it is " + shapeText(binding.shape));
  for (int i = 0; i < dims.size(); ++i) {
    if (!isOpen(dims[i]) && dims[i].dim_value() != binding.shape[i])
      return makeError("dim " + std::to_string(i) + " of input '" + input.name() +
                       "' is " + std::to_string(dims[i].dim_value()) +
                       " in the model, but the shape given for it is " +
                       shapeText(binding.shape));
    if (!symbolOf(dims[i]).empty())
      if (auto set = setSymbol(symbolOf(dims[i]), binding.shape[i], source); !set)
        return set;
    dims[i].set_dim_value(binding.shape[i]);
  }
  return {};
}

Expected<void> Binder::bindSymbol(const ShapeBinding &binding) {
  std::set<std::string> known;
  std::string inputs;
  for (const auto &input : graph.input()) {
    inputs += (inputs.empty() ? "'" : ", '") + input.name() + "'";
    for (const auto &dim : input.type().tensor_type().shape().dim())
      if (!symbolOf(dim).empty())
        known.insert(symbolOf(dim));
  }
  if (!known.contains(binding.name)) {
    std::string message = "a shape is given for '" + binding.name +
                          "', which is not an input (" + inputs + ")";
    for (const std::string &symbol : known)
      message +=
          (symbol == *known.begin() ? ", and not a dimension ('" : ", '") + symbol + "'";
    return makeError(message + (known.empty() ? "" : ")"));
  }
  if (binding.shape.size() != 1)
    return makeError("'" + binding.name +
                     "' is one dimension, but the shape given for"
                     " it is " +
                     shapeText(binding.shape));
  return setSymbol(binding.name, binding.shape[0],
                   "the extent given for '" + binding.name + "'");
}

/// Fills in symbols, then insists that nothing is open.
Expected<void> Binder::resolve(onnx::ValueInfoProto &input) {
  std::string who = "input '" + input.name() + "'";
  if (!input.type().has_tensor_type())
    return makeError(who + " is not a tensor");
  if (!dtypeFromOnnx(input.type().tensor_type().elem_type()))
    return makeError(who + " has element type " +
                     onnxTypeName(input.type().tensor_type().elem_type()) +
                     ", which is not supported");
  auto &type = *input.mutable_type()->mutable_tensor_type();
  if (!type.has_shape())
    return makeError(who + " has no shape: give one, as in --shape " + input.name() +
                     "=1,128");
  std::string example;
  bool stays = false;
  int index = 0;
  for (auto &dim : *type.mutable_shape()->mutable_dim()) {
    std::string name = symbolOf(dim);
    if (isOpen(dim) && !symbols.contains(name)) {
      stays = true;
      if (missing.empty())
        missing = "dim " + std::to_string(index) + " of " + who + " is " +
                  (name.empty() ? std::string("open") : "symbolic ('" + name + "')") +
                  ": give the shape, as in";
      // As in the example; what that binds need not be given again.
      if (!name.empty())
        symbols[name] = {1, ""};
    }
    if (isOpen(dim))
      dim.set_dim_value(symbols.contains(name) ? symbols[name].first : 1);
    example += (index++ ? "," : "") + std::to_string(dim.dim_value());
  }
  if (stays)
    examples += " --shape " + input.name() + "=" + example;
  return {};
}

/// IR 3 lists every initializer as an input; since IR 4 one that is both has a default
/// value. Either way it is a constant to us.
static void dropConstantInputs(onnx::GraphProto &graph) {
  std::unordered_set<std::string> constants;
  for (const auto &tensor : graph.initializer())
    constants.insert(tensor.name());
  auto &inputs = *graph.mutable_input();
  int kept = 0;
  for (int i = 0; i < inputs.size(); ++i)
    if (!constants.contains(inputs[i].name()))
      inputs.SwapElements(i, kept++);
  inputs.DeleteSubrange(kept, inputs.size() - kept);
}

Expected<void> onnx_model::bindShapes(onnx::ModelProto &model,
                                      const std::vector<ShapeBinding> &bindings) {
  onnx::GraphProto &graph = *model.mutable_graph();
  dropConstantInputs(graph);
  // What the file says about inner values was true for other inputs.
  graph.clear_value_info();
  for (auto &output : *graph.mutable_output())
    if (output.type().has_tensor_type())
      output.mutable_type()->mutable_tensor_type()->clear_shape();

  Binder binder{graph, {}, {}, {}};
  std::set<std::string> seen;
  for (const ShapeBinding &binding : bindings) {
    if (!seen.insert(binding.name).second)
      return makeError("two shapes are given for '" + binding.name + "'");
    auto *input = binder.find(binding.name);
    auto bound = input ? binder.bindInput(*input, binding) : binder.bindSymbol(binding);
    if (!bound)
      return bound;
  }
  for (auto &input : *graph.mutable_input())
    if (auto resolved = binder.resolve(input); !resolved)
      return resolved;
  if (!binder.missing.empty())
    return makeError(binder.missing + binder.examples);
  return {};
}
