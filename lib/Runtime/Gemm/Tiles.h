//===- Tiles.h - Tiles of a product, by width of vectors --------*- C++ -*-===//
//
// Templates for the files that are compiled for one instruction set: all have internal
// linkage, so that no other code gets their instructions.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_GEMM_TILES_H
#define PARTITA_LIB_RUNTIME_GEMM_TILES_H

#include "MicroKernels.h"

namespace partita::gemm {
namespace {

template <int width> struct VectorType {
  using Type = float __attribute__((vector_size(4 * width)));
};
template <int width> using VectorOf = typename VectorType<width>::Type;

/// From and to any address.
template <int width> VectorOf<width> loadFrom(const float *at) {
  VectorOf<width> out;
  __builtin_memcpy(&out, at, sizeof(out));
  return out;
}
template <int width> void storeTo(VectorOf<width> x, float *at) {
  __builtin_memcpy(at, &x, sizeof(x));
}

template <int width> VectorOf<width> splat(float x) {
  VectorOf<width> out;
#pragma clang loop unroll(full)
  for (int i = 0; i < width; ++i)
    out[i] = x;
  return out;
}

/// sums[i][v] += Σ_p a[i, p] · b[p, v], asking for what is next with every summand or
/// not.
template <int width, int rows, int vectors, bool asks>
[[gnu::always_inline]] inline void multiply(const Tile &t,
                                            VectorOf<width> (&sums)[rows][vectors]) {
  constexpr int perPanel = panelColumns / width;
  const float *a = t.a, *b = t.b;
  const int64_t aRow = t.aRow;
  const int64_t bRow = t.bRow, bPanel = t.bPanel;
  const auto *next = reinterpret_cast<const char *>(t.next);
  const int64_t ahead = t.next - t.b;
  // Rows are found from two addresses: x86 has not the registers for one each.
  constexpr int half = 6;
  const float *lower = a + half * aRow;
#pragma clang loop unroll_count(asks || rows > half ? 1 : 4)
  for (int64_t p = 0; p < t.depth; ++p, b += bRow) {
    if constexpr (asks && vectors > perPanel) {
#pragma clang loop unroll(full)
      for (int panel = 0; panel < vectors / perPanel; ++panel)
        __builtin_prefetch(b + panel * bPanel + ahead, 0, 2);
    } else if constexpr (asks) {
      __builtin_prefetch(next, 0, 2);
      next += t.nextStep;
    }
    // Few rows have many vectors: those of b are read one by one.
    if constexpr (rows <= 3) {
      VectorOf<width> left[rows];
#pragma clang loop unroll(full)
      for (int i = 0; i < rows; ++i)
        left[i] = splat<width>(a[i * aRow + p]);
#pragma clang loop unroll(full)
      for (int v = 0; v < vectors; ++v) {
        VectorOf<width> right =
            loadFrom<width>(b + v / perPanel * bPanel + v % perPanel * width);
#pragma clang loop unroll(full)
        for (int i = 0; i < rows; ++i)
          sums[i][v] += left[i] * right;
      }
    } else {
      VectorOf<width> right[vectors];
#pragma clang loop unroll(full)
      for (int v = 0; v < vectors; ++v)
        right[v] = loadFrom<width>(b + v / perPanel * bPanel + v % perPanel * width);
#pragma clang loop unroll(full)
      for (int i = 0; i < rows; ++i) {
        VectorOf<width> left =
            splat<width>(i < half ? a[i * aRow + p] : lower[(i - half) * aRow + p]);
#pragma clang loop unroll(full)
        for (int v = 0; v < vectors; ++v)
          sums[i][v] += left * right[v];
        // Or the compiler loads all rows first, for which there are no registers either.
        if constexpr (rows > half)
          asm volatile("" ::: "memory");
      }
    }
  }
}

/// All sums of a tile are in registers: 6 rows of 2 vectors are 12 of 16, and with two of
/// b and one of a the next row has room; 12 rows of 2 vectors are 24 of 32.
template <int width, int rows, int panels> void addTile(const Tile &t) {
  constexpr int vectors = panels * panelColumns / width;
  using Vector = VectorOf<width>;
  Vector sums[rows][vectors];
#pragma clang loop unroll(full)
  for (int i = 0; i < rows; ++i)
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v)
      sums[i][v] = Vector{};
  if (t.nextStep)
    multiply<width, rows, vectors, true>(t, sums);
  else
    multiply<width, rows, vectors, false>(t, sums);
  // What the sums are added to: rows `from` apart.
  const float *base = t.adds ? t.c : t.bias;
  const int64_t from = t.adds ? t.cRow : 0;
  if (t.columns == panels * panelColumns) {
#pragma clang loop unroll(full)
    for (int i = 0; i < rows; ++i)
#pragma clang loop unroll(full)
      for (int v = 0; v < vectors; ++v) {
        Vector sum = sums[i][v];
        if (base)
          sum += loadFrom<width>(base + i * from + v * width);
        storeTo<width>(sum, t.c + i * t.cRow + v * width);
      }
    return;
  }
  float last[rows][vectors * width];
#pragma clang loop unroll(full)
  for (int i = 0; i < rows; ++i)
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v)
      storeTo<width>(sums[i][v], last[i] + v * width);
  for (int i = 0; i < rows; ++i)
    for (int64_t n = 0; n < t.columns; ++n)
      t.c[i * t.cRow + n] = base ? base[i * from + n] + last[i][n] : last[i][n];
}

} // namespace
} // namespace partita::gemm

#endif // PARTITA_LIB_RUNTIME_GEMM_TILES_H
