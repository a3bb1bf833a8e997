//===- Attention.h - Attention as the ops that it stands for ----*- C++ -*-===//
#ifndef PARTITA_DIALECTS_GRAPH_ATTENTION_H
#define PARTITA_DIALECTS_GRAPH_ATTENTION_H

#include "dialects/Graph/Graph.h"

namespace partita::graph {

/// Builds products, pointwise ops and reductions that compute what `op`, a
/// graph.attention or one of its gradients, does, and returns a value for each of its
/// results. Tensors of [queries, keys] are among them. An error is that of an op.
Expected<std::vector<mlir::Value>> expandAttention(mlir::Operation *op,
                                                   mlir::OpBuilder &builder);

/// Tells whether `op` is a graph.attention or one of its gradients.
inline bool isAttention(mlir::Operation *op) {
  return mlir::isa<AttentionOp, AttentionGradQueryOp, AttentionGradKeysOp>(op);
}

} // namespace partita::graph

#endif // PARTITA_DIALECTS_GRAPH_ATTENTION_H
