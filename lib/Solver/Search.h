//===- Search.h - Branch and bound, dives, neighbourhoods -------*- C++ -*-===//
#ifndef PARTITA_LIB_SOLVER_SEARCH_H
#define PARTITA_LIB_SOLVER_SEARCH_H

#include "TreeBound.h"

#include <optional>

namespace partita::solver {

/// One search over a core. Keeps the best answer's cost as the cut; what it returns is
/// always strictly better than the cut it started with.
class Search {
public:
  explicit Search(Budget &budget, Cut cut, int64_t nodeLimit = INT64_MAX,
                  size_t probes = 8)
      : budget(budget), cut(cut), nodesLeft(nodeLimit), probes(probes) {}

  /// Nodes whose elimination tables have more entries in all are left to message passing.
  void setTreeEntries(int64_t most) { treeEntries = most; }

  /// What a subtree gave: choices (as the given core's variables were on entry) if an
  /// answer below the cut was found, and a bound on everything in the subtree that is
  /// below the final cut (infinite when the subtree was searched completely).
  struct Result {
    std::optional<std::vector<int>> choices;
    double open = infinite;
  };

  /// Exact depth-first branch and bound, until nodes or budget run out.
  Result solve(Core &core, int depth = 0);
  /// Fixes the most certain variables in a few steps: a quick first answer.
  std::optional<std::vector<int>> dive(Core core, double fraction);

  double upper() const { return cut.upper; }
  int64_t nodes = 0;

  /// One choice of one variable: taken on one side, forbidden on the other. Or, where
  /// `part` has some, these choices on one side and the rest on the other.
  struct Branch {
    int var = -1;
    int choice = 0;
    std::vector<bool> part{};
  };

private:
  bool accept(const Core &core, const std::vector<int> &choices,
              std::optional<std::vector<int>> &best);
  std::vector<Branch> candidates(const Core &core, const Dual &dual, size_t count) const;
  double probe(Core &core, Branch at, bool fixed);
  Branch choose(Core &core, const std::vector<Branch> &candidates, double bound);
  /// A round of a node whose width is small. Nothing: the core has shrunk, go round
  /// again.
  std::optional<Result> treeRound(Core &core, TreeBound &tree, int depth, int round,
                                  Result &result);
  bool tryTree(Core &core, double bound, Result &result);
  Result branch(Core &core, Branch at, double bound, int depth);
  void count(Core &core) {
    budget.work += core.work;
    core.work = 0;
  }

  Budget &budget;
  Cut cut;
  int64_t nodesLeft;
  /// Branches tried on both sides before one is taken; 1 takes the likeliest unseen.
  size_t probes;
  int64_t treeEntries = 16'000'000;
  bool treeTried = false, preferTree = false, treeStarted = false;
};

/// The core that is left when all variables but `free` keep their choices.
Core condition(const Core &core, const std::vector<int> &choices,
               const std::vector<int> &free, const std::vector<Wide> &rowUse);

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_SEARCH_H
