//===- Search.h - Branch and bound, dives, neighbourhoods -------*- C++ -*-===//
#ifndef PARTITA_LIB_SOLVER_SEARCH_H
#define PARTITA_LIB_SOLVER_SEARCH_H

#include "TreeBound.h"

#include <memory>
#include <optional>
#include <set>

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
  /// Whether to look for rows that integrality implies, which takes as long as hundreds
  /// of nodes.
  void setRounding(bool on) { rounding = on; }
  /// A better answer from elsewhere.
  void setCut(Cut c) { cut = c.upper < cut.upper ? c : cut; }

  /// What the search gave so far: choices (as the given core's variables were on entry)
  /// if an answer below the cut was found, and a bound on all answers that are below the
  /// final cut, the least over the open nodes (infinite when none is left).
  struct Result {
    std::optional<std::vector<int>> choices;
    double open = infinite;
  };

  /// Exact branch and bound, until nodes or budget run out.
  Result solve(Core core) {
    begin(std::move(core));
    return resume();
  }
  /// The same in two steps: resume may be called again when the budget has been raised,
  /// and goes on where it stopped.
  void begin(Core core);
  Result resume();
  /// Fixes the most certain variables in a few steps: a quick first answer.
  std::optional<std::vector<int>> dive(Core from, double fraction);

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
  /// How choices of a node's core become choices of the core that it was cut out of.
  struct Origin {
    std::shared_ptr<const Origin> up;
    /// Only its trail.
    Core parent;
    std::vector<int> ids;
    size_t parentVars = 0;
  };
  struct Node {
    Core core;
    std::shared_ptr<const Origin> origin;
    double bound = -infinite;
    int depth = 0;
    int64_t serial = 0, entries = 0;
  };
  /// What became of a node: nothing below the cut is left in it; the budget ended; or it
  /// is to be branched on. Again: its core has shrunk, and another look may close it.
  struct Fate {
    enum Kind { Closed, Stopped, Branched, Again } kind = Closed;
    Branch at{};
  };
  /// An answer beside the search.
  struct Rough {
    double cost = infinite;
    std::vector<int> choices{};
  };
  bool accept(const Node &node, const std::vector<int> &choices);
  void plunge(Node &node, double fraction, Rough &rough);
  Fate look(Node &node);
  Fate lookOnce(Node &node, int round);
  Fate treeRound(Node &node, TreeBound &tree, int round);
  bool tryTree(Node &node);
  void addRows(Node &node, TreeBound &tree);
  void branch(Node node, const Branch &at);
  Node take();
  void put(Node node);
  std::vector<Branch> candidates(const Core &core, Dual &dual, size_t count) const;
  double probe(Core &core, Branch at, bool fixed);
  Branch choose(Core &core, const std::vector<Branch> &candidates, double bound);
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
  /// The size of steps at which the first node's multipliers settled.
  double treeStep = 1;
  /// The nodes that wait, the least bound first; entries in their tables in all.
  struct ByBound {
    bool operator()(const Node &a, const Node &b) const {
      return a.bound != b.bound ? a.bound < b.bound : a.serial > b.serial;
    }
  };
  std::set<Node, ByBound> open;
  int64_t openEntries = 0, serials = 0;
  /// The side of the last branch to look at next.
  std::optional<Node> next;
  std::optional<std::vector<int>> best;
  bool rounding = false, treeTried = false, preferTree = false, treeStarted = false;
};

/// The core that is left when all variables but `free` keep their choices.
Core condition(const Core &core, const std::vector<int> &choices,
               const std::vector<int> &free, const std::vector<Wide> &rowUse);

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_SEARCH_H
