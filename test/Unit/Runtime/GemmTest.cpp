//===- GemmTest.cpp - Our own products against naive loops ----------------===//
//
// On CPUs with the vectors that the kernels are made for, whichever the engine prefers.
//
//===----------------------------------------------------------------------===//
#include "EngineCheck.h"

#include "partita/Runtime/Gemm.h"

#include <array>

using namespace partita;
using namespace partita::test;

/// With one thread and with two.
static void checkOwn(const task::MatMul &p, const std::string &what) {
  if (!gemm::isSupported())
    return;
  for (int threads : {1, 2}) {
    runtime::setTeamSize(threads);
    std::shared_ptr<const Call> call = gemm::matMul(p);
    REQUIRE(call);
    INFO(threads << " threads, " << p.m << " x " << p.n << " x " << p.k);
    checkMatMul(p, what, call);
  }
  runtime::setTeamSize(1);
}

TEST_CASE("own products: every edge of tiles and panels") {
  for (int64_t m = 1; m <= 70; m += m < 20 ? 1 : 7)
    for (int64_t n : {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 70})
      for (int64_t k : {1, 2, 3, 8, 13, 70})
        for (bool packed : {false, true}) {
          task::MatMul p = sized(DType::F32, m, n, k);
          p.b_packed = packed;
          p.bias_mask = (m + n) % 4;
          checkOwn(p, "dense");
        }
}

TEST_CASE("own products: blocks of rows, of summands and slabs of them") {
  for (auto [m, n, k] : {std::array<int64_t, 3>{128, 40, 321},
                         {245, 33, 700},
                         {497, 20, 330},
                         {3, 150, 1300},
                         {1, 200, 650},
                         {130, 17, 2000},
                         {2, 5, 13001}})
    for (bool packed : {false, true}) {
      task::MatMul p = sized(DType::F32, m, n, k);
      p.b_packed = packed;
      p.bias_mask = 1;
      checkOwn(p, "long");
      p.b_row = 1, p.b_col = k, p.a_row = 1, p.a_col = m;
      checkOwn(p, "long, both transposed");
    }
}

TEST_CASE("own products: strides of every kind") {
  for (int64_t m : {1, 2, 3, 5, 6, 7, 12, 13, 29})
    for (int64_t n : {3, 16, 35, 64, 70})
      for (int64_t k : {5, 16, 41}) {
        task::MatMul p = sized(DType::F32, m, n, k);
        p.a_row = k + 3, p.b_row = n + 5, p.c_row = n + 1;
        checkOwn(p, "rows apart");
        p.a_col = 2, p.a_row = 2 * k + 1, p.b_col = 3, p.b_row = 3 * n + 2;
        checkOwn(p, "elements apart");
        p.a_col = m + 1, p.a_row = 1, p.b_row = 1, p.b_col = k + 2;
        checkOwn(p, "transposed, apart");
        p.b_packed = true;
        checkOwn(p, "transposed, apart, packed");
        p.a_row = 0, p.a_col = 1;
        checkOwn(p, "one row for all");
        p = sized(DType::F32, m, n, k);
        p.batch = {{2, 3 * m * k, 0, 3 * m * n}, {3, m * k, k * n, m * n}};
        p.bias_mask = 3;
        checkOwn(p, "batches, b broadcast along the outer");
        p.b_packed = true;
        p.batch[1].b = 0;
        checkOwn(p, "batches of one weight");
        // Heads as a view: rows of 4 heads side by side.
        p = sized(DType::F32, m, m, k);
        p.a_row = 4 * k, p.b_row = 1, p.b_col = 4 * k, p.c_row = m;
        p.batch = {{2, m * p.a_row, m * p.a_row, 4 * m * m}, {4, k, k, m * m}};
        checkOwn(p, "heads by stride");
      }
}

TEST_CASE("own products: every post-op, alone and in chains") {
  for (int64_t m : {1, 3, 13})
    for (int64_t n : {16, 35, 70})
      for (bool packed : {false, true}) {
        task::MatMul p = sized(DType::F32, m, n, 20);
        p.b_packed = packed, p.bias_mask = 1;
        p.batch = {{2, 20 * m, packed ? 0 : 20 * n, m * n}};
        for (int64_t kind = 0; kind <= PARTITA_POST_BINARY_MUL; ++kind)
          for (int64_t mask : {0, 1, 2, 3, 4, 6, 7}) {
            p.post = {{kind, 0.25f, 0.75f, mask}};
            checkOwn(p, "post-op " + std::to_string(kind));
          }
        p.post = {{PARTITA_POST_HARDSIGMOID, 0.2f, 0.5f},
                  {PARTITA_POST_BINARY_MUL, 0, 0, 7},
                  {PARTITA_POST_HARDSWISH},
                  {PARTITA_POST_BINARY_ADD, 0, 0, 4},
                  {PARTITA_POST_RELU}};
        checkOwn(p, "chain");
      }
}

namespace {
/// The result of a product of given operands, of as many threads.
struct Result {
  Buffer a, b, c;
  Result(const task::MatMul &p, int threads, float special = 0)
      : a(DType::F32, p.m * p.k), b(DType::F32, p.k * p.n), c(DType::F32, p.m * p.n) {
    a.fill(1), b.fill(2);
    if (special != 0)
      a.set(0, special);
    runtime::setTeamSize(threads);
    std::shared_ptr<const Call> call = gemm::matMul(p);
    REQUIRE(call);
    Prepared run(p, {a.data, b.data, c.data, nullptr, nullptr}, task::MatMulScratch,
                 call);
    runtime::setTeamSize(1);
  }
};
} // namespace

TEST_CASE("own products: the same bits for any number of threads and rows") {
  if (gemm::isSupported())
    for (bool packed : {false, true}) {
      task::MatMul p = sized(DType::F32, 100, 130, 900);
      p.b_packed = packed;
      Result one(p, 1), three(p, 3);
      CHECK(std::memcmp(one.c.data, three.c.data, 4 * 100 * 130) == 0);
      // A decode step finds what the whole sequence gave.
      p.m = 1;
      Result row(p, 1);
      CHECK(std::memcmp(one.c.data, row.c.data, 4 * 130) == 0);
    }
}

TEST_CASE("own products: NaN and infinity pass through") {
  if (gemm::isSupported()) {
    task::MatMul p = sized(DType::F32, 7, 20, 9);
    for (int64_t kind :
         {PARTITA_POST_RELU, PARTITA_POST_CLIP, PARTITA_POST_HARDSIGMOID}) {
      p.post = {{kind, 0.0f, 1.0f}};
      Result nan(p, 1, std::nanf(""));
      for (int64_t n = 0; n < 20; ++n)
        CHECK(std::isnan(nan.c.get(n)));
      CHECK_FALSE(std::isnan(nan.c.get(20)));
    }
    p.post = {{PARTITA_POST_RELU}};
    Result infinite(p, 1, -INFINITY);
    for (int64_t n = 0; n < 20; ++n) {
      double sign = infinite.b.get(n);
      if (sign != 0)
        CHECK(infinite.c.get(n) == (sign > 0 ? 0 : double(INFINITY)));
    }
  }
}

TEST_CASE("own products: one packed form for all rows and threads") {
  if (gemm::isSupported()) {
    task::MatMul p = sized(DType::F32, 1, 50, 30);
    p.b_packed = true;
    auto step = gemm::matMul(p);
    p.m = 500;
    runtime::setTeamSize(2);
    auto all = gemm::matMul(p);
    runtime::setTeamSize(1);
    CHECK(step->form() == all->form());
    CHECK(step->sizes().packed == all->sizes().packed);
    CHECK(step->sizes().packed == 4 * 64 * 30);
    p.b_row = 1, p.b_col = 30;
    CHECK(gemm::matMul(p)->form() != all->form());
  }
}

TEST_CASE("own products: what they leave to others") {
  if (gemm::isSupported()) {
    auto takes = [&](const task::MatMul &p) { return gemm::matMul(p) != nullptr; };
    CHECK(takes(sized(DType::F32, 4, 4, 4)));
    CHECK_FALSE(takes(sized(DType::F64, 4, 4, 4)));
    // Tables that no compiler writes: a packed weight larger than what is stored, more
    // units than can be counted.
    task::MatMul p = sized(DType::F32, 4, int64_t(1) << 30, int64_t(1) << 30);
    p.b_packed = true, p.b_row = p.b_col = 1;
    CHECK_FALSE(takes(p));
    p.b_row = p.b_col = 0;
    CHECK_FALSE(takes(p));
    p = sized(DType::F32, int64_t(1) << 40, 16, 1);
    p.a_row = p.c_row = 0;
    p.batch.assign(3, {int64_t(1) << 40, 0, 0, 0});
    CHECK_FALSE(takes(p));
  }
}

TEST_CASE("own products: chosen by the code's vectors, not by the machine that runs it") {
  if (!gemm::isSupported())
    return;
  task::MatMul p = sized(DType::F32, 40, 300, 64);
  p.b_packed = true;
  auto made = onednn::engineFor({"avx2", "fma"}).create(p);
  REQUIRE(made);
  auto own = gemm::matMul(p);
  CHECK((*made)->implementation() == own->implementation());
  CHECK((*made)->sizes().scratch == own->sizes().scratch);
  CHECK((*made)->form() == own->form());
  // What is faster without them: attention's products, a few columns.
  p.b_packed = false, p.n = 128;
  CHECK((*onednn::engineFor({"avx2"}).create(p))->implementation() !=
        own->implementation());
  p = sized(DType::F32, 40, 1, 64);
  p.b_packed = true;
  CHECK_FALSE(gemm::isWorth(p));
  p.c_row = 2; // no row
  CHECK(gemm::isWorth(p));
  // f16 is computed in f32, by the same kernels.
  p = sized(DType::F16, 40, 300, 64);
  p.b_packed = true;
  CHECK((*onednn::engineFor({"avx2"}).create(p))->implementation() ==
        "widened " + own->implementation());
}
