//===- Constants.cpp - Inputs that are bound at compile time --------------===//
#include "Internal.h"

#include "partita/Base/Files/Npy.h"
#include "partita/Base/Files/TensorProto.h"

#include <algorithm>

using namespace partita;
using namespace partita::onnx_model;

Expected<ConstBinding> onnx_model::readConstBinding(std::string_view text) {
  size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == text.size())
    return makeError("constant '" + std::string(text) +
                     "': expected NAME=FILE.npy or NAME=FILE.pb");
  ConstBinding binding{
      std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)), {}};
  const std::string &file = binding.file;
  if (file.ends_with(".pb")) {
    auto named = readTensorProto(file);
    if (!named)
      return tl::unexpected(named.error());
    binding.value = std::move(named->tensor);
    return binding;
  }
  auto array = readNpy(file);
  if (!array)
    return tl::unexpected(array.error());
  binding.value = std::move(*array);
  return binding;
}

static std::string shapeText(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

/// Checks the value against what the file says of the input, and notes what it says of
/// symbolic dims that other inputs have too.
static Expected<void> checkValue(const onnx::GraphProto &graph,
                                 const onnx::ValueInfoProto &input,
                                 const HostTensor &value,
                                 std::vector<ShapeBinding> &shapes) {
  std::string who = "the constant for input '" + input.name() + "'";
  const auto &type = input.type().tensor_type();
  if (type.elem_type() != onnxNumber(value.type))
    return makeError(who + " is " + onnxTypeName(onnxNumber(value.type)) +
                     ", but the model's input is " + onnxTypeName(type.elem_type()));
  if (!type.has_shape())
    return {};
  const auto &dims = type.shape().dim();
  bool fits = static_cast<size_t>(dims.size()) == value.shape.size();
  for (int i = 0; fits && i < dims.size(); ++i)
    fits = !dims[i].has_dim_value() || dims[i].dim_value() < 0 ||
           dims[i].dim_value() == value.shape[i];
  if (!fits)
    return makeError(who + " has shape " + shapeText(value.shape) +
                     ", which is not the model's");
  for (int i = 0; i < dims.size(); ++i) {
    const std::string &symbol = dims[i].dim_param();
    auto has = [&](const onnx::ValueInfoProto &other) {
      const auto &all = other.type().tensor_type().shape().dim();
      return other.name() != input.name() &&
             std::any_of(all.begin(), all.end(),
                         [&](const auto &dim) { return dim.dim_param() == symbol; });
    };
    bool isShared =
        !symbol.empty() && std::any_of(graph.input().begin(), graph.input().end(), has);
    bool isGiven = std::any_of(shapes.begin(), shapes.end(),
                               [&](const auto &s) { return s.name == symbol; });
    if (isShared && !isGiven)
      shapes.push_back({symbol, {value.shape[i]}});
  }
  return {};
}

/// An input with a default value is an initializer already: it gets another.
static onnx::TensorProto &initializerOf(ModelFile &file, const std::string &name) {
  auto &graph = *file.proto.mutable_graph();
  for (int i = 0; i < graph.initializer_size(); ++i)
    if (graph.initializer(i).name() == name) {
      file.payloads[i] = {};
      return *graph.mutable_initializer(i);
    }
  return *graph.add_initializer();
}

Expected<void> onnx_model::bindConstants(ModelFile &file,
                                         const std::vector<ConstBinding> &bindings,
                                         std::vector<ShapeBinding> &shapes) {
  onnx::GraphProto &graph = *file.proto.mutable_graph();
  std::set<std::string> seen;
  for (const ConstBinding &binding : bindings) {
    if (!seen.insert(binding.name).second)
      return makeError("two constants are given for '" + binding.name + "'");
    const auto &inputs = graph.input();
    auto input = std::find_if(inputs.begin(), inputs.end(), [&](const auto &value) {
      return value.name() == binding.name;
    });
    if (input == inputs.end()) {
      std::string known;
      for (const auto &value : inputs)
        known += (known.empty() ? "'" : ", '") + value.name() + "'";
      return makeError("a constant is given for '" + binding.name +
                       "', which is not an input (" + known + ")");
    }
    if (auto ok = checkValue(graph, *input, binding.value, shapes); !ok)
      return ok;
    initializerOf(file, binding.name)
        .ParseFromString(encodeTensorProto(binding.value, binding.name));
  }
  return {};
}
