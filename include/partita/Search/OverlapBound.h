//===- OverlapBound.h - No plan is faster, whatever runs at once *- C++ -*-===//
//
// A lower bound of the time of any plan whose collectives are in flight while kernels
// run, as Simulate.h has it, in any order of its work. Let T_r be for how long a plan
// keeps resource r busy: the device, or the links of a level. For multipliers λ ≥ 0 of
// resources with Σ λ_r = 1, a plan takes at least Σ λ_r · T_r, as that is what of its
// work gets done while all resources work at full speed. So no plan takes less than
//
//     max over λ   min over plans   Σ λ_r · T_r
//
// and for given λ the inner problem is the pairwise one of docs/search.md with other
// costs: a solver's bound of it will do.
//
// Contention. While the device and links work, each does 1/f of its work in a second. So
// it is enough that λ_device ≤ 1, Σ λ_links ≤ 1, and λ_device + Σ λ_links ≤ f: extreme
// are a device of 1 beside links of f − 1, and the other way round. (For one kind of
// link that is the formula of Cost/Overlap.h.) f = 1 gives convex multipliers.
//
// Order. Multipliers need not be the same all the time: necks and sections (Necks.h)
// follow each other, so that the bound is a sum over them, each with its own multipliers.
// What is Alone counts with its whole time if what can be Anywhere counts as nothing.
// Else the latter counts f − 1 on the device and on one level, and a conversion that is
// Alone, but not on this level, 2 − f, because both can run at full speed.
//
// All extremes together, by level and with or without order, are bounds whose convex
// combinations are bounds. The best combination is looked for by cutting planes (Kelley
// 1960): every plan that a solver gives says of all combinations what they are worth at
// most, and the next one is the best by what is known.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_OVERLAPBOUND_H
#define PARTITA_SEARCH_OVERLAPBOUND_H

#include "partita/Search/Search.h"
#include "partita/Search/Simulate.h"

namespace partita::search {

struct OverlapOptions {
  std::optional<double> contention = {}; ///< taken as 1 to 2; absent: the device's
  int mostRounds = 8;                    ///< combinations of multipliers that are tried
  /// Work of the solver for each (SolveOptions::workLimit).
  int64_t workPerRound = 30'000;
};

/// No plan of the space takes less on this mesh, with any memory. Conversions are those
/// that take least alone. The same on every machine. `model` is of `timing`.
Expected<Picos> overlapBound(Timing &timing, const Model &model,
                             const OverlapOptions &options = {});

/// The fastest plan, were collectives in flight while kernels run.
struct Overlapped {
  std::optional<Decided> plan; ///< absent: none was found
  Picos time = 0;              ///< simulated
  /// No plan that fits by Rows::Most takes less, and neither does `plan`.
  Picos lowerBound = 0;
};
/// Of `known` plans, and of those that are best for each combination of multipliers under
/// the memory limit, the one with the least simulated time. Of the limits of `search`
/// each combination has an equal part.
Expected<Overlapped> planOverlapped(Timing &timing, const Model &model,
                                    const std::vector<Decided> &known,
                                    const SearchOptions &search,
                                    const OverlapOptions &options = {});

} // namespace partita::search

#endif // PARTITA_SEARCH_OVERLAPBOUND_H
