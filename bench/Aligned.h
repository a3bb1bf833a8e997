//===- Aligned.h - Operands of benches --------------------------*- C++ -*-===//
#ifndef PARTITA_BENCH_ALIGNED_H
#define PARTITA_BENCH_ALIGNED_H

#include <cstdint>
#include <cstdlib>

/// So many bytes from the beginning of a cache line on, f32 numbers from 0 to 12/13.
inline void *aligned(uint64_t bytes) {
  void *data = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
  auto *f = static_cast<float *>(data);
  for (uint64_t i = 0; i < bytes / 4; ++i)
    f[i] = static_cast<float>(i % 13) / 13;
  return data;
}

#endif // PARTITA_BENCH_ALIGNED_H
