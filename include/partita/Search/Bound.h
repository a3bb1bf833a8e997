//===- Bound.h - A time that no plan is below -------------------*- C++ -*-===//
//
// A bound is a time and what it holds for. `within` limits the plans that it speaks of:
// others may be faster. `ignores` says what was left out of account: the bound still
// holds for these plans, but it is lower than it could be.
//
//     of several nodes      the least time; both lists united
//     two of one node       the larger time with what it ignores; `within` united
//
// A node that is left out keeps its bound. Plans that would have been searched there, and
// that the bound does not speak of, are then told by its `within`.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_BOUND_H
#define PARTITA_SEARCH_BOUND_H

#include "partita/Search/Timing.h"

#include <string>
#include <vector>

namespace partita::search {

struct Bound {
  enum Space : unsigned {
    EqualLayersAlike = 1, ///< SearchOptions::tieLayers
    WholeAxes = 2,        ///< a mesh axis is split as a whole, or not at all
    FewCopies = 4,        ///< a value has at most two further forms
    CountedBytes = 8,     ///< plans fit by Rows::Most
    SameRecompute = 16,   ///< a step computes again what the program says
    SameMicroBatches = 32,
    OneMesh = 64, ///< though others could be taken
  };
  enum Relaxation : unsigned {
    Memory = 1,
    PartOfRecompute = 2, ///< as RecomputeBound.h has it
  };

  Picos time = 0;
  unsigned within = 0, ignores = 0; ///< of Space, of Relaxation
};

/// Bound of the plans that either speaks of.
Bound leastOf(const Bound &a, const Bound &b);
/// Bound of the plans that both speak of.
Bound largerOf(const Bound &a, const Bound &b);

/// "plan equal layers alike", …: what plans do that a bound speaks of.
std::vector<std::string> withinTexts(const Bound &bound);
/// "the memory limit", …: what a bound leaves out of account.
std::vector<std::string> ignoresTexts(const Bound &bound);
/// Inverse of both; other texts are left out.
Bound boundOf(Picos time, const std::vector<std::string> &within,
              const std::vector<std::string> &ignores);

} // namespace partita::search

#endif // PARTITA_SEARCH_BOUND_H
