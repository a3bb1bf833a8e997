//===- AttentionScratch.cpp - What a thread of attention keeps ------------===//
#include "passes/Codegen/CPU/AttentionScratch.h"

#include <algorithm>

using namespace partita;
using namespace partita::codegen;

static int64_t roundedUp(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

AttentionScratch::AttentionScratch(const KernelSpec &spec)
    : outer(static_cast<int64_t>(spec.numOuter())) {
  const int64_t *inner = spec.domain.data() + outer;
  depth = inner[0], width = inner[1], queries = inner[2], keys = inner[3];
  rows = roundedUp(spec.attention->queryBlock, tile);
  blockKeys = roundedUp(spec.attention->keyBlock, widestPanel);
  depthStride = roundedUp(depth, widestVector);
  widthStride = roundedUp(width, widestVector);
  auto take = [&](int64_t elements) {
    int64_t begin = total;
    total += roundedUp(elements, widestVector);
    return begin;
  };
  q = take(rows * depthStride);
  result = take(rows * widthStride);
  keysAcross = take(depthStride * blockKeys);
  values = take(blockKeys * widthStride);
  weights = take(tile * blockKeys);
  stage = take(widestVector * depthStride);
  top = take(rows), sum = take(rows), shrink = take(tile);
}

/// Keys and values of a block stay in the second-level cache, as many as there are; so do
/// queries and their results. A block of few queries transposes keys for little, a thread
/// without a block has nothing to do.
void codegen::divideAttention(KernelSpec &kernel, int threads) {
  constexpr int64_t elements = 16'384, mostKeys = 256, fewestKeys = 64;
  constexpr int64_t mostQueries = 252, fewestQueries = 48;
  AttentionSpec &spec = *kernel.attention;
  const int64_t *inner = kernel.domain.data() + kernel.numOuter();
  int64_t size = std::max(inner[0], inner[1]), queries = inner[2], keys = inner[3];
  int64_t outer = 1;
  for (size_t d = 0; d < kernel.numOuter(); ++d)
    outer *= kernel.domain[d];
  spec.keyBlock =
      std::min(keys, std::clamp(elements / size / 64 * 64, fewestKeys, mostKeys));
  int64_t most = std::clamp(elements / size, fewestQueries, mostQueries);
  int64_t wanted = threads == 1 ? 1 : (8 * threads + outer - 1) / outer;
  int64_t count =
      std::max((queries + most - 1) / most, std::min(wanted, queries / fewestQueries));
  spec.queryBlock =
      std::min(queries, roundedUp((queries + count - 1) / count, AttentionScratch::tile));
  kernel.scratchBytes = AttentionScratch(kernel).bytes();
}
