//===- BlockMatMulTest.cpp - Products with weights of 4 bits --------------===//
#include "EngineCheck.h"

#include "partita/Runtime/Gemm.h"
#include "partita/Runtime/Plain.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

using namespace partita;
using namespace partita::test;

namespace {
enum class Zeros { None, Bytes, Real };

/// A dense product; scales and zeros lie block by block.
task::BlockMatMul blockProduct(int64_t m, int64_t n, int64_t blocks, int64_t block,
                               Zeros zeros) {
  task::BlockMatMul p;
  p.dtype = PARTITA_DTYPE_F32;
  p.m = m, p.n = n, p.blocks = blocks, p.block = block;
  p.a_row = blocks * block, p.c_row = n;
  p.scale_block = p.zero_block = n;
  p.scale_col = p.zero_col = 1;
  if (zeros == Zeros::Bytes)
    p.zero_dtype = PARTITA_DTYPE_U8;
  if (zeros == Zeros::Real)
    p.zero_dtype = PARTITA_DTYPE_F32;
  p.b_packed = true;
  return p;
}

/// Operands with random numbers, of exactly the bytes that the call may reach.
struct Operands {
  std::vector<Buffer> buffers;
  std::vector<void *> list;

  explicit Operands(const task::BlockMatMul &p) {
    auto needs = task::operandNeeds(p, *Mesh::parse(""));
    REQUIRE(needs);
    std::mt19937 random(7);
    for (size_t i = 0; i < needs->size(); ++i) {
      DType type = i == task::BlockMatMulB ? DType::U8 : DType::F32;
      if (i == task::BlockMatMulZeros && p.zero_dtype)
        type = static_cast<DType>(*p.zero_dtype);
      buffers.emplace_back(type,
                           static_cast<int64_t>((*needs)[i].bytes / byteWidth(type)));
      Buffer &buffer = buffers.back();
      for (int64_t e = 0; e < buffer.count; ++e)
        buffer.set(e, i == task::BlockMatMulB ? static_cast<double>(random() % 256)
                      : type == DType::U8
                          ? static_cast<double>(random() % 16)
                          : static_cast<double>(random() % 997) / 300 - 1.5);
      list.push_back((*needs)[i].bytes ? buffer.data : nullptr);
    }
  }
  double at(size_t operand, int64_t place) const { return buffers[operand].get(place); }
};

/// The left operand, rounded to whole steps of each block where rows are of bytes. The
/// step is reckoned in f32, as kernels do: a half goes one way or the other.
std::vector<double> leftOf(const task::BlockMatMul &p, const Operands &of) {
  std::vector<double> left;
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t k = 0; k < p.blocks * p.block; ++k)
      left.push_back(of.at(task::BlockMatMulA, i * p.a_row + k));
  for (size_t b = 0; p.byte_rows && b < left.size(); b += static_cast<size_t>(p.block)) {
    std::span<double> block(left.data() + b, static_cast<size_t>(p.block));
    float largest = 0;
    for (double a : block)
      largest = std::max(largest, static_cast<float>(std::abs(a)));
    for (double &a : block)
      a = largest < 0x1p-100f ? 0
                              : std::nearbyint(static_cast<float>(a) * (127 / largest)) *
                                    (largest / 127.0);
  }
  return left;
}

/// The sum in f64, and the sum of the sizes of what is added.
std::pair<double, double> sumOf(const task::BlockMatMul &p, const Operands &of,
                                const double *row, int64_t j) {
  double sum = 0, size = 0;
  for (int64_t k = 0; k < p.blocks * p.block; ++k) {
    const int64_t b = k / p.block;
    const auto byte =
        static_cast<int>(of.at(task::BlockMatMulB, (j * p.blocks * p.block + k) / 2));
    const double zero =
        p.zero_dtype ? of.at(task::BlockMatMulZeros, b * p.zero_block + j * p.zero_col)
                     : 8;
    const double scale =
        of.at(task::BlockMatMulScales, b * p.scale_block + j * p.scale_col);
    const double a = row[k];
    const double number = byte >> 4 * (k % 2) & 15;
    sum += a * (number - zero) * scale;
    size += std::abs(a * scale) * (number + std::abs(zero));
  }
  return {sum, size};
}

/// The result to within the rounding of f32, and what the call must not touch as it was.
void check(const task::BlockMatMul &p, std::shared_ptr<const Call> call) {
  INFO(p.m << " x " << p.n << " x " << p.blocks << " blocks of " << p.block << ", zeros "
           << int(p.zero_dtype.value_or(255)) << ", " << call->implementation());
  Operands of(p);
  Buffer &c = of.buffers[task::BlockMatMulC];
  std::vector<double> before;
  for (int64_t e = 0; e < c.count; ++e)
    before.push_back(c.get(e));
  Prepared run(p, of.list, task::BlockMatMulScratch, std::move(call));
  const std::vector<double> left = leftOf(p, of);
  double worst = 0;
  int64_t touched = 0;
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.c_row && i * p.c_row + j < c.count; ++j) {
      const int64_t place = i * p.c_row + j;
      if (j >= p.n) {
        touched += c.get(place) != before[static_cast<size_t>(place)];
        continue;
      }
      auto [sum, size] = sumOf(p, of, left.data() + i * p.blocks * p.block, j);
      worst = std::max(worst, std::abs(c.get(place) - sum) / size);
    }
  CHECK(worst < 1e-6);
  CHECK(touched == 0);
}

/// Checks the machine's engine, kernels of 256 bits and loops, of one thread and of two,
/// on rows of f32 and of bytes.
void checkAll(task::BlockMatMul p) {
  for (int run = 0; run < 4; ++run) {
    p.byte_rows = run % 2 == 1;
    runtime::setTeamSize(1 + run / 2);
    for (const engine::Engine *engine :
         {&onednn::oneDnn(), &onednn::oneDnn(onednn::Products::Own), &plain::loops()}) {
      auto call = engine->create(p);
      REQUIRE(call);
      check(p, *call);
    }
  }
  runtime::setTeamSize(1);
}
} // namespace

TEST_CASE("blocks of 4 bits: every number of rows, edges of columns") {
  for (Zeros zeros : {Zeros::None, Zeros::Bytes, Zeros::Real})
    for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 250})
      for (int64_t n : {1, 15, 16, 17, 64, 83})
        checkAll(blockProduct(m, n, 3, 32, zeros));
}

TEST_CASE("blocks of 4 bits: sizes of blocks and numbers of them") {
  for (Zeros zeros : {Zeros::None, Zeros::Bytes, Zeros::Real})
    for (int64_t block : {2, 8, 16, 24, 64, 128, 256})
      for (int64_t blocks : {1, 2, 17, 40})
        for (int64_t m : {1, 5, 20})
          checkAll(blockProduct(m, 37, blocks, block, zeros));
}

TEST_CASE("blocks of 4 bits: strides") {
  for (int64_t m : {1, 3, 12}) {
    task::BlockMatMul p = blockProduct(m, 45, 5, 16, Zeros::Bytes);
    p.a_row += 16, p.c_row += 3;
    checkAll(p);
    p.scale_block = p.zero_block = 1, p.scale_col = p.zero_col = 5;
    checkAll(p);
    p.scale_block = p.scale_col = p.zero_block = 0;
    checkAll(p);
    p.b_packed = false;
    checkAll(p);
  }
}

TEST_CASE("blocks of 4 bits: a weight that is computed is packed in every run") {
  for (int64_t m : {1, 2, 7, 30})
    for (int64_t n : {16, 70}) {
      task::BlockMatMul p = blockProduct(m, n, 6, 32, Zeros::Bytes);
      p.b_packed = false;
      checkAll(p);
    }
}

TEST_CASE("blocks of 4 bits: kernels by vectors, and which weights they take") {
  auto takes = [](auto change) {
    task::BlockMatMul p = blockProduct(1, 20, 2, 16, Zeros::None);
    change(p);
    auto call = gemm::blockMatMul(p, hasWideVectors());
    return call ? call->implementation() : "";
  };
  if (!gemm::isSupported())
    return;
  CHECK(takes([](auto &) {}) == (hasWideVectors() ? "blocks:avx512" : "blocks:avx2"));
  CHECK(!takes([](auto &p) { p.b_packed = false; }).empty());
  CHECK(takes([](auto &p) { p.block = 12; }).empty());
  CHECK(takes([](auto &p) { p.byte_rows = true; }) ==
        (hasWideVectors() && __builtin_cpu_supports("avx512vnni") ? "byte blocks:vnni"
                                                                  : "byte blocks:avx2"));
  CHECK(takes([](auto &p) { p.n = p.blocks = int64_t(1) << 40; }).empty());
}

TEST_CASE("blocks of 4 bits: what a table may not say") {
  Mesh mesh;
  auto reason = [&](auto change) {
    task::BlockMatMul p = blockProduct(2, 3, 4, 16, Zeros::Bytes);
    change(p);
    auto needs = task::operandNeeds(p, mesh);
    return needs ? std::string() : needs.error().message;
  };
  CHECK(reason([](auto &) {}).empty());
  CHECK(reason([](auto &p) { p.block = 7; }) == "block modulo 2 is 1, expected 0 to 0");
  CHECK(reason([](auto &p) { p.dtype = PARTITA_DTYPE_F64; }) ==
        "the element type is 1, expected 0 to 0");
  CHECK(reason([](auto &p) { p.zero_dtype = PARTITA_DTYPE_I32; }) ==
        "zeros are neither u8 nor f32");
  CHECK(reason([](auto &p) { p.blocks = p.block = int64_t(1) << 32; }) ==
        "there are more than 2^48 summands");
}

TEST_CASE("blocks of 4 bits: rows of bytes that are nothing, tiny or no numbers") {
  task::BlockMatMul p = blockProduct(4, 20, 2, 16, Zeros::Bytes);
  p.byte_rows = true;
  for (const engine::Engine *engine :
       {&onednn::oneDnn(), &onednn::oneDnn(onednn::Products::Own), &plain::loops()}) {
    Operands of(p);
    Buffer &a = of.buffers[task::BlockMatMulA];
    for (int64_t e = 0; e < 16; ++e) {
      a.set(e, 0);
      a.set(32 + e, 1e-32);
    }
    a.set(2 * 32 + 5, std::numeric_limits<double>::infinity());
    a.set(3 * 32 + 20, std::nan(""));
    auto call = engine->create(p);
    REQUIRE(call);
    INFO((*call)->implementation());
    Prepared run(p, of.list, task::BlockMatMulScratch, *call);
    const std::vector<double> left = leftOf(p, of);
    CHECK(left[32] == 0);
    for (int64_t j = 0; j < p.n; ++j) {
      auto result = [&](int64_t i) { return of.at(task::BlockMatMulC, i * p.c_row + j); };
      for (int64_t i : {0, 1}) {
        auto [sum, size] = sumOf(p, of, left.data() + i * 32, j);
        CHECK(std::abs(result(i) - sum) <= 1e-6 * size);
      }
      CHECK(std::isnan(result(2)));
      CHECK(std::isnan(result(3)));
    }
  }
}
