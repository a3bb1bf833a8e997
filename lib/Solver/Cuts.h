//===- Cuts.h - Rows that integrality implies -------------------*- C++ -*-===//
//
// Multipliers on memory rows give the bound of the problem in which a variable may take a
// mixture of its choices as far as rows are concerned. Rounding a row takes some of these
// mixtures away: for a step d, with s the remainder of the row's room, every answer keeps
//   Σ φ(bytes − base) ≤ φ(room − Σ base),  φ(x) = ⌊x/d⌋·(d − s) + max(0, x mod d − s)
// whatever bytes are taken as the base of each variable, because φ is superadditive
// (mixed integer rounding: Nemhauser and Wolsey, "Integer and Combinatorial
// Optimization", II.1). The result is a row like any other.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_SOLVER_CUTS_H
#define PARTITA_LIB_SOLVER_CUTS_H

#include "Core.h"

namespace partita::solver {

/// How much of each choice a mixture takes: per variable shares that add up to 1.
class Mixture {
public:
  explicit Mixture(const Core &core);
  /// Moves towards these choices by so much of the way.
  void add(const std::vector<int> &choices, double weight);
  const std::vector<double> &operator[](size_t var) const { return share[var]; }

private:
  std::vector<std::vector<double>> share;
};

/// Adds at most so many rows that the mixture breaks, made of the first `rows` of the
/// core, and gives how many.
int addCuts(Core &core, const Mixture &mixture, int rows, int most);

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_CUTS_H
