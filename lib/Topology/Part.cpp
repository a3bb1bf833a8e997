//===- Part.cpp - Some devices of a topology ------------------------------===//
#include "partita/Topology/Part.h"

#include <numeric>

using namespace partita;

size_t partita::levelBetween(const Topology &topology, int64_t a, int64_t b) {
  size_t level = 0;
  while (level + 1 < topology.levels.size() &&
         a / topology.unit(level) != b / topology.unit(level))
    ++level;
  return level;
}

Topology partita::partOf(const Topology &topology, int64_t first, int64_t count) {
  Topology part{topology.device, {}, topology.host};
  int64_t left = count, joined = 1;
  const size_t outermost = levelBetween(topology, first, first + count - 1);
  for (size_t l = 0; left > 1 && l < topology.levels.size(); ++l) {
    int64_t size = left;
    if (l != outermost) {
      size = std::gcd(left, topology.levels[l].size);
      while (first % (joined * size) != 0)
        size = std::gcd(size, first / joined);
    }
    joined *= size;
    left /= size;
    if (size == 1)
      continue;
    part.levels.push_back(topology.levels[l]);
    part.levels.back().size = size;
  }
  return part;
}
