//===- TreeBound.h - Exact minima over a tree decomposition -----*- C++ -*-===//
//
// Where the variables can be eliminated one after the other without large tables, the
// least cost with priced memory is found exactly: every multiplier gives the true bound
// of its relaxation, where message passing gives less on every cycle. What is left of the
// gap is due to memory alone.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_SOLVER_TREEBOUND_H
#define PARTITA_LIB_SOLVER_TREEBOUND_H

#include "Dual.h"

namespace partita::solver {

class TreeBound {
public:
  /// Orders the core's variables by the size of the tables that eliminating them makes.
  /// The core must not change while this is in use.
  TreeBound(Core &core, int64_t mostEntries);
  /// Whether the tables have no more entries than was allowed.
  bool fits() const { return isSmall; }

  /// Moves the core's multipliers uphill for at most so many steps. `visit` is called for
  /// the minimal choices of every step; it returns where better answers end by then.
  template <typename Fn> void run(int steps, const Budget &budget, Cut cut, Fn visit) {
    for (int i = 0; i < steps; ++i) {
      evaluate();
      cut = visit(choice);
      if (best > cut.value(core.noise) || core.slack.empty() ||
          budget.exhausted(core.work) || !(means ? meanStep(cut) : deflectedStep(cut)))
        break;
    }
  }
  double bound() const { return best; }
  /// Steps along the mean excess of many minima in place of the last few: slower at
  /// first, but they go on where the others stall.
  void takeMeans(double step = 1) {
    means = true;
    scale = step;
  }
  double stepScale() const { return scale; }
  /// Puts the best multipliers into the core, where rows may be added or dropped then.
  void restoreBest() { core.lambda = bestLambda; }
  /// Goes on from the core's rows and multipliers as they are now.
  void restart() {
    countPriced();
    bestLambda = core.lambda;
    direction.clear();
    stalled = steps = 0;
    scale = std::max(scale, 0.5);
  }
  /// At the best multipliers: for every choice the least cost of an answer with it, above
  /// the bound.
  std::vector<std::vector<double>> marginals();

private:
  struct Bag;
  /// The minimum that a bag passed on, inside the bag that takes it in.
  struct Child {
    int bag;
    std::vector<size_t> strides;
  };
  struct Bag {
    int var;
    /// The variables joined to var when it is eliminated, then var.
    std::vector<int> scope;
    std::vector<size_t> sizes;
    /// Row-major over the scope: the edges of var, and with all that came before.
    std::vector<double> edges, sum;
    /// The least over var and where, row-major over the rest of the scope.
    std::vector<double> least;
    std::vector<uint16_t> where;
    std::vector<Child> children;
  };
  bool order(int64_t mostEntries);
  void fill(Bag &bag);
  void countPriced();
  double evaluate();
  void eliminate(Bag &bag, const std::vector<double> &prices);
  bool deflectedStep(Cut cut);
  bool meanStep(Cut cut);
  template <typename Fn>
  static void walk(const Bag &bag, const std::vector<size_t> &strides, Fn body);

  Core &core;
  bool isSmall = false, means = false;
  /// Entries of all tables, and of what memory adds to them.
  int64_t entries = 0, priced = 0;
  std::vector<Bag> bags;
  std::vector<int> choice;
  std::vector<double> bestLambda, direction;
  double best = -infinite, last = -infinite, scale = 1;
  int stalled = 0, steps = 0;
};

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_TREEBOUND_H
