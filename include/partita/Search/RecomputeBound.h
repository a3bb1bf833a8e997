//===- RecomputeBound.h - No step is faster, whatever it repeats *- C++ -*-===//
//
// A lower bound of the time of a training step that fits into a memory limit, whatever of
// the forward pass its backward pass computes again (Recompute.h). It is that of another
// pairwise problem, of the step without recompute (ModelOptions::anyRecompute). A step
// that computes something again has the same other ops, with the same strategies; of it
// the problem counts what is left of time and bytes in any case:
//
//     of what is computed again            nothing: neither time nor conversions
//     a forward value that backward reads  not that reading, nor its traffic: with fewer
//                                          users it may stay inside a kernel
//     bytes of forward values              none
//     bytes of states and gradients        their own; of what a state is converted to,
//                                          those that a user finds while it runs
//
// So the limit is felt where it decides how states are split over devices, which is what
// makes large models slow; not where activations alone are too many.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_RECOMPUTEBOUND_H
#define PARTITA_SEARCH_RECOMPUTEBOUND_H

#include "partita/Search/Search.h"

namespace partita::search {

/// No plan of the step takes less with any recompute, if it fits `options.memoryLimit`;
/// absent: none fits. The step is one without recompute, with as many micro-batches as
/// the others; the graph is finalized. Layers are planned alike as `options` has it.
Expected<std::optional<Picos>> recomputeBound(const FlowGraph &graph,
                                              const Placement &placement,
                                              const SearchOptions &options);

} // namespace partita::search

#endif // PARTITA_SEARCH_RECOMPUTEBOUND_H
