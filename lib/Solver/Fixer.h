//===- Fixer.h - Fixing variables one by one --------------------*- C++ -*-===//
#ifndef PARTITA_LIB_SOLVER_FIXER_H
#define PARTITA_LIB_SOLVER_FIXER_H

#include "Core.h"

#include <vector>

namespace partita::solver {

/// Fixes variables one by one, taking back what leaves a variable without choices or a
/// row without room.
class Fixer {
public:
  explicit Fixer(Core &core) : core(core), room(core.slack), least(core.vars.size()) {
    for (size_t v = 0; v < core.vars.size(); ++v)
      if (core.vars[v].alive)
        least[v].assign(core.vars[v].members.size(), 0);
  }
  /// False, and nothing changed, when the choice cannot be taken.
  bool fix(int var, int choice);
  /// The least that is left in the rows begin ≤ r < end when all take their least.
  int64_t roomIn(int begin, int end) const;
  /// The rows that had no room for what the last `fix` refused; some more than once.
  const std::vector<int> &withoutRoom() const { return overflown; }
  /// What a variable's member is charged with so far.
  int64_t charged(int var, size_t member) const { return least[var][member]; }

private:
  bool charge(int var);

  struct Charge {
    int var, member;
    int64_t bytes;
  };
  Core &core;
  std::vector<int64_t> room;
  /// What each member needs at least, as far as it is taken off the rows.
  std::vector<std::vector<int64_t>> least;
  std::vector<Charge> charges;
  std::vector<int> overflown;
};

} // namespace partita::solver

#endif // PARTITA_LIB_SOLVER_FIXER_H
