//===- RecomputeBound.h - No step is faster, whatever it repeats *- C++ -*-===//
//
// A lower bound of the time of a training step that fits into a memory limit, whatever of
// the forward pass its backward pass computes again by the strategies of the first time,
// and what the best answer of the problem computes again. The problem is another pairwise
// one, of the step without recompute (ModelOptions::anyRecompute): for each op of the
// forward pass that the backward pass needs something of, it chooses whether the result
// is kept, whether the op runs again, or neither (lib/Search/Repeats.h). It counts what
// is left of time and bytes in any step:
//
//     traffic of a forward value           none where the backward pass reads it: with
//                                          fewer users it may stay inside a kernel
//     second runs                          of a product its time, of others their
//                                          arithmetic; conversions once more
//     bytes of a kept value                its smallest form, or what the last gradient
//                                          wants, up to its last reader
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
  /// Of the best answer of the problem, if one was found: the nodes of which it computes
  /// something again, and what the second runs take. It is no plan.
  std::vector<std::string> nodes = {};
  Picos repeatedTime = 0;
};

/// Of steps that fit `options.memoryLimit`; absent: none does. The step is one without
/// recompute, with as many micro-batches as the others; the graph is finalized. As
/// `options` has it layers are planned alike, in what they repeat, too: then the bound is
/// of steps that do so.
Expected<std::optional<AnyRecompute>> anyRecompute(const FlowGraph &graph,
                                                   const Placement &placement,
                                                   const SearchOptions &options);

} // namespace partita::search

#endif // PARTITA_SEARCH_RECOMPUTEBOUND_H
