//===- GraphOps.td - All ops of the graph dialect -----------*- tablegen -*-===//
#ifndef PARTITA_DIALECTS_GRAPH_GRAPHOPS
#define PARTITA_DIALECTS_GRAPH_GRAPHOPS

include "dialects/Graph/Ops/Source.td"
include "dialects/Graph/Ops/Elementwise.td"
include "dialects/Graph/Ops/Contraction.td"
include "dialects/Graph/Ops/Attention.td"
include "dialects/Graph/Ops/Reduction.td"
include "dialects/Graph/Ops/Shape.td"
include "dialects/Graph/Ops/Indexing.td"
include "dialects/Graph/Ops/Sampling.td"
include "dialects/Graph/Ops/Control.td"

#endif // PARTITA_DIALECTS_GRAPH_GRAPHOPS
