//===- KernelEmitter.h - A kernel as loops ----------------------*- C++ -*-===//
//
// Emits a KernelSpec as a function of scf loops, arith, math and LLVM memory accesses.
// What ops compute is written once, for all targets, in terms of points and rows: a row
// op maps points, reduces or scans the row (its row program); a target's emitter says
// what loops and threads these are.
//
//   void kernel(ptr operand0, ptr operand1, …, ptr output0, …, ptr scratch, ptr scalars,
//               ptr status, …)
//
//   for each checked node: a loop over its indices
//   for outer points: for each Row node: its program
//                     for row dims: store the outputs
//
// Values are emitted on demand at the current point and kept for the current loop body,
// so a node is computed once per point and pass, whoever asks for it. f16 and bf16
// compute in f32; bool is i1 in registers and one byte in memory.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_EMIT_KERNELEMITTER_H
#define PARTITA_PASSES_CODEGEN_EMIT_KERNELEMITTER_H

#include "passes/Codegen/Common/Interfaces.h"
#include "passes/Codegen/Common/Program.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/DenseMap.h"

#include <functional>

namespace partita::codegen {

class KernelEmitter {
public:
  using Values = llvm::SmallVector<mlir::Value>;
  using Element = llvm::function_ref<mlir::Value()>;
  using Combine = llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)>;
  using Step = llvm::function_ref<void(mlir::Value before, mlir::Value after)>;

  KernelEmitter(mlir::OpBuilder &builder, mlir::Location location, const KernelSpec &spec,
                std::string symbol)
      : builder(builder), location(location), spec(spec), symbol(std::move(symbol)) {}

  virtual ~KernelEmitter() = default;

  /// The function that is called.
  virtual void emit() = 0;

  // Row programs.

  /// Calls `body` for every point of the row, in any order.
  void mapRow(llvm::function_ref<void()> body) { mapFirst(rowElements(), body); }
  /// The same for so many points from the row's begin on: all, or of a row of one dim.
  virtual void mapFirst(int64_t points, llvm::function_ref<void()> body) = 0;
  /// Calls `body` at the point of this place of the row.
  void atPlace(mlir::Value place, llvm::function_ref<void()> body);
  /// What `element` is at all points of the row, combined in any order.
  virtual mlir::Value reduceRow(mlir::Value neutral, Element element,
                                Combine combine) = 0;
  /// A Row node that reduces: what `element` is at all points of the row, combined in any
  /// order.
  struct Reduction {
    int number;
    mlir::Value neutral;
    std::function<mlir::Value()> element;
    std::function<mlir::Value(mlir::Value, mlir::Value)> combine;
  };
  /// Defines the node by a reduction. It shares a pass with others that need none of one
  /// another.
  void reduce(Reduction reduction) { reductions.push_back(std::move(reduction)); }
  /// Calls `body` where the condition holds; what it computes is known only there.
  void onlyIf(mlir::Value condition, llvm::function_ref<void()> body);
  /// Calls `body` for each row that is computed at once, with the point in it: outside,
  /// the last outer dim has no index where there are several.
  virtual void eachRow(llvm::function_ref<void()> body) { body(); }
  /// From the first point to the last, or back: `step` is told what all points before one
  /// are together, and with it.
  virtual void scanRow(mlir::Value neutral, Element element, Combine combine, Step step,
                       bool backwards) = 0;
  /// Independent pieces of work of one row: at from, from + step … before `to`.
  virtual void forEach(mlir::Value from, mlir::Value to, mlir::Value step,
                       llvm::function_ref<void(mlir::Value)> body) = 0;
  /// Work that every thread of the row does, for places that are its own; null: there is
  /// one thread. It meets the others behind it.
  virtual mlir::Value isMine(mlir::Value place) { return nullptr; }
  virtual void meet() {}

  // For the models of ops.

  const KernelNode &node(int number) const {
    return spec.nodes[static_cast<size_t>(number)];
  }
  /// The value of a node at the current point, in the compute type of its element type.
  mlir::Value value(int number);
  int64_t rowElements() const { return spec.rowElements(); }

  /// One row of the node's scratch, element by element at the current point. `slot`
  /// counts its numScratchRows.
  void storeRow(int number, int64_t slot, mlir::Value element);
  mlir::Value loadRow(int number, int64_t slot, mlir::Type type);
  /// The same at a place in the row.
  void storeRowAt(int number, int64_t slot, mlir::Value place, mlir::Value element);
  mlir::Value loadRowAt(int number, int64_t slot, mlir::Value place, mlir::Type type);
  /// Elements of a row from a place on, as many as a vector has.
  void storeRowVector(int number, int64_t slot, mlir::Value place, mlir::Value vector);
  mlir::Value loadRowVector(int number, int64_t slot, mlir::Value place,
                            mlir::VectorType type);
  /// Whether all that the kernel does is that this Row node changes elements of its first
  /// operand, which lies where the output does: the others need no store.
  bool changesInPlace(int number) const;
  /// An element of the output, at a place in the row.
  void storeOutputAt(mlir::Value place, mlir::Value element);
  mlir::Value loadOutputAt(mlir::Value place);
  /// The place of the current point in the row.
  mlir::Value rowPosition();
  /// Where the current point is in the tensor of a node, one index per dim; in front of
  /// the row's loops, those of the row's dims are null.
  Values indexOf(int number);

  /// Says how a result of a node is made at each point, from now on: of a Row node, or of
  /// one that is kept.
  void define(int number, std::function<mlir::Value()> atPoint, int result = 0);
  /// What a further result of an Indexed node is at the current point; said where the
  /// first is made.
  void setElement(int number, int result, mlir::Value element);

  /// An element of an Indexed node's operand.
  mlir::Value loadAt(int operand, llvm::ArrayRef<mlir::Value> index);

  /// Leaves word if an element of the node's read `which`, an integer, is no index of its
  /// dim: `sizeOf` tells the dim's size by the element's place. A loop of
  /// its own, so that the one that computes stays free of branches.
  void checkIndices(int number, size_t which,
                    llvm::function_ref<mlir::Value(mlir::ValueRange place)> sizeOf);

  /// Scalar `which` of an Indexed node: i64.
  mlir::Value scalar(int number, int which);

  mlir::Type computeType(DType type) const;
  mlir::Value integer(int64_t value);
  /// A constant of a compute type.
  mlir::Value constant(mlir::Type type, double value);
  /// Between compute types, as graph.cast does.
  mlir::Value convert(mlir::Value value, DType from, DType to);
  /// The bits that an element has in memory as an element of another type of as many.
  mlir::Value reinterpret(mlir::Value value, DType from, DType to);

  mlir::OpBuilder &builder;
  mlir::Location location;

protected:
  /// The function with its operands, outputs, scratch, scalars and status, and whatever
  /// arguments come behind; its body is to be filled.
  mlir::func::FuncOp beginFunction(llvm::StringRef name, llvm::ArrayRef<mlir::Type> more);
  /// The programs of one row, and its outputs.
  void rowBody();
  void storeOutputs(bool perRow);
  /// Stores an element of an output at the current point.
  virtual void storeOutput(size_t output, mlir::Value element);
  bool isDefined(int number) const { return rowValues.contains({number, 0}); }
  /// Per node, whether it differs along the row.
  llvm::SmallVector<bool> variesAlongRow() const;
  void emitAllChecks();
  /// Calls `body` for every index of a tensor of this shape.
  virtual void checkLoop(llvm::ArrayRef<int64_t> shape,
                         llvm::function_ref<void(mlir::ValueRange)> body) = 0;
  /// Whether nobody has left word before, so that this finding is the first.
  virtual mlir::Value claimStatus(mlir::Value status) = 0;
  /// What is done once per row.
  virtual void oncePerRow(llvm::function_ref<void()> body) { body(); }
  /// Defines nodes that need none of one another: by one pass where the target has one.
  virtual void reduceRows(llvm::ArrayRef<Reduction> list);
  /// Called in front of a pass over the row: computes what the passes read and is the
  /// same along the row, as far as it is known.
  virtual void keepPerRow() {}
  size_t numOuter() const { return spec.numOuter(); }
  /// Enters the point of this place of the row.
  void goTo(mlir::Value place);
  void leavePlace();

  const KernelSpec &spec;
  std::string symbol;
  llvm::SmallVector<mlir::Value> point; ///< per domain dim; null outside its loop
  llvm::SmallVector<mlir::Value> pointers;
  mlir::Value scalars; ///< pointer to them; null without
  mlir::Value status;  ///< likewise
  llvm::SmallVector<llvm::DenseMap<int, mlir::Value>> scopes;

  mlir::Value load(mlir::Value pointer, mlir::Value offset, DType type);
  void store(mlir::Value pointer, mlir::Value offset, DType type, mlir::Value value);
  /// offset + Σ point·stride. Dims outside their loop must have stride 0.
  mlir::Value linear(int64_t offset, llvm::ArrayRef<int64_t> strides);
  /// A Score node at the current point, for emitters that have kernels of attention.
  virtual mlir::Value score(int number) { llvm_unreachable("no kernel of attention"); }

private:
  /// The programs of all Row nodes, each behind those that it needs.
  void emitRows();
  mlir::Value evaluate(int number);
  mlir::Value evaluateIndexed(int number);
  mlir::Value roundedTo(DType type, mlir::Value value);
  mlir::Value constantOf(const KernelNode &node);
  mlir::Value decoded(mlir::Value stored, DType type);
  mlir::Value encoded(mlir::Value value, DType type);
  /// Where the output's element is, at a place in the row of one dim.
  mlir::Value outputOffset(mlir::Value place);
  mlir::Value scratchOffset(int number, int64_t slot, mlir::Value place, mlir::Type type);
  mlir::Value scratchAddress(int number, int64_t slot, mlir::Value place,
                             mlir::VectorType type);
  void leaveWord(int number, mlir::Value index, mlir::Value size);

  llvm::SmallVector<Reduction> reductions; ///< not emitted yet
  /// By node and result.
  llvm::DenseMap<std::pair<int, int>, std::function<mlir::Value()>> rowValues;
};

/// Emits the payload of `op` on operands of the given types; see Payload.h.
mlir::Value emitPayload(KernelEmitter &emitter, const KernelNode &node);

/// Attaches the models of row ops and indexed ops to the graph dialect's ops.
void attachKernelModels(mlir::MLIRContext &context);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_EMIT_KERNELEMITTER_H
