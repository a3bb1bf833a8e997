//===- Bytes.cpp - Products of 8-bit integers, exact on AVX2 --------------===//
//
// Bytes are widened to 16 bits and multiplied two summands at a time (vpmaddwd), whose
// sum always fits 32 bits; products of bytes in one step (vpmaddubsw) saturate at 16.
//
//   packed weight: panels of 16 columns; of each pair of summands 16 × 2 numbers
//   left operand:  rows of pairs, widened into scratch at each run
//
//===----------------------------------------------------------------------===//
#include "partita/Runtime/Gemm.h"

#include "partita/Runtime/Team.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace partita;
using namespace partita::gemm;
using engine::Call;

#if defined(__x86_64__)

namespace {

constexpr int64_t panel = 16;     ///< columns: two vectors of sums
constexpr int64_t rowsOfTile = 6; ///< twelve of sixteen vectors are sums
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

/// A row of bytes as numbers of 16 bits.
template <typename T>
[[gnu::target("avx2")]] void widenRow(const T *from, int64_t count, int16_t *to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] = from[i];
}

/// Adds `pairs` pairs of summands of `rows` rows and one panel to sums, which lie
/// `panel` apart.
template <int rows>
[[gnu::target("avx2")]] void addTile(const int16_t *left, int64_t leftRow,
                                     const int16_t *right, int64_t pairs, int32_t *sums) {
  __m256i sum[rows][2];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < 2; ++v)
      sum[r][v] =
          _mm256_load_si256(reinterpret_cast<const __m256i *>(sums + r * panel + 8 * v));
  for (int64_t p = 0; p < pairs; ++p) {
    auto *at = reinterpret_cast<const __m256i *>(right + p * 2 * panel);
    __m256i low = _mm256_load_si256(at), high = _mm256_load_si256(at + 1);
    for (int r = 0; r < rows; ++r) {
      int32_t both; // broadcast from memory
      std::memcpy(&both, left + (r * leftRow + p) * 2, sizeof both);
      __m256i pair = _mm256_set1_epi32(both);
      sum[r][0] = _mm256_add_epi32(sum[r][0], _mm256_madd_epi16(pair, low));
      sum[r][1] = _mm256_add_epi32(sum[r][1], _mm256_madd_epi16(pair, high));
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < 2; ++v)
      _mm256_store_si256(reinterpret_cast<__m256i *>(sums + r * panel + 8 * v),
                         sum[r][v]);
}

/// By the number of rows.
constexpr decltype(&addTile<1>) tiles[rowsOfTile] = {addTile<1>, addTile<2>, addTile<3>,
                                                     addTile<4>, addTile<5>, addTile<6>};

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
      else if (from.isSigned)
        widenRow(static_cast<const int8_t *>(from.at) + i * from.row, p.k, row);
      else
        widenRow(static_cast<const uint8_t *>(from.at) + i * from.row, p.k, row);
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
  alignas(32) int32_t sums[rowsOfTile * panel];
  for (int64_t first = 0; first < pairs; first += pairsOfBlock) {
    const int64_t count = std::min(pairsOfBlock, pairs - first);
    const int16_t *part = right + first * 2 * panel;
    for (int64_t i = 0; i < p.m; i += rowsOfTile) {
      const int64_t rows = std::min(rowsOfTile, p.m - i);
      std::memset(sums, 0, sizeof sums);
      if (first > 0)
        for (int64_t r = 0; r < rows; ++r)
          std::memcpy(sums + r * panel, to + (i + r) * p.c_row,
                      static_cast<size_t>(columns) * sizeof(int32_t));
      const int16_t *from = left + (i * pairs + first) * 2;
      tiles[rows - 1](from, pairs, part, count, sums);
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(to + (i + r) * p.c_row, sums + r * panel,
                    static_cast<size_t>(columns) * sizeof(int32_t));
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
  if (!__builtin_cpu_supports("avx2") || !task::isOfBytes(p) ||
      double(p.m) * double(p.k) > 1e15 || double(p.n) * double(p.k) > 1e15)
    return nullptr;
  for (const task::BatchDim &d : p.batch)
    if (p.b_packed && d.b != 0)
      return nullptr;
  return std::make_unique<ByteMatMul>(p);
}

#else

std::unique_ptr<Call> gemm::byteMatMul(const task::MatMul &) { return nullptr; }

#endif
