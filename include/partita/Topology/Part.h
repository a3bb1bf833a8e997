//===- Part.h - Some devices of a topology ----------------------*- C++ -*-===//
#ifndef PARTITA_TOPOLOGY_PART_H
#define PARTITA_TOPOLOGY_PART_H

#include "partita/Topology/Topology.h"

namespace partita {

/// Devices first … first + count − 1 as a topology of their own, which are there. Of
/// levels 8 × 2, the devices 8 to 15 are a level of 8, and 4 to 11 are 4 × 2: where they
/// begin inside a unit, as many as are in one unit for every unit count as joined by it,
/// so that links are never nearer than they are.
Topology partOf(const Topology &topology, int64_t first, int64_t count);

/// The level that joins two devices, which differ.
size_t levelBetween(const Topology &topology, int64_t a, int64_t b);

} // namespace partita

#endif // PARTITA_TOPOLOGY_PART_H
