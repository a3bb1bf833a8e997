//===- RecomputeBound.h - No step is faster, whatever it repeats *- C++ -*-===//
//
// A lower bound of the time of a training step that fits into a memory limit, whatever of
// the forward pass its backward pass computes again (Recompute.h). It is that of another
// pairwise problem, of the step without recompute (ModelOptions::anyRecompute). A step
// that computes something again has the same other ops, with the same strategies. An
// op of the forward pass has run before the first backward op that needs what it leads
// to. So of a value that both passes read, one of its forms is there from then on to its
// last reader, or its op runs twice:
//
//     kept                                 the smallest of its forms; its conversions
//     computed again                       of a product its least time; no bytes, no
//                                          conversions for the backward pass
//
// Of other values the problem counts what is left of time and bytes in any case:
//
//     traffic of a forward value           none where the backward pass reads it: with
//                                          fewer users it may stay inside a kernel
//     bytes of other forward values        none
//     bytes of states and gradients        their own; of what a state is converted to,
//                                          those that a user finds while it runs
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_RECOMPUTEBOUND_H
#define PARTITA_SEARCH_RECOMPUTEBOUND_H

#include "partita/Search/Search.h"

namespace partita::search {

/// What is known of all steps with any recompute.
struct AnyRecompute {
  /// No step that fits takes less.
  Picos lowerBound = 0;
  /// Of the best answer of the problem, if one was found: what it takes, and the nodes of
  /// which it computes something again. It is no plan, but a proposal of what to repeat.
  std::optional<Picos> time;
  Picos repeatedTime = 0; ///< of this the second runs of ops
  std::vector<std::string> nodes;
};

/// Of steps that fit `options.memoryLimit`; absent: none does. The step is one without
/// recompute, with as many micro-batches as the others; the graph is finalized. Layers
/// are planned alike as `options` has it.
Expected<std::optional<AnyRecompute>> anyRecompute(const FlowGraph &graph,
                                                   const Placement &placement,
                                                   const SearchOptions &options);

} // namespace partita::search

#endif // PARTITA_SEARCH_RECOMPUTEBOUND_H
