//===- Importer.h - What op imports work with -------------------*- C++ -*-===//
//
// An import of an ONNX operator is a function from (importer, node) to values. It reads
// operands by input(), emits graph ops by emit(), which folds ops of constants, and
// returns one value per output. To import a new operator, write such a function in the
// file of its family and add it to that file's table; an elementwise op needs nothing but
// its ONNX name in the td.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_IMPORT_IMPORTER_H
#define PARTITA_PASSES_IMPORT_IMPORTER_H

#include "dialects/Graph/Formula.h"
#include "passes/Import/Import.h"
#include "passes/Import/Sizes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <functional>
#include <map>
#include <optional>

namespace partita::import {

using graph::Values;

/// Larger constants that differ by element go to the weights.
inline constexpr int64_t maxConstantElements = 64;

class Importer {
public:
  Importer(mlir::OpBuilder &builder, WeightTable &weights)
      : builder(builder), weights(weights) {}

  mlir::OpBuilder &builder;
  mlir::Location location = builder.getUnknownLoc();
  std::string nodeName; ///< of the node being imported
  /// Of a model that trains, else null.
  const TrainingImport *training = nullptr;
  /// Mesh of nodes that are written per rank.
  const Mesh *mesh = nullptr;
  /// All nodes of the graph, for errors that are about several.
  const std::vector<onnx_model::Node> *nodes = nullptr;
  /// The number of steps done, an argument; null where nothing trains.
  mlir::Value step;
  /// What becomes of arguments that are states.
  llvm::SmallVector<std::pair<mlir::Value, mlir::Value>> nextStates;
  /// Whether what repeats becomes a loop, or stands in the program so often.
  bool keepsLoops = true;

  mlir::Value lookup(const std::string &name) const { return values.lookup(name); }
  void define(const std::string &name, mlir::Value value) { values[name] = value; }

  /// Input `i` of the node; a null value if it is absent.
  mlir::Value input(const onnx_model::Node &node, size_t i) const;

  /// Creates an op of the graph dialect. If all operands are constants and the result is
  /// not large, the op is evaluated and its constant returned instead.
  Expected<mlir::Value> emit(llvm::StringRef op, mlir::ValueRange operands,
                             llvm::ArrayRef<mlir::NamedAttribute> attrs = {});
  /// The same for an op of several results.
  Expected<Values> emitAll(llvm::StringRef op, mlir::ValueRange operands,
                           llvm::ArrayRef<mlir::NamedAttribute> attrs = {});
  /// As `emit`, for ops whose result shape is part of the program.
  Expected<mlir::Value> emitShaped(llvm::StringRef op, mlir::ValueRange operands,
                                   const Shape &result,
                                   llvm::ArrayRef<mlir::NamedAttribute> attrs = {});
  Expected<mlir::Value> reshape(mlir::Value value, const Shape &shape);

  /// What a loop computes: `body` is called once, with what is carried and one row of
  /// what is scanned, to build one trip in a function of its own; it gives what is
  /// carried on, then one row of each further result. Returns the values behind the loop.
  /// What the trip uses from around it goes in with it; weights and constants are its
  /// own.
  Expected<Values> repeat(int64_t trips, const Values &carried, const Values &scanned,
                          llvm::function_ref<Expected<Values>(const Values &)> body);

  /// The derivatives, in the first `wanted` of `inputs`, of the sum of what `body` builds
  /// in a function of its own, as above.
  Expected<Values>
  gradient(const Values &inputs, size_t wanted,
           llvm::function_ref<Expected<mlir::Value>(const Values &)> body);

  // Sizes that are data: of a dim only as many elements are there as a value says, the
  // *count*, an i64 scalar; its extent is the most that there can be. What `emit` makes
  // of such operands has counts too, or is refused (docs/rules-any-op.md, Counts.cpp).

  /// How many elements of dim `d` are there; null: all.
  mlir::Value countOf(mlir::Value value, size_t d) const;
  /// The dims that have a count.
  llvm::SmallVector<size_t> countedDims(mlir::Value value) const;
  /// Says of an op's result that its dim `d`, at least 2 long, has a count.
  void setCount(mlir::Value value, size_t d, mlir::Value count);
  /// The value with the neutral element of `kind` behind the count of dim `d`, which has
  /// all its elements then.
  Expected<mlir::Value> whole(mlir::Value value, size_t d, ReduceKind kind);
  /// The same with zeros, of all dims.
  Expected<mlir::Value> whole(mlir::Value value);
  /// What a sort of such elements puts last, a scalar.
  static HostTensor lastInOrder(mlir::Type element, bool isDescending);
  /// The same with what a sort puts last; elements that equal it stay before it.
  Expected<mlir::Value> lastInOrder(mlir::Value value, size_t d, bool isDescending);
  /// 0, 1, 2, … below an extent, one weight wherever it is asked for.
  mlir::Value places(int64_t extent);
  /// Integers that follow from counts.
  Sizes sizes{*this};
  /// The elements of input `i`, each known or computed from counts; else the error that
  /// `constantIntegers` has.
  Expected<std::vector<Size>> inputSizes(const onnx_model::Node &node, size_t i);
  /// Of dim `d`: its extent, or its count.
  Size sizeOf(mlir::Value value, size_t d);
  /// Of a dim of the most extent that `size` has: its count, unless that is known.
  void setSize(mlir::Value value, size_t d, const Size &size);
  /// `op` of a count and a number; the same value wherever it is asked for again.
  mlir::Value countBy(llvm::StringRef op, mlir::Value count, int64_t number);
  /// An error if one of these has a count: its `countText`, and what that means.
  Expected<void> checkAllThere(const Values &list, const std::string &otherwise) const;
  /// "dim 0 of 'y' has as many elements as the data say (at most 80)".
  std::string countText(mlir::Value value, size_t d) const;

  /// A constant op for small or uniform tensors, a weight otherwise.
  mlir::Value constant(const HostTensor &tensor, const std::string &name);
  /// A new weight; a number is added to a name that is taken.
  mlir::Value weight(const HostTensor &tensor, const std::string &name);
  /// A tensor of the file: a constant if it is small, a weight otherwise. `isExternal`:
  /// its values lie in another file, which may be absent. Then it is a weight, and so is
  /// whatever is folded of it: the program is the same with and without the values.
  mlir::Value initializer(const onnx_model::Tensor &tensor, bool isExternal);
  /// A weight that `make` gives of the values of `from`, a weight or constant, where
  /// these are at hand.
  mlir::Value derivedWeight(mlir::Value from, mlir::RankedTensorType type,
                            llvm::function_ref<HostTensor(const HostTensor &)> make);
  mlir::Value scalar(mlir::Type elementType, double value);
  /// A tensor of the file as a weight that no op reads: what a state begins as.
  void keepWeight(const onnx_model::Tensor &tensor);
  /// A tensor without elements.
  mlir::Value empty(mlir::RankedTensorType type);

  /// The value of a constant or weight; nullopt for anything computed.
  std::optional<HostTensor> constantValue(mlir::Value value) const;
  /// Whether the value is a weight whose numbers may be in a file that is not here.
  bool isExternal(mlir::Value value) const;
  /// Whether it is a constant or a weight, or its elements follow from counts.
  bool knows(mlir::Value value);
  /// The value of input `i`; an error that names the input if it is not constant.
  Expected<HostTensor> requiredValue(const onnx_model::Node &node, size_t i) const;
  /// The same as integers.
  Expected<std::vector<int64_t>> constantIntegers(const onnx_model::Node &node,
                                                  size_t i) const;

  mlir::NamedAttribute attr(llvm::StringRef name, mlir::Attribute value) const {
    return builder.getNamedAttr(name, value);
  }
  mlir::NamedAttribute attr(llvm::StringRef name, int64_t value) const {
    return attr(name, builder.getI64IntegerAttr(value));
  }
  mlir::NamedAttribute attr(llvm::StringRef name, llvm::ArrayRef<int64_t> value) const {
    return attr(name, builder.getDenseI64ArrayAttr(value));
  }
  mlir::NamedAttribute attr(llvm::StringRef name, llvm::StringRef value) const {
    return attr(name, builder.getStringAttr(value));
  }

  /// One or the other of what two bodies build, each in a function of its own, by a bool;
  /// both see `inputs`. An error if they give other types.
  Expected<Values> choose(mlir::Value condition, const Values &inputs,
                          llvm::function_ref<Expected<Values>(const Values &)> then,
                          llvm::function_ref<Expected<Values>(const Values &)> otherwise);

  /// A weight that the table has.
  mlir::Value knownWeight(llvm::StringRef name);

private:
  /// A function of the module, and what it uses from around it: its last arguments.
  struct Body {
    mlir::func::FuncOp function;
    Values shared;
  };
  /// The function is called `name`_0, _1, …; its first arguments are of types `seen`.
  /// After an error of `body` there is none.
  Expected<Body> bodyOf(llvm::StringRef name, const llvm::SmallVector<mlir::Type> &seen,
                        llvm::function_ref<Expected<Values>(const Values &)> body);
  Expected<Values> foldOrKeep(mlir::Operation *op);
  /// The results of an op of operands that have counts, by the op's rule.
  Expected<Values> followCounts(mlir::Operation *op);
  bool hasCounts(mlir::Operation *op) const;
  /// Before a function that was not completed is erased.
  void forgetCounts(mlir::func::FuncOp function);
  /// The bool, along dim `d` of `rank` dims, whether an element is before the count.
  mlir::Value isThere(mlir::Value count, int64_t extent, size_t d, size_t rank);
  mlir::Value made(llvm::StringRef op, mlir::ValueRange operands);
  mlir::Value withNeutral(mlir::Value value, size_t d, ReduceKind kind);
  /// The value with others behind the count of dim `d`, and the counts of other dims.
  mlir::Value filledBehind(mlir::Value value, size_t d, const HostTensor &fill);
  void keepOtherCounts(mlir::Value from, mlir::Value to, size_t d);
  Expected<Values> foldExternal(mlir::Operation *op);
  mlir::Value addWeight(onnx_model::Tensor tensor, const std::string &name);

  llvm::DenseMap<mlir::Value, Values> counts; ///< per dim, null: all are there
  llvm::StringMap<mlir::Value> derivedCounts;
  /// Weights 0, 1, 2, … by their extent.
  std::map<int64_t, std::string> iotas;
  /// Names of weights whose values may be absent.
  llvm::StringSet<> external;
  llvm::StringMap<mlir::Value> values;
  WeightTable &weights;
};

using Handler = Expected<Values> (*)(Importer &, const onnx_model::Node &);

/// How an operator is imported.
struct OperatorImport {
  Handler handler = nullptr;
  /// Whether inputs may have counts: what is made of a dim that has one does not depend
  /// on its extent but in graph ops, whose rules say what becomes of the count.
  bool takesCounts = false;

  OperatorImport() = default;
  OperatorImport(Handler handler) : handler(handler) {}
};
inline OperatorImport takesCounts(Handler handler) {
  OperatorImport import(handler);
  import.takesCounts = true;
  return import;
}
using HandlerTable = llvm::StringMap<OperatorImport>;

/// Sizes are computed in 64 bits behind import: an error where a result cannot be.
Expected<void> checkSize(mlir::RankedTensorType type);

// One table per family file.
void addElementwise(HandlerTable &table);
void addContractions(HandlerTable &table);
void addReductions(HandlerTable &table);
void addShapes(HandlerTable &table);
void addEinsum(HandlerTable &table);
void addIndexing(HandlerTable &table);
void addSelection(HandlerTable &table);
void addNormalization(HandlerTable &table);
void addQuantization(HandlerTable &table);
void addBlockWeights(HandlerTable &table);
void addSampling(HandlerTable &table);
void addSignals(HandlerTable &table);
void addPools(HandlerTable &table);
void addRandom(HandlerTable &table);
void addText(HandlerTable &table);
void addContrib(HandlerTable &table);
void addMachineLearning(HandlerTable &table);
void addTraining(HandlerTable &table);
void addRecurrent(HandlerTable &table);
void addControl(HandlerTable &table);
void addManual(HandlerTable &table);

/// The element type of an elementwise op by ONNX name, or null: used for ops that need no
/// handler of their own.
Expected<Values> importPayloadOp(Importer &importer, const onnx_model::Node &node);
bool isPayloadOp(llvm::StringRef onnxName);

/// The type that ONNX has under a number (onnx.TensorProto.DataType).
Expected<mlir::Type> elementTypeOfOnnx(Importer &importer, int64_t number);

/// Attribute with a default.
int64_t intAttr(const onnx_model::Node &node, std::string_view name, int64_t fallback);
double floatAttr(const onnx_model::Node &node, std::string_view name, double fallback);
std::string stringAttr(const onnx_model::Node &node, std::string_view name,
                       const std::string &fallback);
std::vector<int64_t> intsAttr(const onnx_model::Node &node, std::string_view name,
                              std::vector<int64_t> fallback);

/// Attribute `name` of an op for the word that the node's `onnxName` has, or `absent`.
/// An error names the word.
template <typename Attr>
Expected<mlir::NamedAttribute> modeAttr(Importer &importer, const onnx_model::Node &node,
                                        llvm::StringRef name, const char *onnxName,
                                        const char *absent) {
  std::string word = stringAttr(node, onnxName, absent);
  auto value = graph::symbolizeEnum<decltype(std::declval<Attr>().getValue())>(word);
  if (!value)
    return makeError(std::string(onnxName) + " \"" + word + "\" is not supported");
  return importer.attr(name, Attr::get(importer.builder.getContext(), *value));
}

/// The maximum or average over all spatial dims, as dims of size 1.
Expected<mlir::Value> globalPool(Importer &importer, mlir::Value input, bool isMax);

/// The product of matrices with batch dims, as numpy has it. `sums`: the type of sums of
/// products of 8-bit integers; null: that of the operands.
Expected<mlir::Value> matMul(Importer &importer, mlir::Value lhs, mlir::Value rhs,
                             mlir::Type sums = {});
/// The convolution that a node's attributes describe, without a bias.
Expected<mlir::Value> convolution(Importer &importer, const onnx_model::Node &node,
                                  mlir::Value input, mlir::Value filter);

/// One value as a list, passing an error through.
Expected<Values> single(Expected<mlir::Value> value);

} // namespace partita::import

#endif // PARTITA_PASSES_IMPORT_IMPORTER_H
