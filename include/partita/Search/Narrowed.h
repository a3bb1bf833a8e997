//===- Narrowed.h - A plan priced in a narrower type ------------*- C++ -*-===//
#ifndef PARTITA_SEARCH_NARROWED_H
#define PARTITA_SEARCH_NARROWED_H

#include "partita/Search/Model.h"

namespace partita::search {

/// Seconds of one run of a plan by its kernels: as the program is, and as its f32 values
/// and products would take in a narrower type.
struct NarrowedTimes {
  double before = 0, after = 0;
  double share() const { return before > 0 ? after / before : 1; }
};

/// Prices a plan twice; nothing is searched. Inputs and outputs keep their types, as with
/// `--compute` (passes/Precision/Narrow.cpp); all f32 values between them, weights and
/// states are stored in `type`, also those of norms and softmax, whose kernels compute in
/// f32 and round what they store.
NarrowedTimes narrowedTimes(const FlowGraph &graph, const Placement &placement,
                            const Decided &plan, DType type);

} // namespace partita::search

#endif // PARTITA_SEARCH_NARROWED_H
