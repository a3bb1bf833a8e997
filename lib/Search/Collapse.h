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
  /// The problem with memory: what is in use all the time, of all copies; what is in use
  /// for a while, of the first two copies and the last. Between them every copy's moments
  /// are like the second's, so that an answer that fits there fits; as rows are only left
  /// out, bounds hold in any case.
  solver::Problem withMemory(const solver::Problem &original) const;
  /// The answer of the original that an answer stands for.
  std::vector<uint32_t> expand(const std::vector<uint32_t> &choices) const;
  /// Adds costs of an edge of the original to `into`, a copy of `problem`.
  void add(solver::Problem &into, const solver::Edge &edge, size_t number,
           const std::vector<int64_t> &costs) const;
};

/// The sum of two costs, forbidden if one is.
int64_t sumOfCosts(int64_t a, int64_t b);

} // namespace partita::search

#endif // PARTITA_LIB_SEARCH_COLLAPSE_H
