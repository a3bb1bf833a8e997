//===- Roofline.cpp - What this host computes and reads at most -----------===//
#include "partita/Runtime/Roofline.h"

#include "partita/Runtime/Team.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

using namespace partita;
using namespace partita::runtime;

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

/// More than two multipliers with a latency of four cycles take.
static constexpr int inFlight = 12;
static constexpr int turns = 100000;

#if defined(__x86_64__)
/// Multiply-adds whose sums do not wait for each other.
template <int width>
static inline __attribute__((always_inline)) void multiplyAdd(float *sink) {
  using Vector = float __attribute__((vector_size(4 * width)));
  Vector sums[inFlight], factor = Vector{} + sink[0];
  for (int i = 0; i < inFlight; ++i)
    sums[i] = Vector{} + float(i);
  for (int turn = 0; turn < turns; ++turn)
    for (int i = 0; i < inFlight; ++i)
      sums[i] = sums[i] * factor + factor;
  for (int i = 0; i < inFlight; ++i)
    sink[i] = sums[i][0];
}
__attribute__((target("avx2,fma"))) static void narrow(float *sink) {
  multiplyAdd<8>(sink);
}
__attribute__((target("avx512f"))) static void wide(float *sink) {
  multiplyAdd<16>(sink);
}

int runtime::widestVectors() {
  if (__builtin_cpu_supports("avx512f"))
    return 16;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 8 : 0;
}

double runtime::measurePeak(int width, double (*clock)()) {
  if (width == 0 || width > widestVectors())
    return 0;
  double best = 0;
  for (int attempt = 0; attempt < 8; ++attempt) {
    float sink[inFlight] = {0.999f};
    double begin = clock();
    width == 16 ? wide(sink) : narrow(sink);
    best = std::max(best, 2.0 * width * inFlight * turns / (clock() - begin));
  }
  return best;
}
#else
int runtime::widestVectors() { return 0; }
double runtime::measurePeak(int, double (*)()) { return 0; }
#endif

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Per thread: more than a core's share of the caches of common machines.
static constexpr size_t streamBytes = size_t(64) << 20;

/// The compiler may make vectors of any width of it: memory is the slower one.
static uint64_t sumOf(const uint64_t *words, size_t count) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= count; i += 8)
    for (size_t j = 0; j < 8; ++j)
      sums[j] += words[i + j];
  uint64_t sum = 0;
  for (uint64_t part : sums)
    sum += part;
  return sum;
}

/// Bytes per second that the team reads, each thread a stretch that it wrote first.
static double measureBandwidth(double (*clock)()) {
  const int threads = teamSize();
  constexpr size_t words = streamBytes / sizeof(uint64_t);
  const size_t bytes = streamBytes * static_cast<size_t>(threads);
  std::unique_ptr<uint64_t[]> memory(new (std::nothrow)
                                         uint64_t[words * static_cast<size_t>(threads)]);
  if (!memory)
    return 0;
  auto stretch = [&](int part) {
    return memory.get() + words * static_cast<size_t>(part);
  };
  runParts(threads, [&](int part) { std::memset(stretch(part), part, streamBytes); });
  double best = 0;
  for (int attempt = 0; attempt < 4; ++attempt) {
    double begin = clock();
    runParts(threads, [&](int part) {
      volatile uint64_t keep = sumOf(stretch(part), words);
      (void)keep;
    });
    best = std::max(best, static_cast<double>(bytes) / (clock() - begin));
  }
  return best;
}

Roofline runtime::measureRoofline(double (*clock)()) {
  const int threads = teamSize(), width = widestVectors();
  double cores = 0;
  // All threads at once: cores that share a clock or multipliers share them here too.
  std::unique_ptr<double[]> peaks(new (std::nothrow) double[size_t(threads)]());
  if (peaks)
    runParts(threads, [&](int part) { peaks[size_t(part)] = measurePeak(width, clock); });
  for (int t = 0; peaks && t < threads; ++t)
    cores += peaks[size_t(t)];
  return {cores, measureBandwidth(clock)};
}
