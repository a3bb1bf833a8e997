//===- KernelEmitter.h - A kernel as loops ----------------------*- C++ -*-===//
//
// Emits a KernelSpec as a function of scf loops, arith, math and LLVM memory accesses:
//
//   void kernel(ptr operand0, ptr operand1, …, ptr output0, …, ptr scratch, ptr scalars,
//               ptr status, i64 begin, i64 end)
//
//   if begin is 0, for each checked node: a loop over its indices
//   for units from begin to before end (KernelSplit), for further outer dims:
//     for each Row node: its passes over the row
//     for row dims: store the outputs
//
// Values are emitted on demand at the current point and kept for the current loop body,
// so a node is computed once per point and pass, whoever asks for it. f16 and bf16
// compute in f32; bool is i1 in registers and one byte in memory.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_CPU_KERNELEMITTER_H
#define PARTITA_PASSES_CODEGEN_CPU_KERNELEMITTER_H

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
  using RowBody = llvm::function_ref<Values(mlir::ValueRange carried)>;

  KernelEmitter(mlir::OpBuilder &builder, mlir::Location location, const KernelSpec &spec,
                std::string symbol)
      : builder(builder), location(location), spec(spec), symbol(std::move(symbol)) {}

  /// The function and the entry point that the runtime calls.
  void emit();

  // For the models of ops.

  const KernelNode &node(int number) const {
    return spec.nodes[static_cast<size_t>(number)];
  }
  /// The value of a node at the current point, in the compute type of its element type.
  mlir::Value value(int number);
  int64_t rowElements() const { return spec.rowElements(); }

  /// A loop over the points of the row, front to back or back to front; returns what the
  /// last iteration carried.
  Values rowLoop(mlir::ValueRange initial, RowBody body, bool backwards = false);
  /// One row of the node's scratch, element by element at the current point. `slot`
  /// counts its numScratchRows.
  void storeRow(int number, int64_t slot, mlir::Value element);
  mlir::Value loadRow(int number, int64_t slot, mlir::Type type);
  /// The same at a place in the row.
  void storeRowAt(int number, int64_t slot, mlir::Value place, mlir::Value element);
  mlir::Value loadRowAt(int number, int64_t slot, mlir::Value place, mlir::Type type);
  /// The place of the current point in the row.
  mlir::Value rowPosition();
  /// Where the current point is in the tensor of a node, one index per dim; in front of
  /// the row's loops, those of the row's dims are null.
  Values indexOf(int number);

  /// What a Row node is at each point, from now on.
  void define(int number, std::function<mlir::Value()> atPoint);

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

private:
  mlir::Value evaluate(int number);
  mlir::Value evaluateIndexed(int number);
  mlir::Value roundedTo(DType type, mlir::Value value);
  mlir::Value constantOf(const KernelNode &node);
  mlir::Value decoded(mlir::Value stored, DType type);
  mlir::Value encoded(mlir::Value value, DType type);
  mlir::Value load(mlir::Value pointer, mlir::Value offset, DType type);
  void store(mlir::Value pointer, mlir::Value offset, DType type, mlir::Value value);
  mlir::Value linear(int64_t offset, llvm::ArrayRef<int64_t> strides);
  mlir::Value scratchOffset(int number, int64_t slot, mlir::Value place, mlir::Type type);
  void emitChecks();
  void unitLoop();
  void chunkLoop(const KernelSplit &split, mlir::Value first, mlir::Value last);
  void leaveWord(int number, mlir::Value index, mlir::Value size);
  void outerLoops(size_t dim);
  void body();
  void storeOutputs(bool perRow);
  void emitEntry(mlir::func::FuncOp function);
  size_t numOuter() const { return spec.numOuter(); }
  mlir::scf::ForOp enterLoop(mlir::Value from, mlir::Value to);

  const KernelSpec &spec;
  std::string symbol;
  llvm::SmallVector<mlir::Value> point; ///< per domain dim; null outside its loop
  llvm::SmallVector<mlir::Value> pointers;
  mlir::Value scalars;    ///< pointer to them; null without
  mlir::Value status;     ///< likewise
  mlir::Value begin, end; ///< of the units
  llvm::SmallVector<llvm::DenseMap<int, mlir::Value>> scopes;
  llvm::DenseMap<int, std::function<mlir::Value()>> rowValues;
};

/// Emits the payload of `op` on operands of the given types; see Payload.h.
mlir::Value emitPayload(KernelEmitter &emitter, const KernelNode &node);

/// Attaches the models of row ops and indexed ops to the graph dialect's ops.
void attachKernelModels(mlir::MLIRContext &context);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_CPU_KERNELEMITTER_H
