//===- BlockLoops.cpp - Products with weights of 4 bits by plain loops ----===//
#include "partita/Runtime/Plain.h"
#include "partita/Runtime/Team.h"

#include <cmath>
#include <limits>

using namespace partita;
using engine::Call;

namespace {
class LoopBlockMatMul final : public Call {
public:
  explicit LoopBlockMatMul(const task::BlockMatMul &params)
      : p(params), k(p.blocks * p.block) {
    if (p.byte_rows)
      memory.scratch = sizeof(float) * static_cast<uint64_t>(p.m * k);
  }
  Expected<std::unique_ptr<Frame>> frame() const override {
    return std::make_unique<Frame>();
  }
  bool run(Frame &, std::span<void *const> operands,
           const Weight *) const noexcept override {
    auto *a = static_cast<const float *>(operands[task::BlockMatMulA]);
    auto *rounded = static_cast<float *>(operands[task::BlockMatMulScratch]);
    if (p.byte_rows)
      runtime::runRanges(p.m, k, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          roundRow(a + i * p.a_row, rounded + i * k);
      });
    runtime::runRanges(p.n, p.m * k, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j)
        for (int64_t i = 0; i < p.m; ++i)
          static_cast<float *>(operands[task::BlockMatMulC])[i * p.c_row + j] =
              sumOf(p.byte_rows ? rounded + i * k : a + i * p.a_row, operands, j);
    });
    return true;
  }
  std::string implementation() const override { return "loops"; }

private:
  /// A row whose elements are whole steps of their block.
  void roundRow(const float *from, float *to) const {
    for (int64_t begin = 0; begin < k; begin += p.block) {
      float largest = 0;
      bool isFinite = true;
      for (int64_t i = begin; i < begin + p.block; ++i) {
        isFinite &= std::isfinite(from[i]);
        largest = std::max(largest, std::abs(from[i]));
      }
      const bool isZero = largest < 0x1p-100f;
      const float step =
          isFinite ? largest / 127 : std::numeric_limits<float>::quiet_NaN();
      for (int64_t i = begin; i < begin + p.block; ++i)
        to[i] = isFinite && isZero ? 0 : step * std::nearbyint(from[i] * (127 / largest));
    }
  }
  float sumOf(const float *a, std::span<void *const> operands, int64_t column) const {
    auto *b = static_cast<const uint8_t *>(operands[task::BlockMatMulB]) + column * k / 2;
    auto *scales = static_cast<const float *>(operands[task::BlockMatMulScales]);
    float sum = 0;
    for (int64_t block = 0; block < p.blocks; ++block) {
      const float scale = scales[block * p.scale_block + column * p.scale_col];
      const float zero = zeroAt(operands, block, column);
      for (int64_t i = block * p.block; i < (block + 1) * p.block; ++i)
        sum += a[i] * ((static_cast<float>(b[i / 2] >> 4 * (i % 2) & 15) - zero) * scale);
    }
    return sum;
  }
  float zeroAt(std::span<void *const> operands, int64_t block, int64_t column) const {
    const int64_t place = block * p.zero_block + column * p.zero_col;
    if (!p.zero_dtype)
      return 8;
    const void *zeros = operands[task::BlockMatMulZeros];
    return p.zero_dtype == PARTITA_DTYPE_U8 ? static_cast<const uint8_t *>(zeros)[place]
                                            : static_cast<const float *>(zeros)[place];
  }

  task::BlockMatMul p;
  int64_t k;
};
} // namespace

std::unique_ptr<Call> plain::blockMatMul(const task::BlockMatMul &params) {
  return std::make_unique<LoopBlockMatMul>(params);
}
