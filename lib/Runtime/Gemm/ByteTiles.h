//===- ByteTiles.h - Tiles of products of 8-bit integers --------*- C++ -*-===//
//
// Sums of 32 bits that nothing saturates on the way to. A *step* is what one instruction
// adds to a sum: two summands of 16 bits (vpmaddwd) or four of 8 bits (vpdpbusd, the left
// ones unsigned).
//
//   right operand: panels of neighbouring columns; of each step the summands of a column
//                  side by side
//   left operand:  rows of steps
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_GEMM_BYTETILES_H
#define PARTITA_LIB_RUNTIME_GEMM_BYTETILES_H

#include <cstdint>

namespace partita::gemm {

/// sums[i, n] (+)= Σ_p left[i, p] · right[p, n] for some rows and one panel.
struct ByteTile {
  const void *left;
  int64_t leftRow;   ///< bytes from row to row
  const void *right; ///< 64-byte aligned
  int64_t steps;
  int32_t *sums;
  int64_t sumsRow;      ///< elements
  bool adds;            ///< to what sums holds
  const int32_t *begin; ///< else, if any: what a column's sums begin with
};

/// The elements of one pixel of a convolution whose every channel has its own filter.
struct DepthwisePixel {
  const uint8_t *const *taps; ///< by tap, its channels: two of each pair
  int64_t pairs;
  const int16_t *weights; ///< as packDepthwise leaves them
  int64_t channels;       ///< at least depthwiseChannels
  bool isSigned;          ///< the channels' bytes
  int32_t *sums;          ///< one per channel
};

/// Channels that are computed at once. The last block ends with the last channel, so that
/// it may begin inside of the one before.
constexpr int64_t depthwiseChannels = 16;

struct ByteKernels {
  int64_t rows;                          ///< of a tile, at most
  int64_t columns;                       ///< of a panel
  int64_t summands;                      ///< of a step
  int64_t leftBytes;                     ///< of a left element: 2, or 1 and unsigned
  void (*const *tile)(const ByteTile &); ///< by rows − 1
  const char *name, *form;
};

constexpr int64_t mostByteRows = 14, mostByteColumns = 32;

/// For AVX2: any signs. Null on other CPUs.
const ByteKernels *pairKernels();
/// For AVX-512 with VNNI: right operands are signed. Null on other CPUs.
const ByteKernels *quadKernels();

/// For AVX2.
void depthwisePixel(const DepthwisePixel &pixel);
/// Weights [channels][taps] in blocks: of each pair of taps 16 × 2 numbers in the order
/// in which the kernel adds.
void packDepthwise(const int16_t *from, int64_t channels, int64_t taps, int16_t *to);
/// A row of bytes as numbers of 16 bits.
void widenBytes(const void *from, bool isSigned, int64_t count, int16_t *to);

} // namespace partita::gemm

#endif // PARTITA_LIB_RUNTIME_GEMM_BYTETILES_H
