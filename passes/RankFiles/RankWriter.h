//===- RankWriter.h - ONNX nodes of one rank's program ----------*- C++ -*-===//
//
// A writer of an op appends the ONNX nodes that compute it and says which of their
// values are the op's results. The first error is kept; what is appended behind it does
// not matter, so that a writer reads like the formula that it writes:
//
//     std::string sum = w.node("ReduceSum", {w.name(x), w.ints({1})});
//     w.define(op->getResult(0), w.node("Div", {sum, w.scalar(type, count)}));
//
// To write a new op, add such a function to the file of its family and to that file's
// table; an elementwise op needs nothing but its ONNX name in the td.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_RANKFILES_RANKWRITER_H
#define PARTITA_PASSES_RANKFILES_RANKWRITER_H

#include "dialects/Graph/Graph.h"
#include "partita/Base/Layout/Layout.h"
#include "passes/RankFiles/RankFiles.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <optional>

namespace partita::rank_files {

using Names = std::vector<std::string>;
using Attributes = std::map<std::string, onnx_model::Attribute, std::less<>>;

class RankWriter {
public:
  RankWriter(const Mesh &mesh, int64_t rank, RankDialect dialect,
             const WeightTensor &weights)
      : mesh(mesh), rank(rank), dialect(dialect), weights(weights) {}

  const Mesh &mesh;
  const int64_t rank;
  const RankDialect dialect;
  onnx_model::Model model;
  /// Branches and loops around what is written now, outer ones first: "a branch of an
  /// If".
  std::vector<std::string> around;
  /// Begins the names of nodes: of a step that runs one op for several micro-batches.
  std::string part;

  /// Keeps the first error.
  std::string fail(std::string message);
  const std::optional<Error> &failure() const { return error; }

  /// The ONNX value that has what `value` has.
  std::string name(mlir::Value value);
  Names names(mlir::ValueRange values);
  void define(mlir::Value value, std::string name);
  /// Keeps a name from being that of another value or node.
  std::string reserve(const std::string &wanted);
  /// Node names begin with the name of the op that is written.
  void begin(mlir::Operation *op);
  void begin(std::string name);

  /// Appends a node and returns its output, or its outputs.
  std::string node(llvm::StringRef op, Names inputs, Attributes attributes = {},
                   llvm::StringRef domain = "");
  Names nodes(llvm::StringRef op, size_t outputs, Names inputs,
              Attributes attributes = {}, llvm::StringRef domain = "");

  /// A node of an operator that opset 23 does not have: the file has opset `since` at
  /// least.
  std::string laterNode(int since, llvm::StringRef op, Names inputs,
                        Attributes attributes = {});

  // Initializers. Equal ones are one on every rank only if they are `common`; those of a
  // rank have names of their own, so that all ranks have the same nodes.
  std::string common(const HostTensor &tensor);
  std::string ownOfRank(const HostTensor &tensor);
  std::string ints(const std::vector<int64_t> &values);
  std::string scalar(DType type, double value);

  // Movements.
  std::string reshape(const std::string &x, const std::vector<int64_t> &shape);
  std::string transpose(const std::string &x, std::vector<int64_t> permutation);
  std::string castTo(const std::string &x, DType to);
  std::string where(const std::string &condition, const std::string &yes,
                    const std::string &no) {
    return node("Where", {condition, yes, no});
  }
  /// Elements [from, to) of dim `d`.
  std::string slice(const std::string &x, int64_t d, int64_t from, int64_t to);
  /// Elements of one value behind those of every dim, as many as `behind` says.
  std::string padBehind(const std::string &x, const std::vector<int64_t> &behind,
                        const std::string &value);

private:
  /// A weight or constant; the same op has one initializer, however often it is read.
  std::string source(mlir::Operation *op);
  std::string weight(mlir::Operation *op);
  std::string constant(mlir::Operation *op);
  std::string initializer(const HostTensor &tensor, const std::string &wanted);
  std::string keep(onnx_model::Tensor tensor, const std::string &wanted);

  const WeightTensor &weights;
  std::optional<Error> error;
  std::string current = "node";       ///< name of the op that is written
  mlir::Operation *written = nullptr; ///< that op; null: what is written is none
  llvm::DenseMap<mlir::Value, std::string> values;
  llvm::DenseMap<mlir::Operation *, std::string> sources;
  llvm::StringSet<> taken;
  llvm::StringMap<int> made;                    ///< values, by operator
  std::map<std::string, std::string> constants; ///< by type, shape and bytes
  /// Initializers of weights by the weight's name, and type and layout.
  std::map<std::pair<std::string, std::string>, std::string> slices;
  /// Initializers of the rank by op and number, and by part and op how many it has asked
  /// for.
  std::map<std::pair<mlir::Operation *, int>, std::string> own;
  std::map<std::pair<std::string, mlir::Operation *>, int> asked;
};

/// The most that is written out of what repeats.
inline constexpr int64_t maxTrips = 256;

using Writer = void (*)(RankWriter &, mlir::Operation *);
using WriterTable = llvm::StringMap<Writer>;

// Tables of the family files; keys are names of ops with their dialect.
void addElementwise(WriterTable &table);
void addContractions(WriterTable &table);
void addReductions(WriterTable &table);
void addShapes(WriterTable &table);
void addIndexing(WriterTable &table);
void addDetection(WriterTable &table);
void addControl(WriterTable &table);
void addCommunication(WriterTable &table);

/// Writes the ops of a function's body, in order. `results` are what it returns.
Names writeBody(RankWriter &writer, mlir::Block &block);

/// An elementwise op by its payload, or by its ONNX name.
void writePayload(RankWriter &writer, mlir::Operation *op);

/// The rank's part of an input that all ranks have, and the tensor of which each rank
/// has the part `x`.
std::string toLocal(RankWriter &writer, const std::string &x, const Layout &layout,
                    DType type);
std::string toGlobal(RankWriter &writer, const std::string &x, const Layout &layout);

// Ends of a program (Ends.cpp).

/// Makes a value an output of the model, by the name that it has.
void addOutput(RankWriter &writer, const std::string &name, const Shape &shape,
               DType type);
/// Makes a value an output of a name that is reserved.
void writeOutput(RankWriter &writer, const std::string &whole, const std::string &name,
                 const Shape &shape, DType type);

/// A value that goes from one program to another.
struct Crossing {
  std::string name; ///< of the value
  Shape shape;
  DType type = DType::F32;
  std::vector<int64_t> ranks; ///< at the other end
};
/// Writes the node that sends `whole`, and returns its output, which is one of the model.
std::string writeSend(RankWriter &writer, const std::string &whole, const Crossing &to);
/// Writes the node that receives a value as all ranks have it; `after`: what is done
/// before this rank waits for the value.
std::string writeReceive(RankWriter &writer, const Crossing &from, Names after = {});

/// A dim counted from the front, which an op may count from the end.
int64_t fromFront(uint64_t axis, mlir::Value value);

/// The element type of a tensor.
DType typeOf(mlir::Value value);
/// The element of `kind` that changes no reduction, a scalar.
HostTensor neutralScalar(DType type, ReduceKind kind);
HostTensor vectorOf(const std::vector<int64_t> &values);
HostTensor boolsOf(const std::vector<bool> &values, std::vector<int64_t> shape);

} // namespace partita::rank_files

#endif // PARTITA_PASSES_RANKFILES_RANKWRITER_H
