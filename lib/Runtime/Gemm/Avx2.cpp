//===- Avx2.cpp - Micro-kernels for AVX2 and FMA --------------------------===//
#include "Tiles.h"
#include "Transforms.h"

#include "partita/Abi/TaskTable.h"

using namespace partita;
using namespace partita::gemm;

#if defined(__x86_64__)

namespace {

constexpr int width = 8;
using Vector = VectorOf<width>;

Vector load(const float *at) { return loadFrom<width>(at); }
void store(Vector x, float *at) { storeTo<width>(x, at); }
template <int rows, int panels> constexpr auto tile = addTile<width, rows, panels>;

/// An 8 × 8 block by three rounds of shuffles.
void transposeBlock(const float *from, int64_t fromRow, float *to, int64_t toRow) {
  Vector x[8], y[8];
  for (int r = 0; r < 8; ++r)
    x[r] = load(from + r * fromRow);
  for (int r = 0; r < 8; r += 2) {
    y[r] = __builtin_shufflevector(x[r], x[r + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    y[r + 1] = __builtin_shufflevector(x[r], x[r + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int h = 0; h < 8; h += 4)
    for (int r = 0; r < 2; ++r) {
      const Vector &low = y[h + r], &high = y[h + r + 2];
      x[h + 2 * r] = __builtin_shufflevector(low, high, 0, 1, 8, 9, 4, 5, 12, 13);
      x[h + 2 * r + 1] = __builtin_shufflevector(low, high, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int r = 0; r < 4; ++r) {
    store(__builtin_shufflevector(x[r], x[r + 4], 0, 1, 2, 3, 8, 9, 10, 11),
          to + r * toRow);
    store(__builtin_shufflevector(x[r], x[r + 4], 4, 5, 6, 7, 12, 13, 14, 15),
          to + (r + 4) * toRow);
  }
}

void transpose(int64_t rows, int64_t columns, const float *from, int64_t fromRow,
               float *to, int64_t toRow) {
  const int64_t wholeRows = rows / 8 * 8, wholeColumns = columns / 8 * 8;
  for (int64_t c = 0; c < wholeColumns; c += 8)
    for (int64_t r = 0; r < wholeRows; r += 8)
      transposeBlock(from + r * fromRow + c, fromRow, to + c * toRow + r, toRow);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = r < wholeRows ? wholeColumns : 0; c < columns; ++c)
      to[c * toRow + r] = from[r * fromRow + c];
}

/// c[i, n] = f(c[i, n], y[i, n]). The full width of a panel has a loop of its own, which
/// becomes two vectors.
template <typename F>
void each(const PostStep &step, int64_t rows, int64_t columns, float *c, int64_t cRow,
          F f) {
  for (int64_t i = 0; i < rows; ++i) {
    float *__restrict x = c + i * cRow;
    const float *__restrict y = step.y + i * step.yRow;
    if (step.yColumn == 0) {
      const float one = step.y ? *y : 0;
      for (int64_t n = 0; n < columns; ++n)
        x[n] = f(x[n], one);
    } else if (columns == panelColumns) {
      for (int64_t n = 0; n < panelColumns; ++n)
        x[n] = f(x[n], y[n]);
    } else {
      for (int64_t n = 0; n < columns; ++n)
        x[n] = f(x[n], y[n]);
    }
  }
}

/// Comparisons are written so that a NaN stays one.
float clamp(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

void post(const PostStep &step, int64_t rows, int64_t columns, float *c, int64_t cRow) {
  const float alpha = step.alpha, beta = step.beta;
  auto on = [&](auto f) { each(step, rows, columns, c, cRow, f); };
  switch (step.kind) {
  case PARTITA_POST_RELU:
    if (alpha == 0)
      return on([](float x, float) { return x < 0 ? 0 : x; });
    return on([=](float x, float) { return x < 0 ? alpha * x : x; });
  case PARTITA_POST_HARDSWISH:
    return on([](float x, float) { return x * clamp(x / 6 + 0.5f, 0, 1); });
  case PARTITA_POST_HARDSIGMOID:
    return on([=](float x, float) { return clamp(alpha * x + beta, 0, 1); });
  case PARTITA_POST_CLIP:
    return on([=](float x, float) { return clamp(x, alpha, beta); });
  case PARTITA_POST_LINEAR:
    return on([=](float x, float) { return alpha * x + beta; });
  case PARTITA_POST_BINARY_ADD:
    return on([](float x, float y) { return x + y; });
  case PARTITA_POST_BINARY_SUB:
    return on([](float x, float y) { return x - y; });
  default: // BINARY_MUL
    return on([](float x, float y) { return x * y; });
  }
}

} // namespace

const Kernels gemm::avx2Kernels = {{{tile<1, 1>, tile<1, panelsAt[0]>},
                                    {tile<2, 1>, tile<2, panelsAt[1]>},
                                    {tile<3, 1>, tile<3, panelsAt[2]>},
                                    {tile<4, 1>, tile<4, panelsAt[3]>},
                                    {tile<5, 1>, tile<5, panelsAt[4]>},
                                    {tile<6, 1>, tile<6, panelsAt[5]>}},
                                   transpose,
                                   post};

const WinogradKernels gemm::winogradAvx2 = {
    tileRows,
    1,
    {{tile<1, 1>}, {tile<2, 1>}, {tile<3, 1>}, {tile<4, 1>}, {tile<5, 1>}, {tile<6, 1>}},
    filterToPieces,
    patchToPieces<width>,
    cotangentToPieces<width>,
    sumsToTaps<width>,
    piecesToPixels<width>,
    "winograd:avx2"};

#endif
