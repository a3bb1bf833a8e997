//===- BlockKernels.h - Kernels for weights of 4 bits -----------*- C++ -*-===//
//
// The packed weight, panels of 16 columns: of each 8 summands, a group, 16 words of 32
// bits. A word has 8 numbers of one column, the first one in its lowest 4 bits.
//
// Files for one instruction set include nothing with inline functions that other code has
// (MicroKernels.h).
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_GEMM_BLOCKKERNELS_H
#define PARTITA_LIB_RUNTIME_GEMM_BLOCKKERNELS_H

#include "MicroKernels.h"

namespace partita::gemm {

constexpr int64_t groupSize = 8;                 ///< summands
constexpr int64_t groupBytes = 4 * panelColumns; ///< of a panel
constexpr int64_t mostRows = 8, mostPanels = 4;  ///< of a BlockTile

/// sums[i, n] += Σ_b scales[b, n] · (Σ_k a[i, k] · q'[k, n] − zeros[b, n] · aSums[i, b])
/// for some rows, over the summands k of each block b, for some panels at once. q' are
/// the numbers less the kernels' `center`.
struct BlockTile {
  int64_t blocks, groups; ///< groups of a block
  const float *a;
  int64_t aRow;       ///< elements
  const float *aSums; ///< of the summands of each block
  int64_t aSumsRow;
  const uint8_t *b;
  int64_t bPanel;      ///< bytes from a panel to the next
  const float *scales; ///< of each block as many as columns
  const float *zeros;  ///< likewise, less the center; null: all 0
  float *sums;         ///< rows of as many as columns
};

/// Summands of one block and panel as real numbers (q − zero) · scale.
struct BlockUnpack {
  int64_t groups;
  const uint8_t *b;
  const float *scales, *zeros; ///< of a panel
  float *to;                   ///< a row for each summand
  int64_t toRow;               ///< elements
};

struct BlockKernels {
  float center;
  /// Says whether a tile wants summand i of `a` divided by 16^(i % 8), for i % 8 below 7:
  /// the numbers are taken where they lie in their words.
  bool isGraded;
  int64_t rows;               ///< of a tile, at most
  int64_t panelsAt[mostRows]; ///< of a wide tile, by rows − 1; of one of many rows 1
  /// [rows − 1][0]: one panel; [1]: panelsAt[rows − 1] panels.
  void (*tile[mostRows][2])(const BlockTile &);
  void (*unpack)(const BlockUnpack &);
  const char *name;
};

/// For AVX2 and FMA.
extern const BlockKernels blocksAvx2;
/// For AVX-512 F.
extern const BlockKernels blocksAvx512;

} // namespace partita::gemm

#endif // PARTITA_LIB_RUNTIME_GEMM_BLOCKKERNELS_H
