//===- SplitBound.h - Bounds by elimination with split variables -*- C++ -*-===//
//
// Message passing loses where costs go round in cycles, exact elimination needs tables of
// as many variables as meet. Between the two (mini-buckets: Dechter and Rish, 2003):
// variables are eliminated one by one, and where the table of one would be too large, the
// variable is split. Each copy takes a part of what it is joined to and of its cost, and
// chooses for itself, so that the least cost is a bound. Before a copy is eliminated, its
// cost moves to the others where they differ in what their choices cost at least (moment
// matching: Ihler, Flerova, Dechter and Otten, 2012), and from pass to pass towards
// copies that agree.
//
// A memory row whose variables fit into one table forbids there what leaves it too little
// room, so that nothing is lost to its relaxation: where few variables share a row, mixed
// choices that multipliers alone allow are most of the gap. The other rows are priced,
// and all prices move from pass to pass.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_SOLVER_SPLITBOUND_H
#define PARTITA_LIB_SOLVER_SPLITBOUND_H

#include "Dual.h"

namespace partita::solver {

class SplitBound {
public:
  /// Tables of at most so many entries each. The core must not change while this is in
  /// use; memory has the price of its multipliers at first. The number of threads changes
  /// no bound.
  SplitBound(const Core &core, double mostEntries, int threads = 1);
  /// Whether there is room for what is passed on; only then there are passes.
  bool fits() const { return isSmall; }

  /// One pass; the first one matches copies. False, and no bound, where the budget ends
  /// it. Its work is added.
  bool pass(Budget &budget);
  /// Moves the costs of copies that chose differently in the last pass, and where rows
  /// are exact the prices of memory, by steps that would close a part of the gap to
  /// `upper` if the bound rose evenly. False: there is no step.
  bool step(double upper);
  /// The best of all passes.
  double bound() const { return best; }

private:
  /// A table that is added up: strides go by the scope of the bag.
  struct Input {
    const double *data;
    std::vector<size_t> strides;
  };
  /// A memory row as far as a bag's variables are in it: what their choices use may not
  /// be more than `room`, the others using their least.
  struct Limit {
    double room, mostOfBlock;
    std::vector<std::vector<double>> bytes; ///< by the scope of the bag; empty for none
    void forbid(const std::vector<size_t> &at, size_t choices,
                std::vector<double> &sums) const;
    void forbidAt(const std::vector<size_t> &above, std::vector<double> &costs) const;
  };
  /// A variable, or a copy of it, when it is eliminated.
  struct Bag {
    int var, group;
    /// The variables joined to it, the one eliminated last first, then it.
    std::vector<int> scope;
    std::vector<size_t> sizes{};
    std::vector<int> copies{};  ///< the bags of the scope's variables, of the copy meant
    std::vector<double> cost{}; ///< of its choices
    std::vector<Input> inputs{};
    std::vector<Limit> limits{};
    std::vector<double>
        least{}; ///< over its choices, row-major over the rest of the scope
    size_t rowsOfBlock() const { return sizes.size() > 1 ? sizes[sizes.size() - 2] : 1; }
  };
  /// The bags of one variable, of its copies.
  struct Group {
    size_t begin, end;
    size_t size() const { return end - begin; }
  };
  struct Function {
    std::vector<int> scope; ///< sorted
    int edge, bag, row;     ///< one of them, the others are -1
  };

  void order(double mostEntries);
  void eliminate(int var, std::vector<Function> &functions, double mostEntries);
  std::vector<Function> rowFunctions(double mostEntries) const;
  void placeRows(int var, size_t from, std::vector<Function> &functions,
                 double mostEntries);
  void link();
  Limit limitOf(const Function &f, const Bag &bag) const;
  int64_t match(const Group &group);
  template <typename Fn>
  void blocks(const Bag &bag, size_t from, size_t to, Fn body) const;
  template <typename Fn> void spread(const Bag &bag, Fn body) const;
  void decode();
  void priceRows(const std::vector<double> &change);
  std::vector<double> excess() const;
  bool stepPrices(double rise);
  bool stepCopies(double rise);

  const Core &core;
  size_t threads;
  std::vector<Bag> bags;
  std::vector<Group> groups;
  std::vector<std::vector<Function>> made; ///< per bag what it adds up, until linked
  std::vector<std::vector<double>> turned; ///< tables of edges, turned round
  std::vector<int> choice;                 ///< per bag
  std::vector<std::vector<double>> bestCosts, direction;
  std::vector<double> prices, bestPrices, priceDirection;
  bool isSmall = true, hasLimits = false;
  double constant = 0, bestConstant = 0, best = -infinite, last = -infinite, scale = 0.02;
  int stalled = 0, passes = 0;
};

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_SPLITBOUND_H
