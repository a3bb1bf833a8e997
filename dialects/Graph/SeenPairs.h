//===- SeenPairs.h - What masks by positions leave of scores ----*- C++ -*-===//
#ifndef PARTITA_DIALECTS_GRAPH_SEENPAIRS_H
#define PARTITA_DIALECTS_GRAPH_SEENPAIRS_H

#include "dialects/Graph/Graph.h"

namespace partita::graph::detail {

/// First number and step of a graph.weight of integers along one dim, [first, step].
inline constexpr llvm::StringLiteral progressionAttr = "graph.progression";

/// The share of the pairs of a query and a key that kernels compute: they leave out
/// blocks of 128 × 128 in which each logit is the least number whatever its score. It is
/// 1 where the payload of an attention does not say so by positions: integers of
/// `scored`, or of a comparison there, that the program knows. Of 64 blocks under a
/// causal mask 0.508.
double seenShare(int64_t queries, int64_t keys, mlir::ValueRange scored,
                 const Payload &payload);

} // namespace partita::graph::detail

#endif // PARTITA_DIALECTS_GRAPH_SEENPAIRS_H
