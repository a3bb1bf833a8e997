//===- AttentionEmitter.h - Attention for CPUs ------------------*- C++ -*-===//
//
// A unit is a block of queries of one head. Its queries, scaled, and the sums so far are
// in scratch; keys and values come by block, as f32.
//
//   for each block of keys:
//     for each tile of 6 queries, the keys up to the last that is not hidden from all:
//       weights  = queries · keysᵀ                vectors over keys
//       weights  = the pointwise ops on them, by row
//       top', sum' of each query; weights = exp(weights − top')
//       result   = result · exp(top − top') + weights · values      vectors over columns
//   result / sum
//
// What hides keys is evaluated before the product, for each tile and block: it costs a
// few percent of one. Where a query has seen no key that is not hidden, the keys that
// were left out are taken after all: then all its keys are alike.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_CPU_ATTENTIONEMITTER_H
#define PARTITA_PASSES_CODEGEN_CPU_ATTENTIONEMITTER_H

#include "passes/Codegen/CPU/AttentionScratch.h"
#include "passes/Codegen/CPU/CpuEmitter.h"
#include "passes/Codegen/CPU/KernelCompiler.h"

namespace partita::codegen {

class AttentionEmitter : public CpuEmitter {
public:
  AttentionEmitter(mlir::OpBuilder &builder, mlir::Location location,
                   const KernelSpec &spec, std::string symbol, VectorUnit unit);

protected:
  void unitLoop() override;
  mlir::Value score(int number) override { return currentScore; }

private:
  using Body = llvm::function_ref<void(mlir::Value)>;
  using Carrying = llvm::function_ref<Values(mlir::Value, mlir::ValueRange)>;
  Values loop(mlir::Value from, mlir::Value to, int64_t step, mlir::ValueRange initial,
              Carrying body);
  void loop(mlir::Value from, mlir::Value to, int64_t step, Body body);
  void onlyIf(mlir::Value condition, llvm::function_ref<void()> body);

  mlir::Value plus(mlir::Value a, mlir::Value b);
  mlir::Value minus(mlir::Value a, mlir::Value b);
  mlir::Value times(mlir::Value a, int64_t b);
  mlir::Value least(mlir::Value a, mlir::Value b);
  mlir::Value real(double value);
  mlir::Value isBelow(mlir::Value a, mlir::Value b);
  mlir::Value boolean(bool value);

  /// Elements of scratch.
  mlir::Value address(mlir::Value index);
  mlir::Value at(mlir::Value index);
  void put(mlir::Value index, mlir::Value value);
  mlir::Value vectorAt(mlir::Value index);
  mlir::Value splat(mlir::Value scalar);
  /// acc + a·b
  mlir::Value multiplied(mlir::Value a, mlir::Value b, mlir::Value acc);
  /// An element of an operand, or a vector from it on, at the current outer dims: in row
  /// `row` of dim `rowDim`, column `column` of dim `columnDim`.
  mlir::Value element(int operand, size_t rowDim, mlir::Value row, size_t columnDim,
                      mlir::Value column);
  mlir::Value elements(int operand, size_t rowDim, mlir::Value row, size_t columnDim,
                       mlir::Value column);
  /// Whether rows of the operand can be read by vectors where they lie.
  bool hasRows(int operand, size_t columnDim) const;

  mlir::Value openUnit(mlir::Value unit);
  void loadQueries();
  void keyBlocks(mlir::Value pass);
  void tiles(mlir::Value pass);
  mlir::Value seenKeys();
  mlir::Value isSeen(mlir::Value from, mlir::Value to);
  mlir::Value anyUnsettled(mlir::Value from, mlir::Value to);
  void loadBlock();
  void loadKeys();
  void transpose(llvm::function_ref<mlir::Value(int64_t)> row, mlir::Value to);
  void stageKeys(mlir::Value first, mlir::Value count);
  void loadValues();
  void tileOf();
  void products(mlir::Value column, int64_t vectors);
  void pointwise(mlir::Value row);
  void softmax();
  mlir::Value larger(mlir::Value x, mlir::Value y);
  mlir::Value horizontal(mlir::Value vector,
                         llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> join);
  void accumulate(mlir::Value column, int64_t vectors);
  void storeResult();
  mlir::Value keysAt(mlir::Value depth, mlir::Value column, int64_t more);

  const AttentionSpec &a;
  AttentionScratch s;
  VectorUnit unit;
  int64_t panelVectors, panel; ///< of keys or columns whose sums are in registers
  size_t depthDim, widthDim, queryDim, keyDim; ///< of the domain
  mlir::Type vector;
  mlir::Value currentScore;
  mlir::Value firstQuery, numQueries; ///< of the unit
  mlir::Value firstKey, numKeys;      ///< of the block
  mlir::Value firstRow, endRow;       ///< of the tile, counted in the unit
  mlir::Value firstColumn, endColumn; ///< its keys, counted in the block
};

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_CPU_ATTENTIONEMITTER_H
