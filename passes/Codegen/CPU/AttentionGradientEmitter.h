//===- AttentionGradientEmitter.h - Attention backward for CPUs -*- C++ -*-===//
//
// Emits gradients of an attention (AttentionSpec) without a tensor of weights:
//
//   for blocks of keys of the unit: keys and values into scratch, across; keys as rows
//     for queries of the unit, in blocks, of each head of the group
//       for tiles of the block
//         scores, then weights      queries · keys, exp(logit - largest) / sum
//         their cotangents          weight · (cotangent · values - delta) · f′
//         sums by queries           += cotangents of logits · keys
//       sums by keys and values     += weightsᵀ · cotangent, cotangentsᵀ · queries
//
// A unit is a block of queries where the kernel has gradients by queries, a block of keys
// where it has those by keys, and all of one head of keys where it has both: then weights
// are computed once, and the sums by queries of the whole unit are in scratch. Every sum
// is in the order of the blocks, whatever the number of threads.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_CPU_ATTENTIONGRADIENTEMITTER_H
#define PARTITA_PASSES_CODEGEN_CPU_ATTENTIONGRADIENTEMITTER_H

#include "passes/Codegen/CPU/AttentionEmitter.h"

namespace partita::codegen {

class AttentionGradientEmitter : public AttentionEmitter {
public:
  using AttentionEmitter::AttentionEmitter;

protected:
  void unitLoop() override;

private:
  /// Sums of a tile: of which numbers, times which rows, into which.
  struct TileSums {
    mlir::Value from, to; ///< rows that are added
    llvm::function_ref<mlir::Value(mlir::Value t, int64_t r)> left;
    llvm::function_ref<mlir::Value(mlir::Value t, mlir::Value column)> right;
    mlir::Value into; ///< the tile's first row
    int64_t columns, stride;
  };

  /// Sets the point's outer dims but those of a group, and what the unit ranges over.
  void openUnit(mlir::Value number);
  void overMembers(llvm::function_ref<void(mlir::Value member)> body);
  void memberLoops(size_t dim, mlir::Value member,
                   llvm::function_ref<void(mlir::Value member)> body);
  void clear(int64_t place, int64_t elements);
  void loadQueryBlock();
  void queryBlock(mlir::Value member);
  void tile(mlir::Value member);
  void scoreTile(const KeyRows &keys, int64_t rows, int64_t rowStride, int64_t depth,
                 int64_t into);
  void logits(mlir::Value row);
  void weightsOf(int64_t r);
  void add(const TileSums &sums);
  void sumsByKeys(mlir::Value firstActive, mlir::Value count);
  void storeRows(size_t output, size_t rowDim, mlir::Value firstRow, mlir::Value count,
                 size_t columnDim, mlir::Value place, int64_t stride, double scale);
  KeyRows keyRows() const { return {1, depthDim, s.depth, s.depthStride, s.keyRows}; }
  KeyRows valuesAcross() const {
    return {2, widthDim, s.width, s.widthStride, s.valuesAcross};
  }

  mlir::Value queriesFrom, queriesTo, keysFrom, keysTo; ///< of the unit
};

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_CPU_ATTENTIONGRADIENTEMITTER_H
