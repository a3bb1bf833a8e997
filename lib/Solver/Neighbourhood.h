//===- Neighbourhood.h - Improving an answer piece by piece -----*- C++ -*-===//
#ifndef PARTITA_LIB_SOLVER_NEIGHBOURHOOD_H
#define PARTITA_LIB_SOLVER_NEIGHBOURHOOD_H

#include "Search.h"

#include <random>

namespace partita::solver {

/// Large-neighbourhood search: all but a connected piece of the variables keep their
/// choices, and the piece is solved by branch and bound below its present cost.
class Neighbourhood {
public:
  /// `start` is a feasible answer for the alive variables of the core; the seed says
  /// which pieces are looked at.
  Neighbourhood(const Core &core, std::vector<int> start, uint64_t seed);

  /// A few pieces per thread; at least one is counted as tried. True when the answer
  /// improved.
  bool round(Budget &budget, int threads);

  /// One piece: the variables that another answer of the core has otherwise, and their
  /// neighbours. True when the answer improved.
  bool merge(const std::vector<int> &other, Budget &budget);

  const std::vector<int> &answer() const { return choices; }
  double answerCost() const { return cost; }
  /// Pieces solved so far.
  size_t tried() const { return pieces; }

private:
  struct Attempt {
    std::vector<int> free;
    std::optional<std::vector<int>> found;
    double before = 0, after = 0;
    bool complete = false;
    int64_t work = 0;
  };
  std::vector<int> piece(size_t wanted);
  void solvePiece(Attempt &attempt, Budget part) const;
  double costOf(const std::vector<int> &piece, const std::vector<int> &now) const;
  bool apply(const Attempt &attempt);

  const Core &core;
  std::vector<int> choices, alive;
  std::vector<int> mark;
  int stamp = 0;
  std::vector<Wide> use;
  double cost = 0;
  std::mt19937_64 random;
  double growth = 0;
  size_t size = 60, pieces = 0;
};

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_NEIGHBOURHOOD_H
