//===- Recompute.h - What the backward pass computes again ------*- C++ -*-===//
//
// The forward pass of a training step is a row of units, ops that are repeated together
// or not at all (those of one node). Each is kept, with all that the backward pass reads
// of it, or it is in a *stretch* of neighbours that the backward pass computes again:
// then only what later units read of the stretch is kept. A stretch takes the time of
// what is repeated. Memory is that of the step without recompute, in which what is not
// kept is missing, so of every unit, while its backward ops run:
//
//     kept by all units before its stretch + alive in the stretch and behind it ≤ limit
//
// Units that are one behind the other (each value is read by the next) are priced
// exactly. Where values skip units the sums are an upper bound: a value that two
// stretches read counts twice.
//
// The cheapest way that fits is the shortest path over the units, with one more number,
// the bytes kept so far, of which no way that takes more time with no fewer bytes goes on
// (Beaumont et al., "Optimal checkpointing for heterogeneous chains", 2019, without
// nested stretches).
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_RECOMPUTE_H
#define PARTITA_SEARCH_RECOMPUTE_H

#include "partita/Search/Memory.h"

#include <string>
#include <vector>

namespace partita::search {

/// Units `begin` to `end` − 1, kept or computed again.
struct Stretch {
  int32_t begin = 0, end = 0;
  bool repeats = false;
  int64_t kept = 0; ///< bytes, up to the backward pass of the stretch
  int64_t peak = 0; ///< most bytes beside what units before it keep
  Picos time = 0;   ///< of what is repeated
};

/// Ways from unit 0 to unit `units`.
struct StretchProblem {
  int32_t units = 0;
  std::vector<Stretch> stretches;
};

struct StretchChoice {
  std::vector<Stretch> stretches; ///< in order
  Picos time = 0;
  int64_t kept = 0, peak = 0; ///< bytes
  /// No way of the problem that fits takes less; else too many were open at once.
  bool proved = true;
};

/// The fastest way whose peak is at most `limit`; absent: there is none.
std::optional<StretchChoice> cheapestWay(const StretchProblem &problem, int64_t limit);
/// The least peak of any way.
int64_t leastPeak(const StretchProblem &problem);

/// What the backward pass of a step computes again.
struct RecomputeChoice {
  /// By stretch the names of its nodes, in the order of the program.
  std::vector<std::vector<std::string>> nodes;
  /// Whether what they make is computed again whatever reads it (train::Recompute).
  bool exactly = false;
  Picos time = 0;               ///< per step
  int64_t peak = 0, before = 0; ///< bytes expected with it and without
  int64_t least = 0;            ///< that any choice needs, if that is known
  bool proved = false;          ///< see StretchChoice
};

/// Stretches of a training step without recompute, under a decided plan: between values
/// through which all goes (the residual stream), any number of such parts; within a part
/// any neighbours.
class RecomputeSpace {
public:
  RecomputeSpace(Timing &timing, const Decided &plan);

  /// Absent if no choice fits; `least` says what would.
  std::optional<RecomputeChoice> choose(int64_t limit) const;
  int64_t least() const { return leastPeak(problem); }
  /// Bytes without recompute, up to the last gradient.
  int64_t before() const { return peakBefore; }

private:
  std::vector<std::vector<std::string>> names; ///< by unit
  StretchProblem problem;
  int64_t peakBefore = 0;
};

} // namespace partita::search

#endif // PARTITA_SEARCH_RECOMPUTE_H
