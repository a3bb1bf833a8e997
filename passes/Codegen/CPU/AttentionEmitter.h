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

  using Body = llvm::function_ref<void(mlir::Value)>;
  using Carrying = llvm::function_ref<Values(mlir::Value, mlir::ValueRange)>;
  Values loop(mlir::Value from, mlir::Value to, int64_t step, mlir::ValueRange initial,
              Carrying body);
  void loop(mlir::Value from, mlir::Value to, int64_t step, Body body);

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

  /// Rows of an operand's keys: which of its columns, and where they lie in scratch.
  struct KeyRows {
    int operand;
    size_t columnDim;
    int64_t columns, stride, place;
  };
  KeyRows keysAcross() const {
    return {1, depthDim, s.depth, s.depthStride, s.keysAcross};
  }
  KeyRows valueRows() const { return {2, widthDim, s.width, s.widthStride, s.values}; }

  mlir::Value openUnit(mlir::Value unit);
  void loadQueries();
  void keyBlocks(mlir::Value pass);
  void tiles(mlir::Value pass);
  mlir::Value seenKeys();
  mlir::Value isSeen(mlir::Value from, mlir::Value to);
  mlir::Value anyUnsettled(mlir::Value from, mlir::Value to);
  void loadBlock();
  void loadAcross(const KeyRows &rows);
  void transpose(llvm::function_ref<mlir::Value(int64_t)> row, mlir::Value to);
  void stageKeys(const KeyRows &rows, mlir::Value first, mlir::Value count);
  void loadRows(const KeyRows &rows);
  /// A vector of a key's row, from `column` on: of scratch, or where it lies.
  mlir::Value rowVector(const KeyRows &rows, mlir::Value key, mlir::Value column);
  void tileOf();
  /// Columns of a row in as many vectors as there are registers for, then the rest; keys
  /// of the block likewise, then vector by vector.
  void overColumns(int64_t columns,
                   llvm::function_ref<void(mlir::Value column, int64_t vectors)> body);
  void overPanels(mlir::Value from, mlir::Value to,
                  llvm::function_ref<void(mlir::Value column, int64_t vectors)> body);
  /// sums[r, v] + Σ over t from `from` to before `to` of left(t, r) · right(t, v), for
  /// the rows of a tile: `left` gives the place of a number in scratch, `right` a vector.
  Values tileSums(mlir::Value from, mlir::Value to, Values sums, int64_t vectors,
                  llvm::function_ref<mlir::Value(mlir::Value t, int64_t r)> left,
                  llvm::function_ref<mlir::Value(mlir::Value t, int64_t v)> right);
  void products(mlir::Value column, int64_t vectors);
  void pointwise(mlir::Value row);
  void softmax();
  mlir::Value larger(mlir::Value x, mlir::Value y);
  mlir::Value horizontal(mlir::Value vector,
                         llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> join);
  void accumulate(mlir::Value column, int64_t vectors);
  void storeStatistics(mlir::Value row);
  void storeResult();
  mlir::Value acrossAt(const KeyRows &rows, mlir::Value depth, mlir::Value column);

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
