//===- Transfer.h - From the ranks of one mesh to those of another -*- C++ -*-===//
//
// What a tensor's way between two sets of ranks consists of, whatever the two meshes and
// layouts are: for each receiving rank, which elements come from whom.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_LAYOUT_TRANSFER_H
#define PARTITA_BASE_LAYOUT_TRANSFER_H

#include "partita/Base/Layout/Reshard.h"

namespace partita {

/// Where a tensor is at one end; ranks are places in the mesh.
struct TransferEnd {
  const Mesh &mesh;
  const Layout &layout;
};

/// Layouts of one tensor without partial axes: a partial value has to be reduced before.
Expected<void> verifyTransfer(const TransferEnd &from, const TransferEnd &to);

/// What `rank` of `to` takes from ranks of `from`: every valid element once. Of ranks
/// that hold the same elements, receivers use them in turn.
std::vector<ExchangeBlock> transferBlocks(const TransferEnd &from, const TransferEnd &to,
                                          int64_t rank);

} // namespace partita

#endif // PARTITA_BASE_LAYOUT_TRANSFER_H
