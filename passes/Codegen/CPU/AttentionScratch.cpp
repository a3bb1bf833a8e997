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
  q = take(rows * depthStride);
  keysAcross = take(depthStride * blockKeys);
  stage = take(widestVector * std::max(depthStride, widthStride));
  top = take(rows), sum = take(rows);
  if (spec.attention->isGradient()) {
    takeForGradient(spec);
    return;
  }
  result = take(rows * widthStride);
  values = take(blockKeys * widthStride);
  weights = take(tile * blockKeys);
  shrink = take(tile);
}

int64_t AttentionScratch::take(int64_t elements) {
  int64_t begin = total;
  total += roundedUp(elements, widestVector);
  return begin;
}

void AttentionScratch::takeForGradient(const KernelSpec &spec) {
  const AttentionSpec &a = *spec.attention;
  for (size_t d = 0; d < spec.numOuter(); ++d)
    members *= spec.isGroup(d) ? spec.domain[d] : 1;
  cotangent = take(rows * widthStride);
  valuesAcross = take(widthStride * blockKeys);
  // The last tile of keys reads behind the last column.
  weights = take(rows * blockKeys + tile), slopes = take(rows * blockKeys + tile);
  delta = take(rows);
  memberRows = a.ofKeys ? roundedUp(queries, tile) : rows;
  if (a.ofQueries) {
    keyRows = take(blockKeys * depthStride);
    byQueries = take(members * memberRows * depthStride);
  }
  if (a.ofKeys) {
    byKeys = take(roundedUp(blockKeys, tile) * depthStride);
    byValues = take(roundedUp(blockKeys, tile) * widthStride);
  }
}

/// A block of keys with its sums, and weights of a block of queries with theirs, stay in
/// the second-level cache. Blocks follow from the shape alone: gradients are sums over
/// them.
static void divideGradient(AttentionSpec &spec, int64_t size, int64_t queries,
                           int64_t keys) {
  constexpr int64_t elements = 8'192, mostKeys = 128, fewestKeys = 64, mostQueries = 60;
  spec.keyBlock =
      std::min(keys, std::clamp(elements / size / 64 * 64, fewestKeys, mostKeys));
  spec.queryBlock = std::min(queries, mostQueries);
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
  if (spec.isGradient()) {
    divideGradient(spec, size, queries, keys);
    kernel.scratchBytes = AttentionScratch(kernel).bytes();
    return;
  }
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
