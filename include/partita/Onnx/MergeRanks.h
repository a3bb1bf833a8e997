//===- MergeRanks.h - The files of all ranks as one program -----*- C++ -*-===//
#ifndef PARTITA_ONNX_MERGERANKS_H
#define PARTITA_ONNX_MERGERANKS_H

#include "partita/Base/Error.h"
#include "partita/Base/Layout/Mesh.h"
#include "partita/Onnx/Model.h"

#include <vector>

namespace partita::onnx_model {

/// The name of the graph of a rank's file: "rank 1 of 4".
std::string rankText(int64_t rank, int64_t ranks);

/// A type and a shape as errors say them: "f32[2, 8]".
std::string typeText(DType type, const std::vector<int64_t> &shape);

/// An error if the graph's name says that the file is of another rank, or of one of more
/// or fewer ranks, than it is read for: what ranks hold would be exchanged without a
/// word.
Expected<void> checkRank(const Model &model, int64_t rank, int64_t ranks);

/// Makes one program, for all ranks of the mesh, of a model per rank, in their order. It
/// is the first one's, but for what may differ between ranks:
///
/// - An initializer whose values differ becomes a tensor of all of them, one behind the
///   other along the axes over which they differ, of which a node ToLocal gives each rank
///   its own. Ranks that have the same values share them.
/// - `root_rank` of a Broadcast, `root` and `groups` of a DistCollective, and the lists
///   by which a NeighborExchange or NeighborExchangeV2 names neighbours and lengths
///   become lists of those of all ranks. Roots that differ are `root_ranks` then.
///
/// All else must be equal, names of values too, and properties (commonKeys). An error
/// names two files and the first two nodes, with what makes them differ, or the input,
/// output or initializer. A file whose graph's name says its rank (see rankText) is an
/// error in another's place.
Expected<Model> mergeRanks(std::vector<Model> ranks, const Mesh &mesh);

} // namespace partita::onnx_model

#endif // PARTITA_ONNX_MERGERANKS_H
