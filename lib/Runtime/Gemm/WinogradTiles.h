//===- WinogradTiles.h - Tiles of images and their addresses ----*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_GEMM_WINOGRADTILES_H
#define PARTITA_LIB_RUNTIME_GEMM_WINOGRADTILES_H

#include "Blocks.h"
#include "partita/Base/Bundle/TaskTable.h"
#include "partita/Runtime/Winograd.h"
#include "partita/Runtime/WinogradShape.h"

namespace partita::gemm {

using winograd::tileSide;
static_assert(pieces == winograd::tilePieces);

/// Place of a tile in the images.
struct Position {
  int64_t image, row, column; ///< the two of its first result
};

/// Tiles of a batch of images of height × width results, image by image, row by row.
struct TileGrid {
  int64_t rows, columns; ///< of an image

  TileGrid(int64_t height, int64_t width)
      : rows(ceilDiv(height, tileSide)), columns(ceilDiv(width, tileSide)) {}
  int64_t perImage() const { return rows * columns; }
  Position at(int64_t tile) const {
    const int64_t row = tile / columns;
    return {row / rows, row % rows * tileSide, tile % columns * tileSide};
  }
};

/// Images that keep channels last.
struct Images {
  const float *at;
  int64_t height, width, channels;
  const float *zeros; ///< a pixel outside

  const float *pixel(int64_t image, int64_t row, int64_t column) const {
    const bool isInside = row >= 0 && row < height && column >= 0 && column < width;
    return isInside ? at + ((image * height + row) * width + column) * channels : zeros;
  }
  /// The 4 × 4 pixels from this one on.
  void takePatch(const Position &from, Patch &patch) const {
    for (int64_t i = 0; i < pieces; ++i)
      patch.pixel[i] =
          pixel(from.image, from.row + i / patchSide, from.column + i % patchSide);
  }
};

/// Pieces are an odd number of cache lines apart, so that the 16 that are written
/// together lie in different sets of the cache.
inline int64_t apart(int64_t elements) { return ceilDiv(elements, 16) / 2 * 32 + 16; }

/// The kernels for such vectors; null: this CPU has none.
const WinogradKernels *kernelsFor(winograd::Vectors vectors);
/// Tells if each window is one that the algorithm computes.
bool areWindows(const std::vector<task::SpatialDim> &spatial);

} // namespace partita::gemm

#endif // PARTITA_LIB_RUNTIME_GEMM_WINOGRADTILES_H
