//===- Transforms.h - Transforms of Winograd's algorithm --------*- C++ -*-===//
//
// Templates like those of Tiles.h.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_GEMM_TRANSFORMS_H
#define PARTITA_LIB_RUNTIME_GEMM_TRANSFORMS_H

#include "Tiles.h"

namespace partita::gemm {
namespace {

/// G·g along one side, for the columns of a panel.
template <typename T>
[[gnu::always_inline]] inline void expand(const T *a, const T *b, const T *c,
                                          double (&to)[patchSide][panelColumns]) {
  for (int64_t k = 0; k < panelColumns; ++k) {
    const double first = a[k], middle = b[k], last = c[k];
    to[0][k] = first;
    to[1][k] = (first + middle + last) / 2;
    to[2][k] = (first - middle + last) / 2;
    to[3][k] = last;
  }
}

/// A filter that is turned has the same pieces, the outer ones in each other's place.
inline void filterToPieces(const FilterPanel &f) {
  constexpr int side = 3, taps = side * side;
  float g[taps][panelColumns] = {};
  double half[side][patchSide][panelColumns], all[patchSide][panelColumns];
  auto place = [&](int64_t i) {
    const bool isOuter = i == 0 || i == patchSide - 1;
    return f.isTurned && isOuter ? patchSide - 1 - i : i;
  };
  for (int64_t c = 0; c < f.channels; ++c) {
    // Channels that are far apart, each in a row, are asked for ahead.
    constexpr int64_t ahead = 8;
    if (f.column == taps && c + ahead < f.channels)
      for (int64_t i = 0; i < f.columns * taps; i += 16)
        __builtin_prefetch(f.from + (c + ahead) * f.channel + i);
    for (int64_t k = 0; k < f.columns; ++k) {
      const float *at = f.from + k * f.column + c * f.channel;
      for (int t = 0; t < taps; ++t)
        g[t][k] = at[t];
    }
    for (int j = 0; j < side; ++j)
      expand(g[j], g[side + j], g[2 * side + j], half[j]);
    for (int64_t i = 0; i < patchSide; ++i) {
      expand(half[0][i], half[1][i], half[2][i], all);
      for (int64_t j = 0; j < patchSide; ++j) {
        const int64_t piece = place(i) * patchSide + place(j);
        float *to = f.to + (piece * f.channels + c) * panelColumns;
        for (int64_t k = 0; k < panelColumns; ++k)
          to[k] = static_cast<float>(all[j][k]);
      }
    }
  }
}

/// Column `column` of the pieces: of d·B, then of Bᵀ·(d·B). What it reads is loaded anew
/// for each column, which costs less than keeping 16 vectors in 16 registers.
template <int width, int column>
[[gnu::always_inline]] inline void patchColumn(const Patch &p, int64_t c) {
  auto at = [&](int row, int pixel) {
    return loadFrom<width>(p.pixel[row * patchSide + pixel] + c);
  };
  VectorOf<width> x[patchSide];
#pragma clang loop unroll(full)
  for (int row = 0; row < patchSide; ++row)
    x[row] = column == 0   ? at(row, 0) - at(row, 2)
             : column == 1 ? at(row, 1) + at(row, 2)
             : column == 2 ? at(row, 2) - at(row, 1)
                           : at(row, 1) - at(row, 3);
  float *to = p.to + column * p.piece + c;
  const int64_t row = patchSide * p.piece;
  storeTo<width>(x[0] - x[2], to);
  storeTo<width>(x[1] + x[2], to + row);
  storeTo<width>(x[2] - x[1], to + 2 * row);
  storeTo<width>(x[1] - x[3], to + 3 * row);
}

template <int width>
[[gnu::always_inline]] inline void patchVector(const Patch &p, int64_t c) {
  patchColumn<width, 0>(p, c);
  patchColumn<width, 1>(p, c);
  patchColumn<width, 2>(p, c);
  patchColumn<width, 3>(p, c);
}

/// y[row][column] of Aᵀ·m·A for one vector of channels.
template <int width>
[[gnu::always_inline]] inline void sumPieces(const Spread &s, int64_t c,
                                             VectorOf<width> (&y)[2][2]) {
  VectorOf<width> x[2][patchSide];
#pragma clang loop unroll(full)
  for (int column = 0; column < patchSide; ++column) {
    const float *from = s.from + column * s.piece + c;
    const int64_t row = patchSide * s.piece;
    VectorOf<width> m1 = loadFrom<width>(from + row),
                    m2 = loadFrom<width>(from + 2 * row);
    x[0][column] = loadFrom<width>(from) + (m1 + m2);
    x[1][column] = (m1 - m2) - loadFrom<width>(from + 3 * row);
  }
#pragma clang loop unroll(full)
  for (int row = 0; row < 2; ++row) {
    y[row][0] = x[row][0] + (x[row][1] + x[row][2]);
    y[row][1] = (x[row][1] - x[row][2]) - x[row][3];
  }
}

template <int width>
VectorOf<width> finished(const Spread &s, VectorOf<width> x, const float *bias,
                         const float *pixel) {
  if (bias)
    x += loadFrom<width>(bias);
  if (s.adds)
    x += loadFrom<width>(pixel);
  const VectorOf<width> zero = {};
  // A NaN stays one.
  return s.isRelu ? (x < zero ? zero : x) : x;
}

template <int width>
[[gnu::always_inline]] inline void cotangentVector(const Patch &p, int64_t c) {
  VectorOf<width> y[2][2], half[patchSide][2];
#pragma clang loop unroll(full)
  for (int i = 0; i < 4; ++i)
    y[i / 2][i % 2] = loadFrom<width>(p.pixel[i] + c);
#pragma clang loop unroll(full)
  for (int column = 0; column < 2; ++column) {
    half[0][column] = y[0][column];
    half[1][column] = y[0][column] + y[1][column];
    half[2][column] = y[0][column] - y[1][column];
    half[3][column] = -y[1][column];
  }
#pragma clang loop unroll(full)
  for (int row = 0; row < patchSide; ++row) {
    float *to = p.to + row * patchSide * p.piece + c;
    storeTo<width>(half[row][0], to);
    storeTo<width>(half[row][0] + half[row][1], to + p.piece);
    storeTo<width>(half[row][0] - half[row][1], to + 2 * p.piece);
    storeTo<width>(-half[row][1], to + 3 * p.piece);
  }
}

/// All channels by `vector(patch, first channel)`, which reads so many pixels.
template <int width, int pixels>
[[gnu::always_inline]] inline void toPieces(const Patch &p,
                                            void (*vector)(const Patch &, int64_t)) {
  int64_t c = 0;
  for (; c + width <= p.channels; c += width)
    vector(p, c);
  if (c == p.channels)
    return;
  // The last channels, copied to where there are whole vectors of them.
  float in[pixels][width] = {}, out[pieces][width];
  Patch last{{}, width, out[0], width};
  for (int i = 0; i < pixels; ++i) {
    last.pixel[i] = in[i];
    for (int64_t k = c; k < p.channels; ++k)
      in[i][k - c] = p.pixel[i][k];
  }
  vector(last, 0);
  for (int i = 0; i < pieces; ++i)
    for (int64_t k = c; k < p.channels; ++k)
      p.to[i * p.piece + k] = out[i][k - c];
}

template <int width> void patchToPieces(const Patch &p) {
  toPieces<width, pieces>(p, patchVector<width>);
}

template <int width> void cotangentToPieces(const Patch &p) {
  toPieces<width, 4>(p, cotangentVector<width>);
}

/// Gᵀ along one side.
template <typename V>
[[gnu::always_inline]] inline void contract(const V &a, const V &b, const V &c,
                                            const V &d, V (&to)[3]) {
  to[0] = a + (b + c) * 0.5f;
  to[1] = (b - c) * 0.5f;
  to[2] = (b + c) * 0.5f + d;
}

/// Whole vectors are read; of the last one only what there is of channels is written.
template <int width> void sumsToTaps(const TapSums &s) {
  constexpr int side = 3, taps = side * side;
  using Vector = VectorOf<width>;
  for (int64_t c = 0; c < s.channels; c += width) {
    Vector half[patchSide][side], all[side];
    for (int column = 0; column < patchSide; ++column) {
      auto piece = [&](int row) {
        return loadFrom<width>(s.from + (row * patchSide + column) * s.piece + c);
      };
      contract(piece(0), piece(1), piece(2), piece(3), half[column]);
    }
    float out[taps][width];
    for (int row = 0; row < side; ++row) {
      contract(half[0][row], half[1][row], half[2][row], half[3][row], all);
      for (int column = 0; column < side; ++column)
        storeTo<width>(all[column], out[row * side + column]);
    }
    const int64_t count = s.channels - c < width ? s.channels - c : width;
    for (int64_t k = 0; k < count; ++k)
      for (int t = 0; t < taps; ++t)
        s.to[(c + k) * taps + t] = out[t][k];
  }
}

template <int width> void piecesToPixels(const Spread &s) {
  for (int64_t c = 0; c < s.columns; c += width) {
    VectorOf<width> y[2][2];
    sumPieces<width>(s, c, y);
    const int64_t count = s.columns - c < width ? s.columns - c : width;
    for (int i = 0; i < 4; ++i) {
      float *pixel = s.pixel[i];
      if (!pixel)
        continue;
      pixel += c;
      const float *bias = s.bias ? s.bias + c : nullptr;
      VectorOf<width> x = y[i / 2][i % 2];
      if (count == width) {
        storeTo<width>(finished<width>(s, x, bias, pixel), pixel);
        continue;
      }
      float rest[3][width] = {};
      for (int64_t k = 0; k < count; ++k) {
        rest[1][k] = bias ? bias[k] : 0;
        rest[2][k] = s.adds ? pixel[k] : 0;
      }
      storeTo<width>(finished<width>(s, x, bias ? rest[1] : nullptr, rest[2]), rest[0]);
      for (int64_t k = 0; k < count; ++k)
        pixel[k] = rest[0][k];
    }
  }
}

} // namespace
} // namespace partita::gemm

#endif // PARTITA_LIB_RUNTIME_GEMM_TRANSFORMS_H
