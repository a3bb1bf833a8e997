//===- WriteTopology.h - Cluster files -------------------------*- C++ -*-===//
#ifndef PARTITA_TOPOLOGY_WRITETOPOLOGY_H
#define PARTITA_TOPOLOGY_WRITETOPOLOGY_H

#include "partita/Topology/Topology.h"

namespace partita {

/// A cluster file with every member written out: readTopology gives the same topology.
std::string writeTopology(const Topology &topology);

} // namespace partita

#endif // PARTITA_TOPOLOGY_WRITETOPOLOGY_H
