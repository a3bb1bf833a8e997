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

/// The sums of a tile.
template <int width, int rows, int vectors>
[[gnu::always_inline]] inline void loadSums(const float *from,
                                            VectorOf<width> (&to)[rows][vectors]) {
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v)
      to[r][v] = loadFrom<width>(from + (r * vectors + v) * width);
}
template <int width, int rows, int vectors>
[[gnu::always_inline]] inline void storeSums(const VectorOf<width> (&from)[rows][vectors],
                                             float *to) {
#pragma clang loop unroll(full)
  for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v)
      storeTo<width>(from[r][v], to + (r * vectors + v) * width);
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
  loadSums<width>(t.sums, sums);
  auto *a = static_cast<const float *>(t.a);
  const int64_t aRow = t.aRow / static_cast<int64_t>(sizeof(float));
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
          left[r] = splat<width>(a[r * aRow + i]);
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
                 splat<width>(t.aSums[r * t.aBlocksRow + block]);
        sums[r][v] += scale * sum;
      }
    }
  }
  storeSums<width>(sums, t.sums);
}

/// Rows of bytes. `Bytes` says how four bytes of a row are multiplied by those of a word:
///
///     static constexpr int width, groups, chains;
///     using Part;                                  // sums of at most so many groups
///     static Part add(Part to, Words numbers, const int8_t *row);
///     static Ints widen(Part sums);
///
/// Integers are exact, and each block's sum is scaled in the order of blocks, so that
/// a result depends neither on the tile nor on the instruction set but for the rounding
/// of its sums.
template <typename Bytes, int rows, int panels> void addByteBlocks(const BlockTile &t) {
  constexpr int width = Bytes::width, perPanel = panelColumns / width;
  constexpr int vectors = panels * perPanel;
  constexpr int chains = rows * vectors > 4 ? 1 : Bytes::chains;
  using Vector = VectorOf<width>;
  using Ints = int32_t __attribute__((vector_size(4 * width)));
  constexpr uint32_t lowHalves = 0x0f0f0f0f;
  Vector sums[rows][vectors];
  loadSums<width>(t.sums, sums);
  auto *a = static_cast<const int8_t *>(t.a);
  const uint8_t *b = t.b;
  for (int64_t block = 0; block < t.blocks; ++block) {
    Ints whole[rows][vectors] = {};
    for (int64_t g = 0; g < t.groups;) {
      const int64_t end = g + Bytes::groups < t.groups ? g + Bytes::groups : t.groups;
      typename Bytes::Part part[chains][rows][vectors] = {};
      for (; g < end; ++g, a += groupSize, b += groupBytes)
#pragma clang loop unroll(full)
        for (int v = 0; v < vectors; ++v) {
          const uint8_t *at = b + v / perPanel * t.bPanel;
          const WordsOf<width> words = wordsAt<width>(at + v % perPanel * 4 * width);
          const WordsOf<width> even = words & lowHalves, odd = words >> 4 & lowHalves;
          if (v % perPanel == 0)
            __builtin_prefetch(at + bytesAhead, 0, 2);
#pragma clang loop unroll(full)
          for (int r = 0; r < rows; ++r) {
            const int8_t *row = a + r * t.aRow;
            part[0][r][v] = Bytes::add(part[0][r][v], even, row);
            part[chains - 1][r][v] =
                Bytes::add(part[chains - 1][r][v], odd, row + groupSize / 2);
          }
        }
#pragma clang loop unroll(full)
      for (int c = 0; c < chains; ++c)
#pragma clang loop unroll(full)
        for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
          for (int v = 0; v < vectors; ++v)
            whole[r][v] += Bytes::widen(part[c][r][v]);
    }
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v) {
      const int64_t place = (block * vectors + v) * width;
      const Vector scale = loadFrom<width>(t.scales + place);
      const Vector zero = loadFrom<width>(t.zeros + place);
#pragma clang loop unroll(full)
      for (int r = 0; r < rows; ++r) {
        const int64_t at = r * t.aBlocksRow + block;
        const Vector sum = __builtin_convertvector(whole[r][v], Vector) -
                           zero * splat<width>(t.aSums[at]);
        sums[r][v] += scale * splat<width>(t.aScales[at]) * sum;
      }
    }
  }
  storeSums<width>(sums, t.sums);
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
