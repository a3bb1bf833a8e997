//===- Runs.h - Where classes are split into runs ---------------*- C++ -*-===//
//
// Which copies of a class begin a run is a choice like any other, but one that makes
// variables equal: once it is made, what is left is a plain problem of as many copies as
// there are runs. So the search is one of its own, above the solver of plain problems. A
// *box* gives every break a range of copies where it may be. Copies between which no
// break can be are tied; the others are free. Every answer with its breaks in the box is
// an answer of that plain problem, whose lower bound thus holds for the box, and an
// answer of the plain problem that keeps to the number of runs is an answer of the whole.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_SOLVER_RUNS_H
#define PARTITA_LIB_SOLVER_RUNS_H

#include "Driver.h"

#include <set>

namespace partita::solver {

/// The pairs of variables that the classes make equal wherever they are split: all copies
/// of those of one run.
Ties hardTies(const Problem &problem);
/// Whether some class may be split in more than one way.
bool hasRuns(const Problem &problem);

/// Branch and bound over boxes, least bound first.
class RunSearch {
public:
  RunSearch(const Problem &problem, const SolveOptions &options, Budget budget);
  Outcome run();
  /// Work so far, in table entries.
  int64_t work() const { return budget.work; }

private:
  /// Per class the first copies of all runs but the first.
  using Breaks = std::vector<std::vector<int>>;
  using Multipliers = std::vector<double>;
  /// The copies low ≤ i ≤ high that may be the first of a run.
  struct Range {
    int low, high;
  };
  struct Box {
    /// Per class, and per break of it in order; no entry for classes that are tied or
    /// free anyway.
    std::vector<std::vector<Range>> breaks;
    double bound = 0;
    /// Work for it, grown where a box that cannot be split stays open.
    int64_t share = 0;
    /// Least bound first; among equals the one made last, which is the narrowest.
    int64_t serial = 0;
    /// The multipliers of the box that it came from.
    std::shared_ptr<const Multipliers> multipliers;
    bool operator<(const Box &other) const {
      return bound != other.bound ? bound < other.bound : serial > other.serial;
    }
  };
  struct Evaluation {
    Outcome outcome;
    int64_t work = 0;
  };
  Box everywhere() const;
  Box leaf(const Breaks &breaks) const;
  bool narrow(Box &box) const;
  bool isExact(const Box &box) const;
  std::vector<bool> openCopies(const Box &box, size_t c) const;
  Ties ties(const Box &box) const;
  std::vector<int> changes(size_t c, const std::vector<uint32_t> &choices) const;
  Breaks breaksNear(const std::vector<uint32_t> &choices) const;
  std::vector<Evaluation> evaluate(const std::vector<Box> &boxes, Budget limit,
                                   bool explain = false);
  bool take(const Outcome &outcome);
  void settle(Box box, const Evaluation &found);
  void split(const Box &box, const std::optional<std::vector<uint32_t>> &relaxed);
  void add(Box box, double bound);
  bool tryLeaves(const std::vector<Breaks> &all, const Budget &limit);
  void improve(Breaks breaks);
  std::vector<Breaks> movedBy(const Breaks &breaks, int step) const;
  std::vector<Breaks> grid(const Breaks &breaks) const;
  double openBound() const;
  std::vector<Box> next();
  void report();
  Outcome finish();

  const Problem &problem;
  const SolveOptions &options;
  Budget::Clock::time_point start;
  Budget budget;
  int64_t firstShare, serials = 0;
  std::shared_ptr<const Multipliers> rootMultipliers;
  std::set<Box> open;
  /// The breaks that were tried by themselves.
  std::set<Breaks> tried;
  Cut cut;
  std::optional<std::vector<uint32_t>> best;
  double bound = 0;
};

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_RUNS_H
