//===- Collapse.h - Tied variables as one -----------------------*- C++ -*-===//
#ifndef PARTITA_LIB_SEARCH_COLLAPSE_H
#define PARTITA_LIB_SEARCH_COLLAPSE_H

#include "partita/Solver/Problem.h"

namespace partita::search {

/// A problem whose classes are of one run, with one variable per class position: as large
/// as one layer, however many there are. Made once, solved many times.
struct Collapsed {
  /// Without classes, usages and memory limit.
  solver::Problem problem;
  std::vector<uint32_t> variable; ///< of each variable of the original
  /// Of each edge of the original the edge that has its costs; -1: its ends are one
  /// variable, whose costs they are.
  std::vector<int64_t> places;

  explicit Collapsed(const solver::Problem &original);
  /// The problem with the memory that is in use at some moments of the original
  /// (ascending), one time step each. As rows are only left out, bounds hold for the
  /// original; whether an answer fits there has to be seen.
  solver::Problem withMemory(const solver::Problem &original,
                             const std::vector<int64_t> &moments) const;
  /// The answer of the original that an answer stands for.
  std::vector<uint32_t> expand(const std::vector<uint32_t> &choices) const;
};

} // namespace partita::search

#endif // PARTITA_LIB_SEARCH_COLLAPSE_H
