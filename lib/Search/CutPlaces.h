//===- CutPlaces.h - Where a program can be cut into stages -----*- C++ -*-===//
#ifndef PARTITA_LIB_SEARCH_CUTPLACES_H
#define PARTITA_LIB_SEARCH_CUTPLACES_H

#include "partita/Search/Stages.h"

#include <functional>
#include <set>

namespace partita::search {

/// A place between two ops: work before it, bytes that cross it.
struct Cut {
  size_t op = 0; ///< the first op behind it, among those that compute
  double before = 0;
  double bytes = 0;
};

struct CutPlaces {
  std::vector<int32_t> ops; ///< those that compute
  std::vector<Cut> cuts;    ///< the program's two ends among them

  /// The stage of every op, −1 of those that do not compute. Stage k is between the
  /// places bounds[k] and bounds[k + 1] of `cuts`; what follows from parameters alone is
  /// in that of its first reader, where the parameter then lies, too.
  std::vector<int32_t> stages(const std::vector<size_t> &bounds,
                              const FlowGraph &graph) const;
};

/// The places that are worth looking at, more than there are stages. Errors as of
/// cutIntoStages.
Expected<CutPlaces> cutPlaces(const FlowGraph &graph, const StageCost &cost,
                              int32_t stages);

/// The bounds with the least slowest stage, and of those with the fewest bytes that
/// cross. `fits(i, j, k)`: stage k may be between the places i and j; null: any may.
/// Empty if no bounds are such.
std::vector<size_t>
evenBounds(const std::vector<Cut> &cuts, const StageCost &cost, int32_t stages,
           const std::function<bool(size_t, size_t, size_t)> &fits = nullptr);

/// The ops that read a state, make what becomes of it, or read that: they are in one
/// stage, where it lies. A state that nothing changes, as a parameter before its step is
/// derived, may be read in several.
std::set<int32_t> opsOfState(const FlowGraph &graph, const FlowOp &state);

} // namespace partita::search

#endif // PARTITA_LIB_SEARCH_CUTPLACES_H
