//===- WinogradShape.h - Which convolutions Winograd computes ---*- C++ -*-===//
//
// F(2 × 2, 3 × 3) by its sizes alone: what the kernels of Winograd.h and their price
// (Cost/Winograd.h) both go by. Header only, so that whoever prices a plan links no
// kernels.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_WINOGRADSHAPE_H
#define PARTITA_RUNTIME_WINOGRADSHAPE_H

#include <algorithm>
#include <cstdint>

namespace partita::winograd {

/// Results of a tile along a side; multiplications of a tile per pair of channels.
inline constexpr int64_t tileSide = 2, tilePieces = 16;

/// Tiles of an image of `height` × `width` results.
inline int64_t tilesOf(int64_t height, int64_t width) {
  return (height + tileSide - 1) / tileSide * ((width + tileSide - 1) / tileSide);
}

/// Whether windows along a dim are such as the algorithm computes.
inline bool isWindow(int64_t kernel, int64_t stride, int64_t dilation) {
  return kernel == 3 && stride == 1 && dilation == 1;
}

/// Whether it is expected to be faster than the direct algorithm, by the pixels of all
/// results and the channels of one: a tile then has multiplications enough for its
/// transforms. With fewer pixels the filter, which packed is 16/9 as large, takes longer
/// to come from memory than products do.
inline bool isWorth(int64_t pixels, int64_t inChannels, int64_t outChannels) {
  constexpr int64_t enoughChannels = 16, enoughPixels = 40;
  return pixels >= enoughPixels && std::min(inChannels, outChannels) >= enoughChannels;
}

} // namespace partita::winograd

#endif // PARTITA_RUNTIME_WINOGRADSHAPE_H
