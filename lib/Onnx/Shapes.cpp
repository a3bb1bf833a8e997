//===- Shapes.cpp - Static shapes for the inputs --------------------------===//
#include "Internal.h"

#include "partita/Base/Files/TensorProto.h"

#include <algorithm>
#include <cctype>
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
  std::vector<std::string> names; ///< of dims, then of parts of such names
  /// Symbol to extent, and who said so.
  std::map<std::string, std::pair<int64_t, std::string>> symbols;

  explicit Binder(onnx::GraphProto &graph);
  Expected<void> bind(const std::vector<ShapeBinding> &bindings);
  Expected<void> setSymbol(const std::string &symbol, int64_t extent,
                           const std::string &source);
  Expected<void> bindInput(onnx::ValueInfoProto &input, const ShapeBinding &binding);
  Expected<void> bindSymbol(const ShapeBinding &binding);
  Expected<void> computeSymbols();
  Expected<void> resolve(onnx::ValueInfoProto &input);
  std::vector<std::string> missing() const;
  std::optional<int64_t> sizeOf(const std::string &symbol) const;
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
  if (std::ranges::find(names, binding.name) == names.end()) {
    std::string inputs, known;
    for (const auto &input : graph.input())
      inputs += (inputs.empty() ? "'" : ", '") + input.name() + "'";
    for (const std::string &name : names)
      known += (known.empty() ? ", and not a dimension ('" : ", '") + name + "'";
    return makeError("a shape is given for '" + binding.name +
                     "', which is not an input (" + inputs + ")" +
                     (known.empty() ? "" : known + ")"));
  }
  if (binding.shape.size() != 1)
    return makeError("'" + binding.name +
                     "' is one dimension, but the shape given for"
                     " it is " +
                     shapeText(binding.shape));
  return setSymbol(binding.name, binding.shape[0],
                   "the extent given for '" + binding.name + "'");
}

std::optional<int64_t> Binder::sizeOf(const std::string &symbol) const {
  auto known = symbols.find(symbol);
  return known == symbols.end() ? std::nullopt : std::optional(known->second.first);
}

/// Gives sums and products of known names their sizes, or compares those they have.
Expected<void> Binder::computeSymbols() {
  auto known = [&](const std::string &name) { return sizeOf(name); };
  for (const std::string &name : names) {
    std::optional<int64_t> size;
    if (!partsOfDim(name).empty())
      size = computeDim(name, known);
    if (size && *size < 0)
      return makeError("dimension '" + name + "' is " + std::to_string(*size) +
                       " by the sizes of its parts");
    if (size)
      if (auto set = setSymbol(name, *size, "the sizes of its parts"); !set)
        return set;
  }
  return {};
}

/// Texts of --shape by which nothing would be open; names before inputs.
std::vector<std::string> Binder::missing() const {
  std::vector<std::string> texts, inputs;
  auto orOne = [&](const std::string &name) { return sizeOf(name).value_or(1); };
  for (const auto &input : graph.input()) {
    const auto &type = input.type().tensor_type();
    if (!type.has_shape()) {
      inputs.push_back(input.name() + "=1,128");
      continue;
    }
    ShapeBinding whole{input.name(), {}};
    bool hasNameless = false;
    for (const auto &dim : type.shape().dim()) {
      std::string name = symbolOf(dim);
      whole.shape.push_back(!isOpen(dim) ? dim.dim_value()
                            : name.empty()
                                ? 1
                                : computeDim(name, orOne).value_or(orOne(name)));
      hasNameless |= isOpen(dim) && name.empty();
      if (name.empty() || sizeOf(name))
        continue;
      std::vector<std::string> parts = partsOfDim(name);
      for (const std::string &part : parts.empty() ? std::vector{name} : parts)
        if (std::string text = part + "=1";
            !sizeOf(part) && std::ranges::find(texts, text) == texts.end())
          texts.push_back(text);
    }
    if (hasNameless)
      inputs.push_back(whole.str());
  }
  texts.insert(texts.end(), inputs.begin(), inputs.end());
  return texts;
}

std::string onnx_model::shapeOptions(const std::vector<std::string> &bindings) {
  std::string options;
  for (const std::string &text : bindings) {
    bool isPlain = std::ranges::all_of(text, [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) ||
             std::string_view("_=,.:/@%+-").find(c) != std::string_view::npos;
    });
    options += (options.empty() ? "--shape " : " --shape ") +
               (isPlain ? text : "'" + text + "'");
  }
  return options;
}

/// Fills in symbols, and insists that nothing is open.
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
  for (int i = 0; i < type.shape().dim_size(); ++i) {
    auto &dim = *type.mutable_shape()->mutable_dim(i);
    if (!isOpen(dim))
      continue;
    std::string name = symbolOf(dim);
    std::optional<int64_t> size = sizeOf(name);
    if (!size)
      return makeError("dim " + std::to_string(i) + " of " + who + " is " +
                       (name.empty() ? "open: give the shape"
                                     : "symbolic ('" + name + "'): give sizes") +
                       ", as in " + shapeOptions(missing()));
    dim.set_dim_value(*size);
  }
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

Binder::Binder(onnx::GraphProto &graph) : graph(graph) {
  auto note = [&](const std::string &name) {
    if (!name.empty() && std::ranges::find(names, name) == names.end())
      names.push_back(name);
  };
  for (const auto &input : graph.input())
    for (const auto &dim : input.type().tensor_type().shape().dim())
      note(symbolOf(dim));
  for (size_t i = 0, n = names.size(); i < n; ++i)
    std::ranges::for_each(partsOfDim(names[i]), note);
}

Expected<void> Binder::bind(const std::vector<ShapeBinding> &bindings) {
  std::set<std::string> seen;
  for (const ShapeBinding &binding : bindings) {
    if (!seen.insert(binding.name).second)
      return makeError("two shapes are given for '" + binding.name + "'");
    auto *input = find(binding.name);
    auto bound = input ? bindInput(*input, binding) : bindSymbol(binding);
    if (!bound)
      return bound;
  }
  return computeSymbols();
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

  Binder binder(graph);
  if (auto ok = binder.bind(bindings); !ok)
    return ok;
  for (auto &input : *graph.mutable_input())
    if (auto resolved = binder.resolve(input); !resolved)
      return resolved;
  return {};
}

//===-- What is open ------------------------------------------------------===//

static OpenDims::Input describe(const onnx::ValueInfoProto &input) {
  const auto &type = input.type().tensor_type();
  std::optional<DType> known = dtypeFromOnnx(type.elem_type());
  OpenDims::Input result{input.name(),
                         known ? std::string(name(*known))
                               : onnxTypeName(type.elem_type()),
                         type.has_shape(),
                         {}};
  for (const auto &dim : type.shape().dim()) {
    std::string symbol = symbolOf(dim);
    result.dims.push_back(!isOpen(dim)     ? std::to_string(dim.dim_value())
                          : symbol.empty() ? "?"
                                           : symbol);
  }
  return result;
}

/// The places at which ends of the graph have the dim.
static std::vector<std::string> placesOf(const onnx::GraphProto &graph,
                                         const std::string &symbol) {
  std::vector<std::string> places;
  for (const auto *list : {&graph.input(), &graph.output()})
    for (const auto &value : *list)
      for (int d = 0; d < value.type().tensor_type().shape().dim_size(); ++d)
        if (symbolOf(value.type().tensor_type().shape().dim(d)) == symbol)
          places.push_back("dim " + std::to_string(d) +
                           (list == &graph.input() ? " of input '" : " of output '") +
                           value.name() + "'");
  return places;
}

Expected<OpenDims> onnx_model::findOpenDims(ModelFile &file, const LoadOptions &options) {
  std::vector<ShapeBinding> shapes = options.shapes;
  if (auto bound = bindConstants(file, options.constants, shapes); !bound)
    return tl::unexpected(bound.error());
  onnx::GraphProto &graph = *file.proto.mutable_graph();
  dropConstantInputs(graph);
  OpenDims open;
  for (const auto &input : graph.input())
    open.inputs.push_back(describe(input));
  Binder binder(graph);
  for (const std::string &name : binder.names)
    open.dims.push_back({name, placesOf(graph, name), partsOfDim(name), std::nullopt});
  if (auto ok = binder.bind(shapes); !ok)
    return tl::unexpected(ok.error());
  for (OpenDims::Dim &dim : open.dims)
    dim.size = binder.sizeOf(dim.name);
  open.bindings = binder.missing();
  return open;
}
