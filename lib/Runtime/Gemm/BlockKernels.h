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
/// the numbers less the kernels' `center`. Rows of bytes have a factor aScales[i, b]
/// more.
struct BlockTile {
  int64_t blocks, groups; ///< groups of a block
  const void *a;        ///< as the kernels want rows: `isGraded`, or as RoundRow has them
  int64_t aRow;         ///< bytes
  const float *aSums;   ///< of the summands of each block
  const float *aScales; ///< of each block, for rows of bytes
  int64_t aBlocksRow;   ///< elements from a row's sums, or scales, to the next
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

/// A row as bytes: x = q · scale in each block, where scale is a 127th of the block's
/// largest magnitude and q is rounded to the nearest integer, halves to the even one. A
/// block that is smaller than `smallestBlock` is 0. Of a block with an infinity, or with
/// what is no number, scale is no number.
struct RoundRow {
  const float *from;
  int64_t blocks, groups; ///< groups of a block
  int8_t *to;             ///< of each group the even summands, then the odd ones
  float *sums, *scales;   ///< of q, by block; of the block
};
constexpr float smallestBlock = 0x1p-100f;
/// For AVX2.
void roundRow(const RoundRow &row);

struct BlockKernels {
  float center;
  /// Says whether a tile wants summand i of `a` divided by 16^(i % 8), for i % 8 below 7:
  /// the numbers are taken where they lie in their words.
  bool isGraded;
  int64_t rows;               ///< of a tile, at most
  int64_t panelsAt[mostRows]; ///< of a wide tile, by rows − 1; of one of many rows 1
  /// [rows − 1][0]: one panel; [1]: panelsAt[rows − 1] panels.
  void (*tile[mostRows][2])(const BlockTile &);
  void (*unpack)(const BlockUnpack &); ///< null: tiles multiply rows of bytes (RoundRow)
  const char *name;
};

/// For AVX2 and FMA.
extern const BlockKernels blocksAvx2;
/// For AVX-512 F.
extern const BlockKernels blocksAvx512;
/// For AVX2, and for AVX-512 with VNNI: rows of bytes.
extern const BlockKernels byteBlocksAvx2, byteBlocksVnni;

} // namespace partita::gemm

#endif // PARTITA_LIB_RUNTIME_GEMM_BLOCKKERNELS_H
