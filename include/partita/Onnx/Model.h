//===- Model.h - An ONNX model as plain structs -----------------*- C++ -*-===//
//
// What the rest of the compiler sees of an ONNX file. The structs hold a model whose
// functions are inlined, whose nodes have the one canonical form that
// docs/onnx-forms.md lists, whatever the file's opset, and whose inputs are static.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_ONNX_MODEL_H
#define PARTITA_ONNX_MODEL_H

#include "partita/Base/DType.h"

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace partita::onnx_model {

/// The domain of nodes that stand around a part of the graph, and of those by which a
/// graph that is written per rank says what ranks exchange (docs/manual.md).
///
/// Two are around the body of a loop. RepeatBegin has what is carried
/// and then what is scanned (all rows, along the first dim) as inputs, and as outputs
/// what one iteration sees of them. RepeatEnd has as inputs what an iteration gives, what
/// is carried on first, and as outputs what comes out of the loop: the last of what is
/// carried, and the rows of the rest. Both have `trips` and `carried`; RepeatEnd has the
/// name of its RepeatBegin as `begin`. The body is what lies on the way between them.
///
/// Two are around a program that is differentiated. GradientBegin has what the program
/// depends on as inputs and, as outputs, what it sees of them. GradientEnd has as inputs
/// the program's value and the first `wanted` of what it sees, and as outputs the
/// derivatives of the value's sum in these; `begin` as above.
///
/// Two are around the branches of an If whose condition the loader does not know. IfBegin
/// has the condition and what both read as inputs and, as outputs, what they see of it.
/// IfEnd has as inputs the condition as seen, what the first branch gives, and as much
/// that the second gives, and as outputs one or the other; `begin` as above.
inline constexpr std::string_view ownDomain = "partita";

/// The property of a file that says which inputs are states: a line for each,
/// "INPUT=OUTPUT", as --state has it.
inline constexpr std::string_view statesKey = "partita.states";

/// A constant tensor: an initializer, a Constant node's value or a tensor attribute.
///
/// `bytes` are row-major, little-endian and exactly as many as type and shape say. They
/// are mapped where the file holds them as they are, and need not be aligned: copy, or
/// read through memcpy. They stay valid as long as any copy of the tensor.
struct Tensor {
  std::string name;
  DType type = DType::F32;
  std::vector<int64_t> shape;
  /// Where the bytes lie: the model itself or an external data file. Empty for tensors
  /// that exist in memory only (typed fields, constants made by the loader).
  std::string file;
  uint64_t offset = 0;
  /// Empty although the shape is not, only if LoadOptions::weights was false and the
  /// external file is missing.
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
  /// Of the file's list of initializers, where exporters put parameters and buffers;
  /// values of Constant nodes and of the loader are not.
  bool isInitializer = false;
};

/// An attribute that has no plain form: `kind` is "a graph", "a sparse tensor", ….
struct OpaqueAttribute {
  std::string kind;
};

using Attribute =
    std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>,
                 std::vector<std::string>, Tensor, OpaqueAttribute>;

struct Node {
  /// The ONNX node name; a nameless or repeated one is called by its first output. Nodes
  /// that a function's expansion or the normaliser made are called
  /// "<node of the file>/<Op>", with _2, _3… where that repeats. Unique in the graph.
  std::string name;
  /// The node of the file that this one comes from: `name` itself for most.
  std::string origin;
  std::string opType;
  /// "" for the standard operators, also where the file says "ai.onnx".
  std::string domain;
  /// The version in which the operator got the form that the file used: for messages. 0
  /// if the operator is not known.
  int sinceVersion = 0;
  /// "" is an absent optional input; there is none at the end.
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  /// Defaults of the operator's definition are filled in.
  std::map<std::string, Attribute, std::less<>> attributes;

  /// The attribute if it is there with this type, else null.
  template <typename T> const T *attribute(std::string_view key) const {
    auto it = attributes.find(key);
    return it == attributes.end() ? nullptr : std::get_if<T>(&it->second);
  }
  /// Whether there is an input with this index (not absent).
  bool hasInput(size_t index) const {
    return index < inputs.size() && !inputs[index].empty();
  }
};

/// Tells whether the node stands around a part of the graph: see ownDomain. Nodes of
/// graphs that are written per rank have this domain too, and are like any other.
bool isAroundPart(const Node &node);

/// A value with a static shape.
struct ValueInfo {
  std::string name;
  DType type = DType::F32;
  std::vector<int64_t> shape;
};

/// By node of the file (Node::origin), the module of the framework's model from which it
/// comes, where the exporter left that: "model.layers.0.self_attn.q_proj".
using ModulePaths = std::map<std::string, std::string>;

/// Inputs by node of the file (Node::origin), "" where one is absent.
using CallInputs = std::map<std::string, std::vector<std::string>>;

struct Graph {
  std::string name;
  /// Every value is computed before it is used; nodes that no output needs are left out.
  std::vector<Node> nodes;
  /// Only those that a node or an output uses, in the file's order, then those that the
  /// loader made.
  std::vector<Tensor> initializers;
  /// Without those that have a default value: the default is a constant here.
  std::vector<ValueInfo> inputs;
  std::vector<std::string> outputs;
  /// Initializers that change from run to run, and the value that each becomes: a
  /// training step of the file (LoadOptions::trainingInfo).
  std::vector<std::pair<std::string, std::string>> updates;
  /// Names that stand for a value of another name, as an Identity makes them, and as the
  /// framework's model has for its parameters: the name, and that of the value.
  std::vector<std::pair<std::string, std::string>> aliases;
  ModulePaths modules;
  /// By node of the file that a function's expansion has replaced, its inputs.
  CallInputs callInputs;
  /// The element types that the file states for them, as every ONNX file has to; empty:
  /// they are those that are computed.
  std::vector<DType> outputTypes;
  /// Shapes of the outputs, for who writes the graph; empty: they are not known. A size
  /// that is data is −1 and may have a name in Model::dims.
  std::vector<std::vector<int64_t>> outputShapes;
};

struct Model {
  std::string path;
  std::string producer;
  int64_t irVersion = 0;
  /// Domain to version; the standard operators under "".
  std::map<std::string, int64_t> opsets;
  /// The file's inputs without a default value, in its order; those that were bound at
  /// compile time are among them, but not among the graph's.
  std::vector<std::string> inputNames;
  /// By input and output the names of its symbolic dims, "" for dims that have none, as
  /// the file has them before shapes are bound.
  std::map<std::string, std::vector<std::string>> dims;
  bool keepsLoops = true; ///< see LoadOptions::keepLoops
  /// Properties of the file (metadata_props), by key: see statesKey.
  std::map<std::string, std::string> metadata;
  /// The opset of the file that is written, if it is another than that in which every
  /// canonical form is valid; 0: it is that one.
  int64_t writtenOpset = 0;
  Graph graph;
  /// Of a training step of the file: a program without inputs, and the initializers that
  /// begin as its outputs, in their order.
  Graph initialization;
  std::vector<std::string> initialized;
};

} // namespace partita::onnx_model

#endif // PARTITA_ONNX_MODEL_H
