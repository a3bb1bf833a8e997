//===- Avx2.h - Vectors of 256 bits -----------------------------*- C++ -*-===//
//
// For the files that are compiled for AVX2 alone: every function has internal linkage.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_GEMM_AVX2_H
#define PARTITA_LIB_RUNTIME_GEMM_AVX2_H

namespace {

constexpr int width = 8;
using Vector = float __attribute__((vector_size(4 * width)));

/// From and to any address.
Vector load(const float *at) {
  Vector out;
  __builtin_memcpy(&out, at, sizeof(out));
  return out;
}
void store(Vector x, float *at) { __builtin_memcpy(at, &x, sizeof(x)); }

Vector splat(float x) { return Vector{x, x, x, x, x, x, x, x}; }

} // namespace

#endif // PARTITA_LIB_RUNTIME_GEMM_AVX2_H
