//===- Internal.h - The steps of the ONNX loader ----------------*- C++ -*-===//
//
// Private to this folder. The steps run in the order of this file; Load.cpp calls them.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_ONNX_INTERNAL_H
#define PARTITA_LIB_ONNX_INTERNAL_H

#include "partita/Base/Files/File.h"
#include "partita/Onnx/Load.h"
#include "partita/Onnx/OpenDims.h"

#include <onnx/onnx_pb.h>

#include <functional>
#include <optional>
#include <unordered_map>

namespace partita::onnx_model {

/// Domain to version, the standard operators under "".
using Opsets = std::map<std::string, int64_t>;

/// "" for both spellings of the standard domain.
inline std::string plainDomain(const std::string &domain) {
  return domain == "ai.onnx" ? "" : domain;
}

/// Messages quote names from the file, and a broken file may have anything there: bytes
/// that would upset a terminal are written as \xNN, and what is too long is cut.
std::string printable(std::string_view text);

//===-- ReadProto.cpp -----------------------------------------------------===//

/// A parsed file. Payloads of at least some kilobytes that top-level initializers have
/// as raw_data are found in the mapped file rather than kept in `proto`.
struct ModelFile {
  std::string path;
  std::shared_ptr<const MappedFile> mapping;
  onnx::ModelProto proto;
  /// Initializer index to the place of its raw_data in the mapping.
  std::vector<std::span<const std::byte>> payloads;
};

/// An error says why the file is no model, or names a node that isAroundPart has.
Expected<std::unique_ptr<ModelFile>> readModelFile(const std::string &path);
/// The model's opsets, or an error if the IR version or an opset is out of range.
Expected<Opsets> checkVersions(const ModelFile &file);

//===-- Tensors.cpp -------------------------------------------------------===//

/// Reads tensors of one model; maps each external file once.
class TensorReader {
public:
  /// `dataFolders`: see LoadOptions.
  TensorReader(const ModelFile &file, bool weights,
               const std::vector<std::string> &dataFolders = {});
  /// `what` is "initializer 'w'" or the like. `payload` is where raw_data lies in the
  /// model's mapping, empty if it is in the proto.
  Expected<Tensor> read(const onnx::TensorProto &proto, const std::string &what,
                        std::span<const std::byte> payload = {});

  /// A file of external data; without a mapping where it is missing and may be.
  struct External {
    std::string path;
    std::shared_ptr<const MappedFile> mapping;
  };
  Expected<External> open(const std::string &location, const std::string &what);

private:
  Expected<Tensor> readExternal(const onnx::TensorProto &proto, Tensor tensor,
                                uint64_t size, const std::string &what);
  Expected<External> openIn(const std::string &folder, const std::string &location,
                            const std::string &what);
  const ModelFile &file;
  bool weights;
  std::vector<std::string> folders; ///< to search; the last is the model's
  std::map<std::string, External> opened;
};

/// A tensor in memory with the given name.
Tensor memoryTensor(std::string name, HostTensor values);

//===-- Constants.cpp -----------------------------------------------------===//

/// Gives inputs their values as initializers. Extents of symbolic dims that they share
/// with other inputs are added to `shapes`, unless those say them.
Expected<void> bindConstants(ModelFile &file, const std::vector<ConstBinding> &bindings,
                             std::vector<ShapeBinding> &shapes);

//===-- TrainingInfo.cpp --------------------------------------------------===//

using Updates = std::vector<std::pair<std::string, std::string>>;

/// Joins the graph of a training step of the file to the model's; gives what becomes of
/// initializers. An error if the file has no step of this number, or its bindings name
/// what is not there.
Expected<Updates> joinTrainingStep(onnx::ModelProto &model, size_t number);

/// The program of a training step that makes initializers, as a model of its own without
/// inputs, and which initializers its outputs are.
struct Initialization {
  std::unique_ptr<ModelFile> file;
  std::vector<std::string> initializers;
};
Expected<Initialization> initializationOf(const ModelFile &file, size_t number);

//===-- Shapes.cpp --------------------------------------------------------===//

/// The dim's symbol, "" if it has none. Some exporters write a placeholder as symbol,
/// which does not make two dims equal.
std::string symbolOf(const onnx::TensorShapeProto::Dimension &dim);

/// Makes every input of the graph static, in place, by the bindings; drops inputs that
/// are initializers, and the shapes that the file states for other values.
Expected<void> bindShapes(onnx::ModelProto &model,
                          const std::vector<ShapeBinding> &bindings);
/// Binds what the options say, and tells what stays open.
Expected<OpenDims> findOpenDims(ModelFile &file, const LoadOptions &options);

//===-- DimNames.cpp ------------------------------------------------------===//

/// The size of a dim of this name, if it is known.
using SizeOfName = std::function<std::optional<int64_t>(const std::string &)>;

/// The size of a dim whose name is a sum or product of numbers and other names, as
/// exporters write them ("past_sequence_length + sequence_length"). Absent where the name
/// is none, has a part without a size, or is more than 64 bits hold.
std::optional<int64_t> computeDim(std::string_view name, const SizeOfName &sizeOf);
/// The names in such a sum or product, each once; empty: the name has no parts.
std::vector<std::string> partsOfDim(std::string_view name);

//===-- Write.cpp ---------------------------------------------------------===//

/// The same as isAroundPart of a node (Model.h), by its domain and operator.
bool isAroundPart(std::string_view domain, std::string_view opType);

//===-- Functions.cpp -----------------------------------------------------===//

/// A node on its way through the expansion, with what a NodeProto cannot carry.
struct PendingNode {
  onnx::NodeProto proto;
  std::string name;
  std::string origin;
  /// The opsets it was written for: a function may differ from the model.
  std::shared_ptr<const Opsets> opsets;
};

/// What ONNX's shape inference finds out about a value; dims are -1 where unknown.
struct TypeInfo {
  DType type = DType::F32;
  std::optional<std::vector<int64_t>> shape;
};
using Types = std::unordered_map<std::string, TypeInfo>;

/// The same in ONNX's own words.
using ProtoTypes = std::unordered_map<std::string, onnx::TypeProto>;

struct ExpandedGraph {
  std::vector<PendingNode> nodes;
  Types types;
  ModulePaths modules;
  CallInputs callInputs;
};

/// Takes the nodes out of the model's graph, inlined and expanded. Initializers of
/// branches that were taken are added to the model's.
Expected<ExpandedGraph> expandFunctions(onnx::ModelProto &model, const Opsets &opsets,
                                        const std::set<std::string> &kept,
                                        bool keepLoops);

/// Replaces the names of values, also where a subgraph refers to them.
using NameMap = std::unordered_map<std::string, std::string>;
void renameValues(onnx::NodeProto &node, const NameMap &names);
/// The inputs of a node, and what its subgraphs read; names that are theirs alone are
/// among it.
std::vector<std::string> readsOf(const onnx::NodeProto &node);

//===-- KeepLoops.cpp, Gradients.cpp --------------------------------------===//

/// Lets ONNX's inference know the types of the nodes of ownDomain.
void declareOwnOperators(onnx::ModelProto &model);
/// The part of it for Gradients; the domain is known already.
void declareGradients();
bool isGradient(const onnx::NodeProto &node);

/// Replaces each Gradient node of the graph by the program that it differentiates,
/// between two nodes of ownDomain. One in a function, a branch or a loop stays as it is,
/// and expandFunctions names it.
/// An error names a node whose ends are none.
Expected<void> placeGradients(onnx::GraphProto &graph);

//===-- ModulePaths.cpp ---------------------------------------------------===//

/// The module that a node of the file comes from, as its exporter says: in the node's
/// metadata (torch.export), or in its name (TorchScript). "" where neither does.
std::string modulePathOf(const onnx::NodeProto &node);

/// Gives the constants that nodes of a module read the names that the module has for
/// them, as aliases: "model.layers.0.q_proj.weight".
void nameParameters(Graph &graph);

//===-- CheckTypes.cpp ----------------------------------------------------===//

/// An error that names node, input and types, where an operand's element type is none
/// that the operator's definition takes, or differs from another that has to be the same.
Expected<void> checkTypes(const std::vector<PendingNode> &nodes, const ProtoTypes &types);

/// Gives out names that are unique in the graph.
class UniqueNames {
public:
  void reserve(const std::string &name) { used.insert(name); }
  bool has(const std::string &name) const { return used.contains(name); }
  /// `base`, or `base`_2, `base`_3… where it is taken.
  std::string take(const std::string &base);

private:
  std::set<std::string> used;
  std::map<std::string, int> next;
};

//===-- Convert.cpp -------------------------------------------------------===//

/// Proto nodes to plain ones, with defaults filled in and Constants made initializers.
Expected<Graph> convertGraph(const ModelFile &file, ExpandedGraph &&expanded,
                             TensorReader &reader);

//===-- Sort.cpp ----------------------------------------------------------===//

/// Checks that every value is defined exactly once, sorts the nodes and drops what no
/// output needs.
Expected<void> sortGraph(Graph &graph);

//===-- Normalize.cpp -----------------------------------------------------===//

/// Brings every node to its canonical form.
Expected<void> normalizeGraph(Graph &graph, Types types);

//===-- Write.cpp ---------------------------------------------------------===//

/// The parts of a model in ONNX's own words. A tensor without values is an error, and so
/// is an attribute that cannot be written, a graph.
Expected<void> writeTensor(const Tensor &tensor, onnx::TensorProto &proto);
Expected<void> writeNode(const Node &node, onnx::NodeProto &proto);
/// Appends all nodes of a graph. What stands around branches becomes a node If with a
/// graph for each; what both branches read, or what is read behind them, stands before
/// the If.
Expected<void> writeNodes(const Graph &graph, onnx::GraphProto &proto);

//===-- Inference.cpp -----------------------------------------------------===//

/// Sets BatchNormalization and Dropout to inference, unless somebody reads what only
/// training gives. What they do not need any more stays in the graph.
void toInference(onnx::GraphProto &graph);

//===-- Widen.cpp ---------------------------------------------------------===//

/// Makes every narrower float type f64: inputs, constants, casts and outputs. The values
/// of constants stay what the file says.
void widenFloats(Graph &graph);

} // namespace partita::onnx_model

#endif // PARTITA_LIB_ONNX_INTERNAL_H
