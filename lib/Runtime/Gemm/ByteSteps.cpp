//===- ByteSteps.cpp - Functions of sums of products of bytes -------------===//
#include "ByteSteps.h"

#include "partita/Abi/TaskTable.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace partita;
using namespace partita::gemm;

namespace {
// The numbers of a block are of i32 before a cast, and of f32 behind it.
using Integer [[gnu::may_alias]] = int32_t;
using Real [[gnu::may_alias]] = float;

template <typename T, typename Function>
void each(int64_t rows, int64_t columns, int32_t *sums, int64_t row, Function function) {
  for (int64_t r = 0; r < rows; ++r) {
    auto *x = reinterpret_cast<T *>(sums + r * row);
    for (int64_t c = 0; c < columns; ++c)
      x[c] = function(x[c]);
  }
}

template <typename T, typename Function>
void withOperand(const SumStep &step, int64_t rows, int64_t columns, int32_t *sums,
                 int64_t row, Function function) {
  auto *y = static_cast<const T *>(step.y);
  for (int64_t r = 0; r < rows; ++r) {
    auto *x = reinterpret_cast<T *>(sums + r * row);
    if (step.yColumn == 1)
      for (int64_t c = 0; c < columns; ++c)
        x[c] = function(x[c], y[c]);
    else
      for (int64_t c = 0; c < columns; ++c)
        x[c] = function(x[c], y[c * step.yColumn]);
  }
}

Integer wrapped(uint32_t x) { return static_cast<int32_t>(x); }

void integerStep(const SumStep &step, int64_t rows, int64_t columns, int32_t *sums,
                 int64_t row) {
  switch (step.kind) {
  case PARTITA_POST_BINARY_ADD:
    return withOperand<Integer>(step, rows, columns, sums, row, [](Integer x, Integer y) {
      return wrapped(uint32_t(x) + uint32_t(y));
    });
  case PARTITA_POST_BINARY_SUB:
    return withOperand<Integer>(step, rows, columns, sums, row, [](Integer x, Integer y) {
      return wrapped(uint32_t(x) - uint32_t(y));
    });
  default: { // LINEAR
    const auto addend = static_cast<uint32_t>(static_cast<int32_t>(step.beta));
    return each<Integer>(rows, columns, sums, row,
                         [=](Integer x) { return wrapped(uint32_t(x) + addend); });
  }
  }
}

void realStep(const SumStep &step, int64_t rows, int64_t columns, int32_t *sums,
              int64_t row) {
  const float alpha = step.alpha, beta = step.beta;
  switch (step.kind) {
  case PARTITA_POST_RELU:
    return each<Real>(rows, columns, sums, row, [](float x) { return x > 0 ? x : 0; });
  case PARTITA_POST_CLIP:
    return each<Real>(rows, columns, sums, row, [=](float x) {
      x = x < alpha ? alpha : x;
      return x > beta ? beta : x;
    });
  case PARTITA_POST_ROUND:
    return each<Real>(rows, columns, sums, row,
                      [](float x) { return __builtin_rintf(x); });
  case PARTITA_POST_LINEAR:
    if (alpha == 1)
      return each<Real>(rows, columns, sums, row, [=](float x) { return x + beta; });
    return each<Real>(rows, columns, sums, row, [=](float x) { return x * alpha; });
  case PARTITA_POST_BINARY_ADD:
    return withOperand<Real>(step, rows, columns, sums, row,
                             [](float x, float y) { return x + y; });
  case PARTITA_POST_BINARY_SUB:
    return withOperand<Real>(step, rows, columns, sums, row,
                             [](float x, float y) { return x - y; });
  default:
    return withOperand<Real>(step, rows, columns, sums, row,
                             [](float x, float y) { return x * y; });
  }
}
} // namespace

void gemm::sumStep(const SumStep &step, int64_t rows, int64_t columns, int32_t *sums,
                   int64_t row) {
  columns = (columns + sumsAtOnce - 1) / sumsAtOnce * sumsAtOnce;
  if (step.kind == PARTITA_POST_TO_F32) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        reinterpret_cast<Real *>(sums)[r * row + c] =
            static_cast<float>(reinterpret_cast<Integer *>(sums)[r * row + c]);
    return;
  }
  step.isInteger ? integerStep(step, rows, columns, sums, row)
                 : realStep(step, rows, columns, sums, row);
}

void gemm::storeBytes(const int32_t *numbers, int64_t row, int64_t rows, int64_t columns,
                      uint8_t *to, int64_t toRow, int64_t toColumn) {
  for (int64_t r = 0; r < rows; ++r) {
    auto *x = reinterpret_cast<const Real *>(numbers + r * row);
    uint8_t *at = to + r * toRow;
    if (toColumn == 1)
      for (int64_t c = 0; c < columns; ++c)
        at[c] = static_cast<uint8_t>(static_cast<int32_t>(x[c]));
    else
      for (int64_t c = 0; c < columns; ++c)
        at[c * toColumn] = static_cast<uint8_t>(static_cast<int32_t>(x[c]));
  }
}

#if defined(__x86_64__)

/// The lowest bytes of eight numbers.
static __m128i lowestBytes(__m256i x) {
  const __m256i places =
      _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, //
                       0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  x = _mm256_shuffle_epi8(x, places);
  return _mm_unpacklo_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}

void gemm::scaleNarrow(const Scaled &block) {
  const __m256 offset = _mm256_set1_ps(block.offset), low = _mm256_set1_ps(block.low),
               high = _mm256_set1_ps(block.high);
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (int64_t c = 0; c < block.columns; c += 8) {
    const int64_t count = block.columns - c;
    const __m256i mask = _mm256_cmpgt_epi32(
        _mm256_set1_epi32(static_cast<int>(count < 8 ? count : 8)), lanes);
    __m256i bias = _mm256_setzero_si256();
    if (block.bias)
      bias = _mm256_maskload_epi32(block.bias + c, mask);
    if (block.isSubtracted)
      bias = _mm256_sub_epi32(_mm256_setzero_si256(), bias);
    const __m256 factor = block.factor ? _mm256_maskload_ps(block.factor + c, mask)
                                       : _mm256_set1_ps(block.one);
    for (int64_t r = 0; r < block.rows; ++r) {
      const __m256i sum = _mm256_loadu_si256(
          reinterpret_cast<const __m256i *>(block.sums + r * block.row + c));
      __m256 x = _mm256_cvtepi32_ps(_mm256_add_epi32(sum, bias));
      x = _mm256_round_ps(_mm256_mul_ps(x, factor), 0x08);
      x = _mm256_add_ps(x, offset);
      x = _mm256_min_ps(_mm256_max_ps(x, low), high);
      const __m128i bytes = lowestBytes(_mm256_cvttps_epi32(x));
      uint8_t *to = block.to + r * block.toRow + c;
      if (count >= 8) {
        _mm_storel_epi64(reinterpret_cast<__m128i *>(to), bytes);
        continue;
      }
      const auto eight = static_cast<uint64_t>(_mm_cvtsi128_si64(bytes));
      for (int64_t i = 0; i < count; ++i)
        to[i] = static_cast<uint8_t>(eight >> (8 * i));
    }
  }
}

/// Rounds by the conversion to integers, which are as many as floats of this size. A
/// product that no integer holds is above all bytes: it is cut to one that is. What is no
/// number becomes the least integer, and so `low`, as `max` has it.
[[gnu::target("avx512f,avx512bw,avx512vl")]] void gemm::scaleWide(const Scaled &block) {
  const __m512 most = _mm512_set1_ps(0x1p30F);
  const __m512i offset = _mm512_set1_epi32(static_cast<int>(block.offset)),
                low = _mm512_set1_epi32(static_cast<int>(block.low)),
                high = _mm512_set1_epi32(static_cast<int>(block.high));
  for (int64_t c = 0; c < block.columns; c += 16) {
    const int64_t count = block.columns - c;
    const auto mask = static_cast<__mmask16>(count < 16 ? (1 << count) - 1 : 0xffff);
    __m512i bias = _mm512_setzero_si512();
    if (block.bias)
      bias = _mm512_maskz_loadu_epi32(mask, block.bias + c);
    if (block.isSubtracted)
      bias = _mm512_sub_epi32(_mm512_setzero_si512(), bias);
    const __m512 factor = block.factor ? _mm512_maskz_loadu_ps(mask, block.factor + c)
                                       : _mm512_set1_ps(block.one);
    // Read before: to a compiler, a store might change the block itself.
    const int32_t *from = block.sums + c;
    uint8_t *to = block.to + c;
    const int64_t fromRow = block.row, toRow = block.toRow;
    for (int64_t r = block.rows; r > 0; --r, from += fromRow, to += toRow) {
      const __m512i sum = _mm512_add_epi32(_mm512_loadu_si512(from), bias);
      const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), factor);
      __m512i numbers = _mm512_cvtps_epi32(_mm512_min_ps(most, scaled));
      numbers = _mm512_max_epi32(_mm512_add_epi32(numbers, offset), low);
      numbers = _mm512_min_epi32(numbers, high);
      if (count >= 16)
        _mm_storeu_si128(reinterpret_cast<__m128i *>(to), _mm512_cvtepi32_epi8(numbers));
      else
        _mm512_mask_cvtepi32_storeu_epi8(to, mask, numbers);
    }
  }
}

#else

void gemm::scaleNarrow(const Scaled &block) {
  for (int64_t r = 0; r < block.rows; ++r)
    for (int64_t c = 0; c < block.columns; ++c) {
      const uint32_t bias = block.bias ? static_cast<uint32_t>(block.bias[c]) : 0;
      const auto sum = static_cast<uint32_t>(block.sums[r * block.row + c]);
      float x = static_cast<float>(wrapped(block.isSubtracted ? sum - bias : sum + bias));
      x = __builtin_rintf(x * (block.factor ? block.factor[c] : block.one));
      x += block.offset;
      x = x > block.low ? x : block.low;
      x = x < block.high ? x : block.high;
      block.to[r * block.toRow + c] = static_cast<uint8_t>(static_cast<int32_t>(x));
    }
}

void gemm::scaleWide(const Scaled &block) { scaleNarrow(block); }

#endif
