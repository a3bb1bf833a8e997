//===- Topology.cpp - Devices and the links between them ------------------===//
#include "partita/Topology/Topology.h"

#include <algorithm>

using namespace partita;

double Device::peakOf(DType type) const {
  auto listed = [&](DType wanted) {
    auto it = std::find_if(peak.begin(), peak.end(),
                           [&](const auto &entry) { return entry.first == wanted; });
    return it == peak.end() ? 0.0 : it->second;
  };
  if (double own = listed(type))
    return own;
  // A 16-bit float or a byte computes as the other one, everything else as f32.
  for (auto [one, other] : {std::pair(DType::BF16, DType::F16), {DType::U8, DType::I8}})
    if (type == one || type == other)
      if (double rate = listed(type == one ? other : one))
        return rate;
  if (double single = listed(DType::F32))
    return single;
  double least = peak.empty() ? 0 : peak.front().second;
  for (const auto &[listedType, rate] : peak)
    least = std::min(least, rate);
  return least;
}

int64_t Topology::unit(size_t level) const {
  int64_t result = 1;
  for (size_t i = 0; i <= level && i < levels.size(); ++i)
    result *= levels[i].size;
  return result;
}

int64_t Topology::numDevices() const {
  return levels.empty() ? 1 : unit(levels.size() - 1);
}
