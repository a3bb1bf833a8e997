//===- AttentionScratch.h - What a thread of attention keeps ----*- C++ -*-===//
//
// Blocks of f32 in the scratch of a kernel of attention. Rows are queries in blocks, or
// keys; columns beyond the tensors' are there so that whole vectors may be read.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_CODEGEN_CPU_ATTENTIONSCRATCH_H
#define PARTITA_PASSES_CODEGEN_CPU_ATTENTIONSCRATCH_H

#include "passes/Codegen/Common/Program.h"

namespace partita::codegen {

struct AttentionScratch {
  /// Queries whose sums are in registers together.
  static constexpr int64_t tile = 6;
  /// Of f32 in a vector, at most.
  static constexpr int64_t widestVector = 16;
  /// Keys that a product takes together, at most.
  static constexpr int64_t widestPanel = 64;

  explicit AttentionScratch(const KernelSpec &spec);

  int64_t outer;                       ///< domain dims in front of the others
  int64_t depth, width, queries, keys; ///< of the domain
  int64_t rows;                        ///< of a block of queries, a multiple of tile
  int64_t blockKeys;                   ///< of a block of keys, in whole panels
  int64_t depthStride, widthStride;    ///< from row to row, in whole vectors
  /// Where each block begins, in elements.
  int64_t q = 0, result = 0, keysAcross = 0, values = 0, weights = 0, stage = 0;
  int64_t top = 0, sum = 0, shrink = 0; ///< per query; of the tile's queries
  /// Scratch of gradients: cotangents of the block's queries, values across, keys by
  /// rows; weights (of all the block's queries) and cotangents of logits; per query the
  /// sum of cotangent · output; sums by queries, of all that the unit has, by keys and by
  /// values.
  int64_t cotangent = 0, valuesAcross = 0, keyRows = 0, slopes = 0, delta = 0;
  int64_t byQueries = 0, byKeys = 0, byValues = 0;
  int64_t memberRows = 0; ///< queries of a member of a group in `byQueries`
  int64_t members = 1;    ///< of a group
  uint64_t bytes() const { return static_cast<uint64_t>(total) * sizeof(float); }

private:
  int64_t take(int64_t elements);
  void takeForGradient(const KernelSpec &spec);

  int64_t total = 0;
};

/// TargetModel::divideAttention, for CPUs.
void divideAttention(KernelSpec &kernel, int threads);

} // namespace partita::codegen

#endif // PARTITA_PASSES_CODEGEN_CPU_ATTENTIONSCRATCH_H
