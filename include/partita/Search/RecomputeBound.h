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

/// Nodes that the backward pass of a step computes again, whatever else reads it.
struct RecomputeChoice {
  struct Node {
    std::string name;
    int32_t layer = -1; ///< in a row of equal layers, from 0; −1: in none
    Picos time = 0;     ///< of the second runs of its ops, as the bound counts them
    bool operator==(const Node &) const = default;
  };
  std::vector<Node> nodes; ///< in the order of the program
  Picos time() const;
  bool operator==(const RecomputeChoice &) const = default;
};

/// Bound of steps with any recompute that fit `options.memoryLimit`; absent: none fits.
/// The step is one without recompute, with as many micro-batches as the others; the graph
/// is finalized. As `options` has it layers are planned alike, in what they repeat, too.
Expected<std::optional<Bound>> boundOfAnyRecompute(const FlowGraph &graph,
                                                   const Placement &placement,
                                                   const SearchOptions &options);

/// Nodes that the fastest step that is expected to fit computes again, found with the
/// same variables, but prices and bytes of whole steps; empty if there was no time to
/// find one. Absent: none fits. With `options.model.given` of steps with those
/// strategies.
Expected<std::optional<RecomputeChoice>> proposeRecompute(const FlowGraph &graph,
                                                          const Placement &placement,
                                                          const SearchOptions &options);

} // namespace partita::search

#endif // PARTITA_SEARCH_RECOMPUTEBOUND_H
