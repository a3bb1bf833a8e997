//===- Meshes.h - The meshes of a cluster -----------------------*- C++ -*-===//
#ifndef PARTITA_SEARCH_MESHES_H
#define PARTITA_SEARCH_MESHES_H

#include "partita/Base/Layout/Mesh.h"
#include "partita/Topology/Topology.h"

namespace partita::search {

/// Every way to write the number of devices as an ordered product of at most `mostAxes`
/// sizes above 1, the last axis along the innermost level: axis0=…, then
/// axis0=…,axis1=…, and so on. Fewer axes first, then larger last axes last. No loop of a
/// rule is called so.
std::vector<Mesh> meshesOf(const Topology &topology, size_t mostAxes);

} // namespace partita::search

#endif // PARTITA_SEARCH_MESHES_H
