//===- BytesTest.cpp - Products of 8-bit integers -------------------------===//
//
// Every sum is compared bit by bit, with the numbers that saturate where two products of
// bytes are added in 16 bits.
//
//===----------------------------------------------------------------------===//
#include "EngineCheck.h"

#include "partita/Runtime/Gemm.h"
#include "partita/Runtime/Plain.h"

#include <array>

using namespace partita;
using namespace partita::test;

namespace {
/// A product of types, and where its operands end.
struct Case {
  task::MatMul p;
  int64_t a = 0, b = 0, c = 0; ///< elements
};

Case bytes(DType left, DType right, int64_t m, int64_t n, int64_t k) {
  Case it{sized(DType::I32, m, n, k), m * k, k * n, m * n};
  it.p.a_dtype = static_cast<uint8_t>(left);
  it.p.b_dtype = static_cast<uint8_t>(right);
  return it;
}

/// Extremes, in half of the places.
void fillBytes(Buffer &buffer, unsigned seed) {
  std::mt19937 random(seed);
  const bool isSigned = buffer.type == DType::I8;
  for (int64_t i = 0; i < buffer.count; ++i) {
    auto byte = static_cast<int>(random() % 256);
    if (random() % 2)
      byte = random() % 2 ? 255 : 0;
    buffer.set(i, isSigned ? byte - 128 : byte);
  }
}

void check(const Case &it, const engine::Call &call, const std::string &what) {
  const task::MatMul &p = it.p;
  INFO(what << ": " << p.m << " x " << p.n << " x " << p.k << ", "
            << call.implementation());
  Buffer a(task::lhsType(p), it.a), b(task::rhsType(p), it.b), c(DType::I32, it.c);
  fillBytes(a, 1);
  fillBytes(b, 2);
  Buffer scratch(DType::U8, static_cast<int64_t>(call.sizes().scratch));
  Buffer packed(DType::U8, static_cast<int64_t>(call.sizes().packed));
  std::unique_ptr<Call::Weight> weight;
  if (call.sizes().packed) {
    REQUIRE(call.pack(b.data, packed.data));
    auto described = call.describe(packed.data);
    REQUIRE(described);
    weight = std::move(*described);
  }
  auto frame = call.frame();
  REQUIRE(frame);
  std::array<void *, 5> operands{a.data, b.data, c.data, nullptr, scratch.data};
  REQUIRE(call.run(**frame, operands, weight.get()));
  int64_t matrices = 1, wrong = 0;
  for (const task::BatchDim &d : p.batch)
    matrices *= d.size;
  for (int64_t matrix = 0; matrix < matrices; ++matrix) {
    int64_t rest = matrix, fromA = 0, fromB = 0, fromC = 0;
    for (size_t d = p.batch.size(); d-- > 0; rest /= p.batch[d].size) {
      fromA += rest % p.batch[d].size * p.batch[d].a;
      fromB += rest % p.batch[d].size * p.batch[d].b;
      fromC += rest % p.batch[d].size * p.batch[d].c;
    }
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < p.k; ++k)
          sum += a.get(fromA + i * p.a_row + k * p.a_col) *
                 b.get(fromB + k * p.b_row + j * p.b_col);
        wrong += c.get(fromC + i * p.c_row + j) != sum;
      }
  }
  CHECK(wrong == 0);
}

/// By the machine's engine, by our kernels and by loops; with one thread and with two.
void checkAll(const Case &it, const std::string &what) {
  for (int threads : {1, 2}) {
    runtime::setTeamSize(threads);
    for (const engine::Engine *engine :
         {&onednn::oneDnn(), &onednn::oneDnn(onednn::Products::Own), &plain::loops()}) {
      auto call = engine->create(it.p);
      REQUIRE(call);
      check(it, **call, what);
    }
  }
  runtime::setTeamSize(1);
}
} // namespace

TEST_CASE("products of bytes: every edge, of all four signs") {
  for (DType left : {DType::I8, DType::U8})
    for (DType right : {DType::I8, DType::U8})
      for (int64_t m : {1, 2, 3, 4, 5, 7, 33})
        for (int64_t n : {1, 3, 15, 16, 17, 50})
          for (int64_t k : {1, 2, 3, 4, 5, 64, 67, 1000})
            for (bool packed : {false, true}) {
              Case it = bytes(left, right, m, n, k);
              it.p.b_packed = packed;
              checkAll(it, packed ? "packed" : "dense");
            }
}

TEST_CASE("products of bytes: strides and batches") {
  for (DType right : {DType::I8, DType::U8})
    for (int64_t m : {1, 6, 13}) {
      const int64_t n = 21, k = 19;
      Case it = bytes(DType::U8, right, m, n, k);
      it.p.b_row = 1, it.p.b_col = k, it.p.a_row = 1, it.p.a_col = m;
      checkAll(it, "both transposed");
      it.p.b_packed = true;
      checkAll(it, "both transposed, packed");
      it = bytes(DType::U8, right, m, n, k);
      it.p.a_row = k + 3, it.p.b_row = n + 5, it.p.c_row = n + 1;
      it.a = m * (k + 3), it.b = k * (n + 5), it.c = m * (n + 1);
      checkAll(it, "rows apart");
      it = bytes(DType::I8, right, m, n, k);
      it.p.batch = {{2, 3 * m * k, 0, 3 * m * n}, {3, m * k, k * n, m * n}};
      it.a = 6 * m * k, it.b = 3 * k * n, it.c = 6 * m * n;
      checkAll(it, "batches, b broadcast along the outer");
      it.p.batch[1].b = 0;
      it.p.b_packed = true;
      checkAll(it, "batches of one weight");
    }
}

TEST_CASE("products of bytes: what a table may not say") {
  Mesh mesh;
  auto reason = [&](auto change) {
    Case it = bytes(DType::U8, DType::I8, 2, 3, 4);
    change(it.p);
    auto needs = task::operandNeeds(it.p, mesh);
    return needs ? std::string() : needs.error().message;
  };
  CHECK(reason([](task::MatMul &) {}).empty());
  CHECK(reason([](task::MatMul &p) { p.b_dtype = PARTITA_DTYPE_F32; }) ==
        "an operand has a type of its own, and one is no 8-bit integer");
  CHECK(reason([](task::MatMul &p) { p.b_dtype = flatbuffers::nullopt; }) ==
        "an operand has a type of its own, and one is no 8-bit integer");
  CHECK(reason([](task::MatMul &p) { p.dtype = PARTITA_DTYPE_I64; }) ==
        "sums of products of 8-bit integers are not of i32");
  CHECK(reason([](task::MatMul &p) { p.bias_mask = 1; }) ==
        "bias_mask of integers is 1, expected 0 to 0");
}
