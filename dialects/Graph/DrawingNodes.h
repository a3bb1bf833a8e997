//===- DrawingNodes.h - Nodes that draw random numbers ----------*- C++ -*-===//
#ifndef PARTITA_DIALECTS_GRAPH_DRAWINGNODES_H
#define PARTITA_DIALECTS_GRAPH_DRAWINGNODES_H

namespace partita {

/// Attribute of a module that is to train: the names of nodes that draw other random
/// numbers in each step. In these a constant that runs over the batch says places, not
/// data: a micro-batch draws for its own. Gone once the module is a training step.
inline constexpr char drawingNodesAttr[] = "graph.drawing_nodes";

} // namespace partita

#endif // PARTITA_DIALECTS_GRAPH_DRAWINGNODES_H
