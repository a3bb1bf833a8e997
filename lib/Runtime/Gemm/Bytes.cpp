//===- Bytes.cpp - Products of 8-bit integers, exact on AVX2 --------------===//
//
// Bytes are widened to 16 bits and multiplied two summands at a time (vpmaddwd), whose
// sum always fits 32 bits; products of bytes in one step (vpmaddubsw) saturate at 16.
//
//   packed weight: panels of 16 columns; of each pair of summands 16 × 2 numbers
//   left operand:  rows of pairs, widened into scratch at each run
//
//===----------------------------------------------------------------------===//
#include "ByteTiles.h"

#include "partita/Runtime/Gemm.h"

#include "partita/Runtime/Team.h"

#include <algorithm>
#include <cstring>

using namespace partita;
using namespace partita::gemm;
using engine::Call;

namespace {

constexpr int64_t panel = 16; ///< columns of pairKernels
/// Pairs of summands whose part of a panel, 24 KiB, stays in the first-level cache.
constexpr int64_t pairsOfBlock = 384;

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// A matrix of bytes; strides in elements.
struct ByteMatrix {
  const void *at;
  bool isSigned;
  int64_t row, column;

  int16_t get(int64_t i, int64_t j) const {
    int64_t place = i * row + j * column;
    return isSigned ? int16_t(static_cast<const int8_t *>(at)[place])
                    : int16_t(static_cast<const uint8_t *>(at)[place]);
  }
};

class ByteMatMul final : public Call {
public:
  explicit ByteMatMul(const task::MatMul &params);
  Expected<void> pack(const void *raw, void *packed) const override {
    packRight({raw, task::rhsType(p) == DType::I8, p.b_row, p.b_col},
              static_cast<int16_t *>(packed));
    return {};
  }
  Expected<std::unique_ptr<Weight>> describe(void *packed) const override {
    return std::make_unique<Packed>(packed);
  }
  Expected<std::unique_ptr<Frame>> frame() const override {
    return std::make_unique<Frame>();
  }
  bool run(Frame &, std::span<void *const> operands,
           const Weight *weight) const noexcept override;
  std::string implementation() const override { return "pairs:avx2"; }

private:
  struct Packed : Weight {
    const int16_t *at;
    explicit Packed(const void *at) : at(static_cast<const int16_t *>(at)) {}
  };
  void packLeft(const ByteMatrix &from, int16_t *to) const;
  void packRight(const ByteMatrix &from, int16_t *to) const;
  void panelOf(const int16_t *left, const int16_t *right, int64_t columns,
               int32_t *to) const;

  task::MatMul p;
  int64_t pairs, panels, matrices = 1;
};

} // namespace

ByteMatMul::ByteMatMul(const task::MatMul &params)
    : p(params), pairs(ceilDiv(p.k, 2)), panels(ceilDiv(p.n, panel)) {
  for (const task::BatchDim &d : p.batch)
    matrices *= d.size;
  auto right = static_cast<uint64_t>(panels * pairs * 2 * panel) * sizeof(int16_t);
  memory.scratch = static_cast<uint64_t>(p.m * pairs) * sizeof(int32_t);
  if (!p.b_packed) {
    memory.scratch = (memory.scratch + 63) / 64 * 64 + right;
    return;
  }
  memory.packed = right;
  std::string stored = task::rhsType(p) == DType::I8 ? "i8" : "u8";
  for (int64_t number : {p.k, p.n, p.b_row, p.b_col})
    stored += " " + std::to_string(number);
  weightForm = {stored, "pairs in panels of 16"};
}

void ByteMatMul::packLeft(const ByteMatrix &from, int16_t *to) const {
  runtime::runRanges(p.m, p.k, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int16_t *row = to + i * 2 * pairs;
      if (from.column != 1)
        for (int64_t j = 0; j < p.k; ++j)
          row[j] = from.get(i, j);
      else
        widenBytes(static_cast<const char *>(from.at) + i * from.row, from.isSigned, p.k,
                   row);
      if (p.k % 2)
        row[p.k] = 0;
    }
  });
}

void ByteMatMul::packRight(const ByteMatrix &from, int16_t *to) const {
  runtime::runRanges(panels, panel * p.k, [&](int64_t begin, int64_t end) {
    for (int64_t number = begin; number < end; ++number)
      for (int64_t q = 0; q < pairs; ++q) {
        int16_t *at = to + (number * pairs + q) * 2 * panel;
        for (int64_t j = 0; j < panel; ++j)
          for (int64_t h = 0; h < 2; ++h) {
            int64_t row = 2 * q + h, column = number * panel + j;
            at[2 * j + h] =
                row < p.k && column < p.n ? from.get(row, column) : int16_t(0);
          }
      }
  });
}

/// All rows of one panel of the result.
void ByteMatMul::panelOf(const int16_t *left, const int16_t *right, int64_t columns,
                         int32_t *to) const {
  const ByteKernels &kernels = *pairKernels();
  alignas(64) int32_t sums[mostByteRows * panel];
  const bool isWhole = columns == panel;
  for (int64_t first = 0; first < pairs; first += pairsOfBlock) {
    ByteTile tile{nullptr,
                  4 * pairs,
                  right + first * 2 * panel,
                  std::min(pairsOfBlock, pairs - first),
                  nullptr,
                  panel,
                  first > 0,
                  nullptr};

    for (int64_t i = 0; i < p.m; i += kernels.rows) {
      const int64_t rows = std::min(kernels.rows, p.m - i);
      auto copyRows = [&](auto copy) {
        for (int64_t r = 0; r < rows && !isWhole; ++r)
          copy(sums + r * panel, to + (i + r) * p.c_row,
               static_cast<size_t>(columns) * sizeof(int32_t));
      };
      if (tile.adds)
        copyRows(std::memcpy);
      tile.left = left + (i * pairs + first) * 2;
      tile.sums = isWhole ? to + i * p.c_row : sums;
      tile.sumsRow = isWhole ? p.c_row : panel;
      kernels.tile[rows - 1](tile);
      copyRows(
          [](const void *from, void *at, size_t bytes) { std::memcpy(at, from, bytes); });
    }
  }
}

bool ByteMatMul::run(Frame &, std::span<void *const> operands,
                     const Weight *weight) const noexcept {
  auto *left = static_cast<int16_t *>(operands[task::MatMulScratch]);
  auto *own = reinterpret_cast<int16_t *>(
      static_cast<char *>(operands[task::MatMulScratch]) +
      (static_cast<uint64_t>(p.m * pairs) * sizeof(int32_t) + 63) / 64 * 64);
  for (int64_t number = 0; number < matrices; ++number) {
    int64_t rest = number, fromA = 0, fromB = 0, fromC = 0;
    for (size_t d = p.batch.size(); d-- > 0; rest /= p.batch[d].size) {
      int64_t i = rest % p.batch[d].size;
      fromA += i * p.batch[d].a;
      fromB += i * p.batch[d].b;
      fromC += i * p.batch[d].c;
    }
    auto *a = static_cast<const char *>(operands[task::MatMulA]) + fromA;
    packLeft({a, task::lhsType(p) == DType::I8, p.a_row, p.a_col}, left);
    const int16_t *right = weight ? static_cast<const Packed *>(weight)->at : own;
    if (!weight) {
      auto *b = static_cast<const char *>(operands[task::MatMulB]) + fromB;
      packRight({b, task::rhsType(p) == DType::I8, p.b_row, p.b_col}, own);
    }
    auto *to = static_cast<int32_t *>(operands[task::MatMulC]) + fromC;
    runtime::runRanges(panels, p.m * p.k * panel, [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; ++q)
        panelOf(left, right + q * pairs * 2 * panel, std::min(panel, p.n - q * panel),
                to + q * panel);
    });
  }
  return true;
}

std::unique_ptr<Call> gemm::byteMatMul(const task::MatMul &p) {
  // A table may say what no program has: the bytes of scratch must be numbers.
  if (!pairKernels() || !task::isOfBytes(p) || double(p.m) * double(p.k) > 1e15 ||
      double(p.n) * double(p.k) > 1e15)
    return nullptr;
  for (const task::BatchDim &d : p.batch)
    if (p.b_packed && d.b != 0)
      return nullptr;
  return std::make_unique<ByteMatMul>(p);
}
