//===- MicroKernels.h - Tiles of a product, by instruction set --*- C++ -*-===//
//
// What is compiled for one instruction set and chosen when a program runs. The file that
// is compiled so includes nothing with inline functions: the linker might take its copy
// of one for other code, which must run on every CPU.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_GEMM_MICROKERNELS_H
#define PARTITA_LIB_RUNTIME_GEMM_MICROKERNELS_H

#include <cstdint>

namespace partita::gemm {

/// Rows of a tile; columns of a panel; most summands of a tile, of which a panel and the
/// rows of two tiles stay in a first-level cache of 32 KiB.
constexpr int64_t tileRows = 6, panelColumns = 16, tileDepth = 320;
/// From one row of a packed left operand to the next, in elements. Not a multiple of a
/// page, whose rows would displace each other in the cache.
constexpr int64_t leftStride = tileDepth + 16;

/// c[i, n] (+)= Σ_p a[i, p] · b[p, n] for some rows and for the panels at once.
struct Tile {
  int64_t depth; ///< number of summands, at most tileDepth
  const float *a;
  int64_t aRow;   ///< elements
  const float *b; ///< depth rows of panelColumns elements, `bRow` apart
  int64_t bRow;   ///< elements
  int64_t bPanel; ///< from a panel to the next, elements
  float *c;
  int64_t cRow;      ///< elements
  int64_t columns;   ///< that are stored: at most panels · panelColumns
  bool adds;         ///< to what c holds
  const float *bias; ///< else, if any: per column
  /// What is read next from memory, and how many bytes of it this tile asks for per
  /// summand: evenly, because a burst would stall the tile's own reads.
  const float *next;
  int64_t nextStep;
};

/// How many panels a tile covers, by rows − 1: with few rows, one panel has too few sums
/// in flight to keep the multipliers busy.
constexpr int64_t panelsAt[tileRows] = {4, 2, 2, 1, 1, 1};

/// A post-op on a part of the result. `y` is the operand of a binary one.
struct PostStep {
  int64_t kind; ///< partita_post_op
  float alpha, beta;
  const float *y;
  int64_t yRow, yColumn; ///< strides; yColumn is 0 or 1
};

/// Pixels of an image that a tile of Winograd's algorithm covers: 4 × 4 are read for
/// 2 × 2 results, and become as many pieces.
constexpr int64_t patchSide = 4, pieces = patchSide * patchSide;

/// The filters g of a panel's output channels become the pieces of G·g·Gᵀ, computed in
/// f64 and rounded once, in the order in which products read them.
struct FilterPanel {
  const float *from;       ///< 9 taps, row by row, of its first output and input channel
  int64_t column, channel; ///< from an output, an input channel to the next, elements
  bool isTurned;           ///< by half: the last tap is the first
  int64_t columns, channels;
  float *to; ///< [pieces][channels][panelColumns], zero behind `columns`
};

/// A patch d of an image becomes the pieces of Bᵀ·d·B, channel by channel.
struct Patch {
  const float *pixel[pieces]; ///< row by row
  int64_t channels;
  float *to;
  int64_t piece; ///< from a piece to the next, elements
};

/// The pieces' sums of an output channel become the taps of its filters, Gᵀ·m·G for each
/// input channel.
struct TapSums {
  const float *from; ///< by input channel
  int64_t piece;     ///< from a piece to the next, elements
  int64_t channels;
  float *to; ///< [channels][9]
};

/// The pieces m of a tile become the 2 × 2 pixels of Aᵀ·m·A, for a panel of channels.
struct Spread {
  const float *from;
  int64_t piece;     ///< from a piece to the next, elements
  float *pixel[4];   ///< row by row; null: outside of the image
  int64_t columns;   ///< of the panel that are stored
  const float *bias; ///< per column, or null
  bool adds, isRelu; ///< to what the pixels hold; max(0, x) is the last step
};

struct Kernels {
  /// [rows − 1][0]: one panel; [1]: panelsAt[rows − 1] panels.
  void (*tile[tileRows][2])(const Tile &);
  /// to[c · toRow + r] = from[r · fromRow + c]. `rows` and `columns` are any.
  void (*transpose)(int64_t rows, int64_t columns, const float *from, int64_t fromRow,
                    float *to, int64_t toRow);
  /// c[i, n] = post-op of it; y belongs to the element at c.
  void (*post)(const PostStep &step, int64_t rows, int64_t columns, float *c,
               int64_t cRow);
};

/// For Winograd's algorithm.
struct WinogradKernels {
  int64_t rows, panels;              ///< of a tile, at most
  void (*tile[12][2])(const Tile &); ///< by rows − 1 and panels − 1
  void (*filter)(const FilterPanel &);
  void (*patch)(const Patch &);
  /// A·y·Aᵀ, for the gradient of a filter, of y: the first four pixels.
  void (*cotangent)(const Patch &);
  void (*taps)(const TapSums &);
  void (*spread)(const Spread &);
  const char *name;
};

/// Of this CPU; null if it has none of the instruction sets.
const Kernels *kernels();
/// For AVX2 and FMA.
extern const Kernels avx2Kernels;
extern const WinogradKernels winogradAvx2;
/// For AVX-512 F.
extern const WinogradKernels winogradAvx512;

} // namespace partita::gemm

#endif // PARTITA_LIB_RUNTIME_GEMM_MICROKERNELS_H
