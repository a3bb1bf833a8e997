//===- Collapse.h - Tied variables as one -----------------------*- C++ -*-===//
#ifndef PARTITA_LIB_SEARCH_COLLAPSE_H
#define PARTITA_LIB_SEARCH_COLLAPSE_H

#include "partita/Solver/Problem.h"

namespace partita::search {

/// A problem whose classes are of one run, with one variable per class position: as large
/// as one layer, however many there are. Made once, in time linear in the original, and
/// solved many times.
struct Collapsed {
  /// Without classes. Its time steps are the moments of the original that decide whether
  /// an answer fits: moments at which the same is in use are one, and of moments in the
  /// middle between two others, as those of the layers of a training step are, only the
  /// two outermost are left. So an answer has the cost and the peak here that it has in
  /// the original.
  solver::Problem problem;
  std::vector<uint32_t> variable; ///< of each variable of the original

  explicit Collapsed(const solver::Problem &original);
  int64_t steps() const { return numSteps; }
  /// The problem with the memory that is in use at some of its time steps (ascending). As
  /// rows are only left out, bounds hold for the original; whether an answer fits there
  /// has to be seen. Without any there is no limit.
  solver::Problem withMemory(const std::vector<int64_t> &steps) const;
  /// The answer of the original that an answer stands for.
  std::vector<uint32_t> expand(const std::vector<uint32_t> &choices) const;

private:
  int64_t numSteps = 0;
};

} // namespace partita::search

#endif // PARTITA_LIB_SEARCH_COLLAPSE_H
