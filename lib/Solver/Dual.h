//===- Dual.h - Lower bounds by reparametrization ---------------*- C++ -*-===//
//
// Cost may be moved freely between a variable and its edges: taking M(s) off every entry
// in row s of a table and adding it to the variable's cost of s changes no answer's sum.
// Memory may be priced: for any multipliers λ ≥ 0 per row, no feasible answer costs less
// than the same answer with λ·(bytes − limit) added. The bound is what is left once the
// moved costs are all ≥ 0 and their minimum has been taken out into a constant.
//
// A sweep visits the variables in order and back. It pulls all that the edges from
// before can spare, takes the minimum out, and pushes even shares towards the edges
// after (sequential message passing). Every intermediate state is a valid bound, and a
// choice whose cost alone lifts the bound over the cut can never be in a better answer.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_SOLVER_DUAL_H
#define PARTITA_LIB_SOLVER_DUAL_H

#include "Budget.h"
#include "Core.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace partita::solver {

/// Where better answers end. Costs are integers, so better than `upper` means at most
/// upper − 1; the margin covers rounding in the sums.
struct Cut {
  double upper = infinite;
  /// `noise` is the largest sum that went into the costs in use.
  double value(double noise) const {
    return isInfinite(upper) ? infinite
                             : upper - 1 + 1e-6 + 1e-11 * std::max(upper, noise);
  }
};

/// Whether a bound says, whatever rounding did to it, that no answer costs less.
inline bool isBeyond(double bound, double cost) {
  return bound - std::abs(bound) * 1e-11 - 1 >= cost;
}

/// By how much the choices exceed each row, where a multiplier should move. Of each
/// stretch of exceeded rows only the worst counts, and those that are priced already:
/// neighbours are mostly the same constraint, and a step shared by hundreds of rows moves
/// none of them.
std::vector<double> excessOfRows(const Core &core, const std::vector<int> &choice,
                                 const std::vector<double> &lambda);

/// Turns the direction of the multipliers' next step towards `change`, keeping `momentum`
/// of what it was: damps the zigzag of subgradients. Gives the square of its length; 0
/// when there is no step.
double deflect(std::vector<double> &direction, const std::vector<double> &change,
               const std::vector<double> &lambda, double momentum);

class Dual {
public:
  /// Tables of more entries than this in all are not copied edge by edge: 60 million are
  /// half a GiB, and a dive and a search hold some copies.
  static constexpr int64_t mostBaked = 60'000'000;

  /// Starts from the core's costs and multipliers. The core must not change until bake.
  /// A budget, where given, ends `run` early.
  Dual(Core &core, Cut cut, const Budget *budget = nullptr);

  /// One pass forth and back. False: nothing below the cut is left.
  bool sweep();
  /// Moves the multipliers towards the rows that the decoded choices exceed.
  void stepMultipliers();
  /// Sweeps with multiplier steps until the bound stops rising. False as sweep.
  bool run(int maxSweeps, double tolerance);
  /// Writes the moved costs back into the core and forbids choices and pairs that the
  /// bound excludes. False: nothing is left.
  bool bake();

  /// What bake does where there is no memory for every edge's own table: the moved costs
  /// stay beside the tables as hints, and only choices are forbidden.
  bool keep();
  /// bake or keep, by the size of the core.
  bool settleInCore();

  double bound() const { return best; }
  /// Choices read off during the last forward pass; may break rows and pairs.
  const std::vector<int> &decoded() const { return choice; }
  /// Of the choices that multipliers were moved by: the last that exceed a row, and the
  /// last that leave room in every row; empty where there were none. Where memory is what
  /// keeps the bound down, both are minima, and an answer is between them.
  const std::vector<int> &decodedOver() const { return over; }
  const std::vector<int> &decodedUnder() const { return under; }
  const std::vector<double> &multipliers() const { return lambda; }
  /// Costs of a variable's choices above the bound, with multipliers, as moved so far;
  /// none where the core has no such variable any more.
  std::span<const double> excess(int var) const {
    return {costs.data() + costsAt[var], costsAt[var + 1] - costsAt[var]};
  }
  /// The cost of a pair as moved so far.
  double pairExcess(int edge, int var, int choice, int otherChoice) {
    return core.entry(edge, var, choice, otherChoice) - moved(edge, var)[choice] -
           moved(edge, core.other(edge, var))[otherChoice];
  }
  /// Costs of a variable's choices above the bound, each with the replies of its
  /// neighbours that are cheapest for it.
  std::vector<double> marginal(int var);
  void setCut(Cut c) { cut = c; }
  /// Size of the first multiplier steps; 1 by default, less where they already fit.
  void setStep(double step) { scale = step; }
  /// Where the bound is expected to end, for the size of the steps alone; infinite for a
  /// guess.
  void setGoal(double cost) { expected = cost; }
  /// Where the bound is high enough for `run` to end.
  void setEnough(double cost) { enough = cost; }

private:
  /// An edge as one of its ends sees it. All that a visit reads lies close together: on
  /// large cores most of its time would go into finding it otherwise.
  struct Arc {
    const double *table;
    /// What was moved off the table for each choice of this end, and of the other.
    double *mine, *theirs;
    int other, otherSize;
    bool isFirst;
  };
  /// A variable of the order. Its arcs to those before it come first.
  struct Stop {
    int var, size;
    double *cost;
    size_t arcs, ahead, end;
  };
  void arrange();
  void liftNegative();
  void markForbidden();
  std::span<double> own(int var) {
    return {costs.data() + costsAt[var], costsAt[var + 1] - costsAt[var]};
  }
  double *moved(int edge, int var) {
    return messages.data() +
           (core.edges[edge].first == var ? movedAt[edge].first : movedAt[edge].second);
  }
  bool visit(const Stop &stop, bool forward);
  bool settle(const Stop &stop);
  void pull(const Stop &stop, const Arc &arc);
  void decode(const Stop &stop);
  double gapAbove() const;
  void level();
  void moveTo(std::vector<double> target);

  void penalties(const std::vector<double> &change, double sign);
  void loadHints(int edge);

  Core &core;
  Cut cut;
  const Budget *budget;
  std::vector<Stop> stops;
  std::vector<Arc> arcs;
  /// Costs of all choices, one variable after the other; what was moved off the tables.
  std::vector<double> costs, messages;
  std::vector<size_t> costsAt;
  std::vector<std::pair<size_t, size_t>> movedAt;
  std::vector<double> lambda, bestLambda, direction;
  double constant = 0, best = -infinite, last = -infinite;
  double scale = 1, expected = infinite, enough = infinite;
  int stalled = 0;
  std::vector<int> choice, over, under;
  std::vector<double> scratch;
};

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_DUAL_H
