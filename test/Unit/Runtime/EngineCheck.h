//===- EngineCheck.h - Engine calls against naive loops ---------*- C++ -*-===//
#ifndef PARTITA_TEST_UNIT_RUNTIME_ENGINECHECK_H
#define PARTITA_TEST_UNIT_RUNTIME_ENGINECHECK_H

#include "partita/Base/Scalar.h"
#include "partita/Runtime/OneDnn.h"
#include "partita/Runtime/Team.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

namespace partita::test {
using engine::Call;

/// Whether oneDNN may use 512-bit vectors here.
inline bool hasWideVectors() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         !std::getenv("ONEDNN_MAX_CPU_ISA");
}

/// 64-byte aligned elements of any type, handled as doubles.
struct Buffer {
  DType type;
  int64_t count;
  std::unique_ptr<std::byte[]> storage;
  std::byte *data;

  Buffer(DType type, int64_t count)
      : type(type), count(count),
        storage(new std::byte[static_cast<size_t>(count) * 8 + 128]()),
        data(storage.get() +
             (64 - reinterpret_cast<uintptr_t>(storage.get()) % 64) % 64) {}

  double get(int64_t i) const {
    return visitType(type, [&]<typename T>() {
      return static_cast<double>(load(reinterpret_cast<const T *>(data)[i]));
    });
  }
  void set(int64_t i, double x) {
    visitType(type, [&]<typename T>() {
      reinterpret_cast<T *>(data)[i] = store<T>(static_cast<Compute<T>>(x));
    });
  }
  void fill(unsigned seed) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < count; ++i)
      set(i, isFloat(type) ? static_cast<double>(random() % 33) / 16 - 1
                           : static_cast<double>(random() % 5));
  }
};

inline double tolerance(DType type) {
  switch (type) {
  case DType::F16:
    return 2e-2;
  case DType::BF16:
    return 1.5e-1;
  case DType::F32:
    return 2e-5;
  case DType::F64:
    return 1e-12;
  default:
    return 0;
  }
}

inline double unary(int64_t kind, double x, double alpha, double beta) {
  switch (kind) {
  case PARTITA_POST_RELU:
    return x > 0 ? x : alpha * x;
  case PARTITA_POST_HARDSWISH:
    return x * std::min(std::max(x + 3, 0.0), 6.0) / 6;
  case PARTITA_POST_HARDSIGMOID:
    return std::min(std::max(alpha * x + beta, 0.0), 1.0);
  case PARTITA_POST_CLIP:
    return std::min(std::max(x, alpha), beta);
  case PARTITA_POST_LINEAR:
    return alpha * x + beta;
  case PARTITA_POST_BINARY_ADD:
    return x + alpha;
  case PARTITA_POST_BINARY_SUB:
    return x - alpha;
  default: // BINARY_MUL
    return x * alpha;
  }
}

/// Operands of a call, bound and run with exactly the scratch and packed bytes that the
/// call asked for.
struct Prepared {
  std::shared_ptr<const Call> call;
  std::unique_ptr<Buffer> scratch, packed;

  Prepared(const task::Params &params, std::vector<void *> operands,
           size_t scratchOperand, std::shared_ptr<const Call> given = nullptr)
      : call(std::move(given)) {
    if (!call) {
      runtime::setTeamSize(1);
      auto made = onednn::oneDnn().create(params);
      REQUIRE(made);
      call = std::move(*made);
    }
    scratch = std::make_unique<Buffer>(DType::U8,
                                       static_cast<int64_t>(call->sizes().scratch) + 1);
    packed = std::make_unique<Buffer>(DType::U8,
                                      static_cast<int64_t>(call->sizes().packed) + 1);
    // Nothing is promised of what scratch holds: not numbers.
    std::memset(scratch->data, 0xff, call->sizes().scratch);
    operands[scratchOperand] = scratch->data;
    if (call->sizes().packed)
      REQUIRE(call->pack(operands[Call::weightOperand(kindOf(params))], packed->data));
    auto frame = call->frame();
    REQUIRE(frame);
    std::unique_ptr<Call::Weight> weight;
    if (call->sizes().packed)
      weight = std::move(*call->describe(packed->data));
    REQUIRE(call->run(**frame, operands, weight.get()));
  }
};
//===----------------------------------------------------------------------===//
// MatMul
//===----------------------------------------------------------------------===//

/// Compares the result with sums in double, and what the call must not touch with what
/// was there. `call`: null for the engine's.
inline void checkMatMul(const task::MatMul &p, const std::string &what,
                        std::shared_ptr<const Call> made = nullptr) {
  auto type = static_cast<DType>(p.dtype);
  auto needs = task::operandNeeds(p, *Mesh::parse(""));
  REQUIRE(needs);
  std::vector<Buffer> buffers;
  std::vector<void *> operands;
  for (size_t i = 0; i < needs->size(); ++i) {
    buffers.emplace_back(type, static_cast<int64_t>((*needs)[i].bytes / byteWidth(type)));
    buffers.back().fill(static_cast<unsigned>(i) + 1);
  }
  for (Buffer &b : buffers)
    operands.push_back(b.data);
  if (p.bias_mask == 0)
    operands[task::MatMulBias] = nullptr;
  Buffer before(type, buffers[2].count);
  std::memcpy(before.data, buffers[2].data,
              static_cast<size_t>(before.count) * byteWidth(type));
  std::vector<bool> isResult(static_cast<size_t>(before.count));
  Prepared run(p, operands, task::MatMulScratch, std::move(made));
  INFO(what << " of " << name(type) << " by " << run.call->implementation());
  std::vector<int64_t> index(p.batch.size(), 0);
  double worst = 0;
  for (bool more = true; more;) {
    int64_t a = 0, b = 0, c = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      a += index[d] * p.batch[d].a;
      b += index[d] * p.batch[d].b;
      c += index[d] * p.batch[d].c;
    }
    for (int64_t m = 0; m < p.m; ++m)
      for (int64_t n = 0; n < p.n; ++n) {
        double x = 0;
        for (int64_t k = 0; k < p.k; ++k)
          x += buffers[0].get(a + m * p.a_row + k * p.a_col) *
               buffers[1].get(b + k * p.b_row + n * p.b_col);
        if (p.bias_mask)
          x += buffers[3].get((p.bias_mask & 2 ? m * (p.bias_mask & 1 ? p.n : 1) : 0) +
                              (p.bias_mask & 1 ? n : 0));
        size_t next = task::MatMulPost;
        std::vector<int64_t> full = index, dims;
        full.insert(full.end(), {m, n});
        for (auto &d : p.batch)
          dims.push_back(d.size);
        dims.insert(dims.end(), {p.m, p.n});
        for (const task::PostOp &op : p.post) {
          double alpha = op.alpha;
          if (task::isBinary(op.kind)) {
            int64_t at = 0;
            for (size_t d = 0; d < dims.size(); ++d)
              if (op.mask >> d & 1)
                at = at * dims[d] + full[d];
            alpha = buffers[next++].get(at);
          }
          x = unary(op.kind, x, alpha, op.beta);
        }
        double got = buffers[2].get(c + m * p.c_row + n);
        isResult[static_cast<size_t>(c + m * p.c_row + n)] = true;
        worst = std::max(worst, std::fabs(got - x) / (1 + std::fabs(x)));
      }
    more = false;
    for (size_t d = index.size(); d-- > 0 && !more;) {
      more = ++index[d] < p.batch[d].size;
      if (!more)
        index[d] = 0;
    }
  }
  CHECK(worst <= tolerance(type));
  int64_t touched = 0;
  for (int64_t i = 0; i < before.count; ++i)
    touched += !isResult[static_cast<size_t>(i)] && buffers[2].get(i) != before.get(i);
  CHECK(touched == 0);
}

inline task::MatMul sized(DType type, int64_t m, int64_t n, int64_t k) {
  task::MatMul p;
  p.dtype = static_cast<int64_t>(type);
  p.m = m, p.n = n, p.k = k, p.a_row = k, p.a_col = 1, p.b_row = n, p.b_col = 1,
  p.c_row = n;
  return p;
}

} // namespace partita::test

#endif // PARTITA_TEST_UNIT_RUNTIME_ENGINECHECK_H
