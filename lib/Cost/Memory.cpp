//===- Memory.cpp - Bytes alive over a step -------------------------------===//
#include "partita/Cost/Memory.h"

#include <algorithm>

using namespace partita;

std::string_view partita::memoryKindName(MemoryKind kind) {
  static constexpr std::string_view names[memoryKinds] = {
      "weights",     "gradients", "optimizer",     "activations",
      "temporaries", "workspace", "communication", "other"};
  return names[static_cast<size_t>(kind)];
}

static int64_t aligned(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

std::vector<int64_t> partita::memoryOverTime(std::span<const LiveValue> values,
                                             int64_t moments, int64_t alignment) {
  std::vector<int64_t> alive(static_cast<size_t>(moments) + 1, 0);
  for (const LiveValue &value : values) {
    if (value.first >= moments)
      continue;
    int64_t bytes = aligned(value.bytes, alignment);
    alive[static_cast<size_t>(value.first)] += bytes;
    alive[static_cast<size_t>(std::min(value.last + 1, moments))] -= bytes;
  }
  for (size_t i = 1; i < alive.size(); ++i)
    alive[i] += alive[i - 1];
  alive.pop_back();
  return alive;
}

MemoryPeak partita::memoryPeak(std::span<const LiveValue> values, int64_t alignment) {
  int64_t moments = 0;
  for (const LiveValue &value : values)
    moments = std::max(moments, value.last + 1);
  MemoryPeak peak;
  if (moments == 0)
    return peak;
  std::vector<int64_t> alive = memoryOverTime(values, moments, alignment);
  auto most = std::max_element(alive.begin(), alive.end());
  peak.bytes = *most;
  peak.moment = most - alive.begin();
  for (const LiveValue &value : values)
    if (value.first <= peak.moment && peak.moment <= value.last)
      peak.byKind[static_cast<size_t>(value.kind)] += aligned(value.bytes, alignment);
  return peak;
}
