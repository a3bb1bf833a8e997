//===- Core.h - The reducible form of a problem -----------------*- C++ -*-===//
//
// A Core is a Problem on its way to nothing: variables, at most one edge per pair, and
// memory rows, on which every reduction works in place. Three things are kept apart so
// that a reduction never has to undo another:
//
//   cost      constant + unary + tables; a true cost, never including multipliers
//   memory    rows (time steps that can still be exceeded), each with the bytes left
//             once every variable takes its cheapest-in-memory choice; members hold
//             what a choice uses above that
//   trail     how to get the choices of removed variables back, applied in reverse
//
// Costs are doubles (sums never wrap); `infinite` means forbidden. A reduction that needs
// an upper bound prunes with a margin for rounding (see Limits), so nothing that could be
// better is ever lost.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_SOLVER_CORE_H
#define PARTITA_LIB_SOLVER_CORE_H

#include "Budget.h"
#include "Table.h"

#include "partita/Solver/Problem.h"

#include <cstdint>
#include <vector>

namespace partita::solver {

inline constexpr double infinite = 1e30;
inline bool isInfinite(double cost) { return cost > 1e29; }

/// What the choices of a variable use over the rows begin ≤ r < end; the least is 0.
struct Member {
  int begin, end;
  std::vector<int64_t> bytes;
};

struct CoreVar {
  std::vector<double> cost;
  std::vector<Member> members;
  std::vector<int> edges;
  bool alive = true;
  int size() const { return static_cast<int>(cost.size()); }
};

struct CoreEdge {
  int first, second;
  /// table[a * size(second) + b]
  Table table;
  bool alive = true;
  /// Costs that a dual moved off the table for each choice of either end; a hint, like
  /// the multipliers, and empty for none.
  std::vector<double> movedFirst{}, movedSecond{};
};

/// How one variable's choice follows from others, or how its choices were renumbered.
struct TrailRecord {
  enum Kind { Renumbered, Replaced, Follows, FollowsTwo } kind;
  int var, first = -1, second = -1;
  /// Renumbered: new choice → old. Replaced: pairs of a forbidden choice and one that is
  /// as good whatever the others choose, in the order found. Follows: choice of `first` →
  /// choice of `var` (one entry when `first` is -1). FollowsTwo: row-major over (first,
  /// second).
  std::vector<uint32_t> map;
  int stride = 0;
  /// In place of `map`, where many records have the same.
  std::shared_ptr<const std::vector<uint32_t>> shared{};
  const std::vector<uint32_t> &choices() const { return shared ? *shared : map; }
};

class Core {
public:
  std::vector<CoreVar> vars;
  std::vector<CoreEdge> edges;
  double constant = 0;
  /// Bytes left in each row, and a multiplier for each (a hint; any value is valid).
  std::vector<int64_t> slack;
  std::vector<double> lambda;
  /// Which rows of the first core each one stands for, equal ones together; empty in
  /// copies.
  std::vector<std::vector<int>> origin;
  std::vector<TrailRecord> trail;
  /// The largest sum that costs were moved through: rounding errors are below 1e-11 of
  /// it.
  double noise = 0;
  /// Table entries touched, the unit of work.
  int64_t work = 0;
  /// Where set, reductions stop when it is used up. Every state in between is valid.
  const Budget *limit = nullptr;
  /// Whether many edges share tables, so that results are worth remembering.
  bool repeats = false;

  int other(int edge, int var) const {
    return edges[edge].first == var ? edges[edge].second : edges[edge].first;
  }
  double entry(int edge, int var, int choice, int otherChoice) const {
    const CoreEdge &e = edges[edge];
    return e.first == var ? e.table[choice * vars[e.second].size() + otherChoice]
                          : e.table[otherChoice * vars[e.second].size() + choice];
  }
  /// The edge between two variables, or -1.
  int findEdge(int a, int b) const;
  /// Adds a table (row-major over a, b) to the edge between a and b.
  void addTable(int a, int b, const Table &table);

  /// Applies every loss-free reduction until none helps. False: no answer exists.
  bool reduce(bool dominance = true);
  /// Forbids what has no support any more, without renumbering. False: no answer.
  bool propagate(std::vector<int> changed);
  /// Keeps one choice and propagates. False: no answer.
  bool fix(int var, int choice);
  /// A choice that was forbidden, with the cost it had.
  struct Undo {
    int var, choice;
    double cost;
  };
  /// Where fix and propagate note what they forbid, while not null.
  std::vector<Undo> *undo = nullptr;
  void forbid(int var, int choice) {
    if (undo)
      undo->push_back({var, choice, vars[var].cost[choice]});
    vars[var].cost[choice] = infinite;
  }
  /// Drops rows that can no longer be exceeded or are implied by a neighbour.
  void compressRows();
  /// Drops rows that something else now stands for.
  void dropRows(const std::vector<bool> &dropped);
  void removeEdge(int edge);
  /// Takes a variable out whose choice follows from others, with its edges.
  void removeVar(int var);
  /// Adds the edge's table into costs and removes v; v has one choice.
  void absorb(int var);

  int aliveVars() const;
  int64_t tableEntries() const;
  /// A copy without dead variables; ids[new] = variable here.
  Core pack(std::vector<int> &ids) const;
  /// The choices of all variables as they were when the trail began, given those of the
  /// alive ones.
  std::vector<int> expand(std::vector<int> choices) const;
  /// Choices as the trail was `from` records long, carried forward to now. They must not
  /// have been forbidden since, except by dominance.
  std::vector<int> project(std::vector<int> choices, size_t from) const;
  /// The same, where they may have been forbidden: nothing then.
  std::optional<std::vector<int>> projectIfLeft(std::vector<int> choices,
                                                size_t from) const;
  /// Cost and feasibility of choices for the alive variables.
  double price(const std::vector<int> &choices) const;
  bool fits(const std::vector<int> &choices) const;
  /// Bytes used above the rows' base by a choice for each alive variable.
  std::vector<Wide> rowUse(const std::vector<int> &choices) const;

private:
  bool reduceAll(bool dominance);
  /// Looks at the clock only now and then.
  bool expired() { return limit && ++ticks % 16 == 0 && limit->exhausted(work); }
  /// Runs `compute` or takes what it gave for an equal key.
  template <typename Fn>
  const Memo::Result &remember(Memo::Key &&key, const std::vector<Table> &inputs,
                               Fn compute) {
    if (!memo)
      return scratch = compute();
    if (const Memo::Result *known = memo->find(key))
      return *known;
    return memo->put(std::move(key), compute(), inputs);
  }
  std::vector<size_t> bindingRows();
  void dropRepeated(std::vector<size_t> &kept);
  void keepRows(const std::vector<size_t> &kept);
  bool reviseEdge(int edge, int var, bool &changed);
  bool compact();
  bool normalizeMembers(int var);
  bool pruneMemory(std::vector<int> &changed);
  bool mergeFunctional();
  bool functionOf(int edge, int var, std::vector<uint32_t> &map);
  Memo::Result findFunction(int edge, int var) const;
  bool worthContracting(int into, int var) const;
  void contract(int into, int var, int edge, std::vector<uint32_t> map);
  Memo::Result eliminationTable(int var, int ea, int eb) const;
  bool eliminate();
  bool eliminateOne(int var);
  bool dominate();
  bool dominateOne(int var);
  std::vector<uint32_t> dominated(int var);
  std::vector<int> cheapestPartners(int var) const;
  std::vector<uint64_t> forbiddenSamples(int var) const;
  bool dominates(int var, int better, int worse) const;

  /// Only during reduce.
  Memo *memo = nullptr;
  Memo::Result scratch;
  std::vector<int> partners;
  unsigned ticks = 0;
  /// All false between calls of propagate.
  std::vector<bool> queued;
};

/// Pairs of variables that take equal choices.
using Ties = std::vector<std::pair<uint32_t, uint32_t>>;

/// The core of a problem that passed `check`.
struct Root {
  /// A variable behind the problem's own, whose choice follows from those of two others:
  /// columns · rowOf[first] + columnOf[second].
  struct Pair {
    uint32_t first, second;
    std::vector<size_t> rowOf, columnOf;
    size_t columns;
  };

  Core core;
  /// Set when no answer exists for a reason that can be told.
  std::string infeasible;
  /// The problem's variables are the core's first ones; these are the others.
  std::vector<Pair> pairs;

  /// An answer of the problem as one of the core, before anything is reduced.
  std::vector<int> complete(const std::vector<uint32_t> &choices) const;
};
/// The problem without its classes, with these variables equal.
Root buildCore(const Problem &problem, const Ties &ties);

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_CORE_H
