//===- MarkRecompute.h - Which forward ops are computed again ---*- C++ -*-===//
//
// Each node, or module, that a pattern names is a segment of its own; those that a list
// of patterns names are one together; of a pattern that says `byLayer` each layer is one.
// Where a file has no modules, "h.0" is one of the node "h.0.mlp.c_fc". What the rest of
// the forward pass reads of a segment is kept; whatever else of it the backward pass
// reads is marked (dist.recompute) and computed again there, from what is kept, before
// its first reader. Of a pattern that says `exactly` nothing is kept for the backward
// pass. So a layer keeps its result, and its activations live twice, each time shortly:
//
//     %h = f(%x)   %y = g(%h)   …   %dh = dg(%h, %dy)
//     %h = f(%x)   %y = g(%h)   …   %h2 = f(%x)   %dh = dg(%h2, %dy)
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_TRAIN_MARKRECOMPUTE_H
#define PARTITA_PASSES_TRAIN_MARKRECOMPUTE_H

#include "partita/Base/Error.h"
#include "partita/Train/Spec.h"

#include "mlir/IR/BuiltinOps.h"

namespace partita::train {

/// Marks ops of a training step that `asked` names: of main, and of the loop over its
/// micro-batches. An error names a pattern that matches no node and no module, or no
/// layer where it asks for layers. Returns notes: of each pattern that saves no byte.
Expected<std::vector<std::string>> markRecompute(mlir::ModuleOp module,
                                                 const std::vector<Recompute> &asked);

} // namespace partita::train

#endif // PARTITA_PASSES_TRAIN_MARKRECOMPUTE_H
