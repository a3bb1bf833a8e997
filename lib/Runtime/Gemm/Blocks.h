//===- Blocks.h - How a product is cut into blocks --------------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_GEMM_BLOCKS_H
#define PARTITA_LIB_RUNTIME_GEMM_BLOCKS_H

#include "MicroKernels.h"

#include <algorithm>

namespace partita::gemm {

/// Most tiles in a block of rows, and bytes of the left operand that stay in the
/// second-level cache: 512 KiB on the smaller CPUs of today.
constexpr int64_t blockTiles = 40, slabBytes = 416 * 1024;

/// With fewer tiles than this, each asks for what is next as it goes along; more of them
/// do so between tiles, which costs less.
constexpr int64_t manyTiles = 8;

inline int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Span {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

/// Block `i` of `count` in `size`; their sizes differ by one at most.
inline Span blockOf(int64_t size, int64_t i, int64_t count) {
  int64_t least = size / count, more = size % count;
  return {i * least + std::min(i, more), (i + 1) * least + std::min(i + 1, more)};
}

/// A strided matrix: rows of the left operand by summands, or summands by columns.
struct Matrix {
  const float *at;
  int64_t row, column;
};

/// `columns` of a matrix of `rows` summands as panels, with zeros behind the last.
void packPanels(const Kernels &kernel, Matrix from, int64_t rows, int64_t columns,
                float *to);

/// Cache lines of 16 elements that will be read: runs of them, `run` elements apart.
struct Lines {
  const float *at = nullptr;
  int64_t inRun = 0, run = 0, count = 0;
  int64_t asked = 0; ///< of this run

  void ask(int64_t lines) {
    for (; lines > 0 && count > 0; --lines, --count) {
      __builtin_prefetch(at + asked * 16, 0, 3);
      if (++asked == inRun) {
        asked = 0;
        at += run;
      }
    }
  }
};

static_assert(tileDepth % 4 == 0);

/// The sizes that follow from the shape.
struct Geometry {
  int64_t tiles, rowBlocks, depthBlocks, slabs, panels;
  int64_t leastRows, higherTiles; ///< of a tile; how many have a row more
  int64_t summands, depth;        ///< all; of a block, the last may have fewer
  int64_t left;                   ///< elements that are packed at a time
  int64_t right = 0;

  /// `most`: rows of a tile.
  Geometry(int64_t m, int64_t n, int64_t k, int64_t most = tileRows)
      : tiles(ceilDiv(m, most)), rowBlocks(ceilDiv(tiles, blockTiles)),
        depthBlocks(ceilDiv(k, tileDepth)), panels(ceilDiv(n, panelColumns)),
        leastRows(m / tiles), higherTiles(m % tiles), summands(k),
        // The loop over them takes four at a time.
        depth(ceilDiv(ceilDiv(k, depthBlocks), 4) * 4) {
    int64_t rows = std::min(m, ceilDiv(tiles, rowBlocks) * tileRows);
    int64_t fits = slabBytes / (4 * rows * depth);
    slabs = ceilDiv(depthBlocks, std::max<int64_t>(fits, 1));
    left = ceilDiv(depthBlocks, slabs) * rows * leftStride;
  }
  Span summandsOf(int64_t block) const {
    return {block * depth, std::min(summands, (block + 1) * depth)};
  }
  int64_t rowOf(int64_t tile) const {
    return tile * leastRows + std::min(tile, higherTiles);
  }
  int64_t rowsOf(int64_t tile) const { return leastRows + (tile < higherTiles); }
};

} // namespace partita::gemm

#endif // PARTITA_LIB_RUNTIME_GEMM_BLOCKS_H
