//===- ByteSteps.h - Functions of sums of products of bytes -----*- C++ -*-===//
//
// Compiled for one instruction set each, and chosen when a program runs: the files that
// are compiled so include nothing with inline functions (MicroKernels.h).
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_GEMM_BYTESTEPS_H
#define PARTITA_LIB_RUNTIME_GEMM_BYTESTEPS_H

#include <cstdint>

namespace partita::gemm {

/// Columns that kernels take at once, whether or not they are wanted.
constexpr int64_t sumsAtOnce = 16;

/// A post-op on rows of 32-bit numbers. `y` is the operand of a binary one.
struct SumStep {
  int64_t kind;   ///< partita_post_op
  bool isInteger; ///< numbers, and what it makes of them but for casts
  float alpha, beta;
  const void *y;
  int64_t yColumn; ///< elements
};

/// Columns are rounded up to sumsAtOnce, for y with them.
void sumStep(const SumStep &step, int64_t rows, int64_t columns, int32_t *sums,
             int64_t row);

/// Whole numbers, as f32, become bytes of a type that has them.
void storeBytes(const int32_t *numbers, int64_t row, int64_t rows, int64_t columns,
                uint8_t *to, int64_t toRow, int64_t toColumn);

/// to[r, c] = clip(round((sums + bias) · factor) + offset), where bias and factor are per
/// column, and sums in i32.
struct Scaled {
  const int32_t *sums;
  int64_t row, rows, columns;
  const int32_t *bias; ///< or null
  bool isSubtracted;   ///< the bias
  const float *factor; ///< or null: `one` for all
  float one, offset, low, high;
  uint8_t *to;
  int64_t toRow;
};
/// For AVX2, and for AVX-512 F, BW and VL.
void scaleNarrow(const Scaled &block);
void scaleWide(const Scaled &block);

} // namespace partita::gemm

#endif // PARTITA_LIB_RUNTIME_GEMM_BYTESTEPS_H
