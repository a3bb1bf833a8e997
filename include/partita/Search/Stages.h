//===- Stages.h - A program cut into pipeline stages ------------*- C++ -*-===//
//
// A pipeline of K stages takes micro-batches one after the other; in its steady state the
// slowest stage decides how often one comes out. A cut of a program, whose ops are in an
// order in which they can run, is K − 1 places in that order. A stage's time is that of
// its ops, and of what it receives and sends through the link between stages:
//
//     t(i, j) = Σ seconds of ops i … j−1 / ranks + (bytes that cross i, and j) / β
//
// The cut has the least max t (the objective of Alpa's and nnScaler's outer search, for
// given sizes of stages), and of those with equally slow stages the least bytes. It is
// found by dynamic programming over the places where a cut is worth looking at: of each
// run of places with little work between them the one that fewest bytes cross.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_STAGES_H
#define PARTITA_SEARCH_STAGES_H

#include "partita/Rule/Sharding/Flow.h"

#include <map>
#include <string>

namespace partita::search {

struct StageCost {
  std::vector<double> seconds; ///< by op of the graph; of others than Compute unused
  double bytesPerSecond = 1;   ///< β
  /// By stage the devices that its work is taken to be spread over; empty: one each.
  std::vector<double> ranks = {};
};

/// Ops that follow from parameters and constants alone, as the transpose of a tied table:
/// a stage that reads one makes it, and is not sent it.
std::vector<bool> madeOfParameters(const FlowGraph &graph);

/// The stage of every op, 0 … stages − 1, ascending along the program but for what
/// follows from parameters alone, which is in the stage of its first reader; −1 for ops
/// that are not Compute. Ops that share a state are in one stage. An error if there are
/// fewer ops than stages, or states leave fewer places to cut.
Expected<std::vector<int32_t>> cutIntoStages(const FlowGraph &graph,
                                             const StageCost &cost, int32_t stages);

/// The stages that are asked for by glob of node names: what is not named is in the
/// latest stage of what it reads. An error names a glob that matches nothing, a node that
/// two globs want in different stages, one that would come before what it reads, and a
/// stage without ops. `where` names the file in messages.
Expected<std::vector<int32_t>>
stagesByGlob(const FlowGraph &graph,
             const std::vector<std::pair<std::string, int32_t>> &globs,
             const std::string &where);

/// The stages that nodes of these names have in another form of the program; others are
/// in the latest stage of what they read. Errors as above.
Expected<std::vector<int32_t>>
stagesByName(const FlowGraph &graph, const std::map<std::string, int32_t> &stageOfNode,
             const std::string &where);

/// The stages of a program beside another with most of its nodes, as an evaluation has
/// those of its training step. A node has the stage of that name, or a later one where
/// what it reads is there. Others are in the latest stage of what they read; those that
/// follow from inputs alone, as a one-hot of labels, are where they are first read.
/// `stageOfState`: no reader of such a state comes before it.
std::vector<int32_t> stagesBeside(const FlowGraph &graph,
                                  const std::map<std::string, int32_t> &stageOfNode,
                                  const std::map<std::string, int32_t> &stageOfState);

} // namespace partita::search

#endif // PARTITA_SEARCH_STAGES_H
