//===- Avx2Winograd.cpp - Transforms of Winograd's algorithm by AVX2 ------===//
#include "Avx2.h"
#include "MicroKernels.h"

using namespace partita;
using namespace partita::gemm;

#if defined(__x86_64__)

namespace {

/// Column `column` of the pieces: of d·B, then of Bᵀ·(d·B). What it reads is loaded anew
/// for each column, which costs less than keeping 16 vectors in 16 registers.
template <int column>
[[gnu::always_inline]] inline void patchColumn(const Patch &p, int64_t c) {
  auto at = [&](int row, int pixel) {
    return load(p.pixel[row * patchSide + pixel] + c);
  };
  Vector x[patchSide];
#pragma clang loop unroll(full)
  for (int row = 0; row < patchSide; ++row)
    x[row] = column == 0   ? at(row, 0) - at(row, 2)
             : column == 1 ? at(row, 1) + at(row, 2)
             : column == 2 ? at(row, 2) - at(row, 1)
                           : at(row, 1) - at(row, 3);
  float *to = p.to + column * p.piece + c;
  const int64_t row = patchSide * p.piece;
  store(x[0] - x[2], to);
  store(x[1] + x[2], to + row);
  store(x[2] - x[1], to + 2 * row);
  store(x[1] - x[3], to + 3 * row);
}

[[gnu::always_inline]] inline void patchVector(const Patch &p, int64_t c) {
  patchColumn<0>(p, c);
  patchColumn<1>(p, c);
  patchColumn<2>(p, c);
  patchColumn<3>(p, c);
}

/// y[row][column] of Aᵀ·m·A for one vector of channels.
[[gnu::always_inline]] inline void sumPieces(const Spread &s, int64_t c,
                                             Vector (&y)[2][2]) {
  Vector x[2][patchSide];
#pragma clang loop unroll(full)
  for (int column = 0; column < patchSide; ++column) {
    const float *from = s.from + column * s.piece + c;
    const int64_t row = patchSide * s.piece;
    Vector m1 = load(from + row), m2 = load(from + 2 * row);
    x[0][column] = load(from) + (m1 + m2);
    x[1][column] = (m1 - m2) - load(from + 3 * row);
  }
#pragma clang loop unroll(full)
  for (int row = 0; row < 2; ++row) {
    y[row][0] = x[row][0] + (x[row][1] + x[row][2]);
    y[row][1] = (x[row][1] - x[row][2]) - x[row][3];
  }
}

Vector finished(const Spread &s, Vector x, const float *bias, const float *pixel) {
  if (bias)
    x += load(bias);
  if (s.adds)
    x += load(pixel);
  // A NaN stays one.
  return s.isRelu ? (x < Vector{} ? Vector{} : x) : x;
}

} // namespace

void gemm::patchAvx2(const Patch &p) {
  int64_t c = 0;
  for (; c + width <= p.channels; c += width)
    patchVector(p, c);
  if (c == p.channels)
    return;
  // The last channels, copied to where there are whole vectors of them.
  float in[pieces][width] = {}, out[pieces][width];
  Patch last{{}, width, out[0], width};
  for (int i = 0; i < pieces; ++i) {
    last.pixel[i] = in[i];
    for (int64_t k = c; k < p.channels; ++k)
      in[i][k - c] = p.pixel[i][k];
  }
  patchVector(last, 0);
  for (int i = 0; i < pieces; ++i)
    for (int64_t k = c; k < p.channels; ++k)
      p.to[i * p.piece + k] = out[i][k - c];
}

void gemm::spreadAvx2(const Spread &s) {
  for (int64_t c = 0; c < s.columns; c += width) {
    Vector y[2][2];
    sumPieces(s, c, y);
    const int64_t count = s.columns - c < width ? s.columns - c : width;
    for (int i = 0; i < 4; ++i) {
      float *pixel = s.pixel[i];
      if (!pixel)
        continue;
      pixel += c;
      const float *bias = s.bias ? s.bias + c : nullptr;
      Vector x = y[i / 2][i % 2];
      if (count == width) {
        store(finished(s, x, bias, pixel), pixel);
        continue;
      }
      float rest[3][width] = {};
      for (int64_t k = 0; k < count; ++k) {
        rest[1][k] = bias ? bias[k] : 0;
        rest[2][k] = s.adds ? pixel[k] : 0;
      }
      store(finished(s, x, bias ? rest[1] : nullptr, rest[2]), rest[0]);
      for (int64_t k = 0; k < count; ++k)
        pixel[k] = rest[0][k];
    }
  }
}

#endif
