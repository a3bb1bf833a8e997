//===- Reduce.cpp - Elementwise reductions of several buffers -------------===//
#include "partita/Base/Scalar.h"
#include "partita/Runtime/Transport.h"

#include <algorithm>
#include <cstring>

using namespace partita;
using namespace partita::runtime;

namespace {

template <ReduceKind Kind, typename T, typename C> C combine(C a, C b) {
  constexpr bool boolean = std::is_same_v<T, Boolean>;
  if constexpr (Kind == ReduceKind::Max || (boolean && Kind == ReduceKind::Sum)) {
    if constexpr (std::is_floating_point_v<C>)
      return a > b || a != a ? a : b;
    else
      return a > b ? a : b;
  } else if constexpr (Kind == ReduceKind::Min || (boolean && Kind == ReduceKind::Prod)) {
    if constexpr (std::is_floating_point_v<C>)
      return a < b || a != a ? a : b;
    else
      return a < b ? a : b;
  } else if constexpr (std::is_floating_point_v<C>) {
    return Kind == ReduceKind::Sum ? a + b : a * b;
  } else {
    // Integers wrap; unsigned arithmetic of 64 bits is the wrap of every width.
    auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    return static_cast<C>(Kind == ReduceKind::Sum ? x + y : x * y);
  }
}

/// One piece at a time through a local accumulator, so that a target may be a source
/// and the loops still vectorise. A piece is small enough for the first-level cache.
template <ReduceKind Kind, typename T>
void reduceTyped(const void *const *sources, size_t numSources, void *const *targets,
                 size_t numTargets, int64_t count) {
  using C = Compute<T>;
  constexpr int64_t piece = 4096 / static_cast<int64_t>(sizeof(C));
  alignas(64) C sum[piece];
  alignas(64) T result[piece];
  for (int64_t first = 0; first < count; first += piece) {
    int64_t n = std::min(piece, count - first);
    const T *source = static_cast<const T *>(sources[0]) + first;
    for (int64_t i = 0; i < n; ++i)
      sum[i] = load(source[i]);
    for (size_t s = 1; s < numSources; ++s) {
      source = static_cast<const T *>(sources[s]) + first;
      for (int64_t i = 0; i < n; ++i)
        sum[i] = combine<Kind, T>(sum[i], load(source[i]));
    }
    for (int64_t i = 0; i < n; ++i)
      result[i] = store<T>(sum[i]);
    for (size_t t = 0; t < numTargets; ++t)
      std::memcpy(static_cast<T *>(targets[t]) + first, result,
                  static_cast<size_t>(n) * sizeof(T));
  }
}

} // namespace

void runtime::reduceElements(DType type, ReduceKind kind, const void *const *sources,
                             size_t numSources, void *const *targets, size_t numTargets,
                             int64_t count) {
  visitType(type, [&]<typename T>() {
    switch (kind) {
    case ReduceKind::Sum:
      return reduceTyped<ReduceKind::Sum, T>(sources, numSources, targets, numTargets,
                                             count);
    case ReduceKind::Max:
      return reduceTyped<ReduceKind::Max, T>(sources, numSources, targets, numTargets,
                                             count);
    case ReduceKind::Min:
      return reduceTyped<ReduceKind::Min, T>(sources, numSources, targets, numTargets,
                                             count);
    case ReduceKind::Prod:
      return reduceTyped<ReduceKind::Prod, T>(sources, numSources, targets, numTargets,
                                              count);
    }
  });
}
