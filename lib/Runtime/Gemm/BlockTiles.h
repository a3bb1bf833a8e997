//===- BlockTiles.h - Tiles of 4-bit weights, by width of vectors -*- C++ -*-===//
//
// Templates for the files that are compiled for one instruction set. `Numbers` says how
// its vectors become numbers:
//
//     static constexpr int width;
//     static Vector graded(Ints words, int i);  // number i, less the center, as tiles
//                                               // want it
//     static Vector plain(Ints words, int i);   // number i
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_GEMM_BLOCKTILES_H
#define PARTITA_LIB_RUNTIME_GEMM_BLOCKTILES_H

#include "BlockKernels.h"
#include "Tiles.h"

namespace partita::gemm {
namespace {

template <int width> struct WordsType {
  using Type = uint32_t __attribute__((vector_size(4 * width)));
};
template <int width> using WordsOf = typename WordsType<width>::Type;

template <int width> WordsOf<width> wordsAt(const uint8_t *at) {
  WordsOf<width> out;
  __builtin_memcpy(&out, at, sizeof(out));
  return out;
}

/// Bytes of a panel between what is multiplied and what memory is asked for.
constexpr int64_t bytesAhead = 1536;

/// A block's sums are apart from those of the other blocks, which have other scales. Of
/// few rows, those of even and odd summands too: enough sums that none waits for the one
/// before.
template <typename Numbers, int rows, int panels> void addBlocks(const BlockTile &t) {
  constexpr int width = Numbers::width, perPanel = panelColumns / width;
  constexpr int vectors = panels * perPanel, chains = rows * vectors > 4 ? 1 : 2;
  using Vector = VectorOf<width>;
  Vector sums[rows][vectors];
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v)
      sums[r][v] = loadFrom<width>(t.sums + (r * vectors + v) * width);
  const float *a = t.a;
  const uint8_t *b = t.b;
  for (int64_t block = 0; block < t.blocks; ++block) {
    Vector part[chains][rows][vectors] = {};
    for (int64_t g = 0; g < t.groups; ++g, a += groupSize, b += groupBytes) {
      WordsOf<width> words[vectors];
#pragma clang loop unroll(full)
      for (int v = 0; v < vectors; ++v) {
        const uint8_t *at = b + v / perPanel * t.bPanel;
        words[v] = wordsAt<width>(at + v % perPanel * 4 * width);
        if (v % perPanel == 0)
          __builtin_prefetch(at + bytesAhead, 0, 2);
      }
#pragma clang loop unroll(full)
      for (int i = 0; i < groupSize; ++i) {
        Vector left[rows];
#pragma clang loop unroll(full)
        for (int r = 0; r < rows; ++r)
          left[r] = splat<width>(a[r * t.aRow + i]);
#pragma clang loop unroll(full)
        for (int v = 0; v < vectors; ++v) {
          Vector number = Numbers::graded(words[v], i);
#pragma clang loop unroll(full)
          for (int r = 0; r < rows; ++r)
            part[i % chains][r][v] += left[r] * number;
        }
      }
    }
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v) {
      const int64_t place = (block * vectors + v) * width;
      Vector scale = loadFrom<width>(t.scales + place);
#pragma clang loop unroll(full)
      for (int r = 0; r < rows; ++r) {
        Vector sum = part[0][r][v];
        if constexpr (chains == 2)
          sum += part[1][r][v];
        if (t.zeros)
          sum -= loadFrom<width>(t.zeros + place) *
                 splat<width>(t.aSums[r * t.aSumsRow + block]);
        sums[r][v] += scale * sum;
      }
    }
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v)
      storeTo<width>(sums[r][v], t.sums + (r * vectors + v) * width);
}

template <typename Numbers> void unpackBlock(const BlockUnpack &u) {
  constexpr int width = Numbers::width, vectors = panelColumns / width;
  using Vector = VectorOf<width>;
  Vector scales[vectors], zeros[vectors];
#pragma clang loop unroll(full)
  for (int v = 0; v < vectors; ++v) {
    scales[v] = loadFrom<width>(u.scales + v * width);
    zeros[v] = loadFrom<width>(u.zeros + v * width);
  }
  const uint8_t *b = u.b;
  float *to = u.to;
  for (int64_t g = 0; g < u.groups; ++g, b += groupBytes)
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v) {
      WordsOf<width> words = wordsAt<width>(b + v * 4 * width);
#pragma clang loop unroll(full)
      for (int i = 0; i < groupSize; ++i)
        storeTo<width>((Numbers::plain(words, i) - zeros[v]) * scales[v],
                       to + (g * groupSize + i) * u.toRow + v * width);
    }
}

} // namespace
} // namespace partita::gemm

#endif // PARTITA_LIB_RUNTIME_GEMM_BLOCKTILES_H
