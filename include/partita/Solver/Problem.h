//===- Problem.h - Pairwise choice problems under a memory limit -*- C++ -*-===//
//
// The whole search for a sharding comes down to one kind of problem. Every *variable*
// (the strategy of an op, or the layout in which a value with several readers is kept)
// takes exactly one of its *choices*. A choice has a cost; a pair of choices of two
// variables joined by an *edge* has a cost (the reshard between them), which may be
// `forbidden`. And choices use memory: a choice occupies bytes over a half-open interval
// of time steps, and at no time step may the bytes of all choices (and of pairs: reshard
// buffers) add up to more than the limit. The sum of costs is to be minimal.
//
// Nothing here knows about models, meshes or layouts. Costs are integers in whatever
// unit the caller likes; a solver's answer comes with a lower bound in the same unit,
// and `verify` prices the answer from the problem alone, sharing no code with any
// solver. Sums are 128 bits wide, so no problem that passes `check` can overflow.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SOLVER_PROBLEM_H
#define PARTITA_SOLVER_PROBLEM_H

#include "partita/Base/Error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace partita::solver {

/// Sums of costs and of bytes.
using Wide = __int128;

/// The cost of a choice or pair that must not be taken; all other costs are below it.
inline constexpr int64_t forbidden = 1'000'000'000'000'000'000;
/// The largest byte count and memory limit.
inline constexpr int64_t maxBytes = 1'000'000'000'000'000'000;
/// The largest time step.
inline constexpr int64_t maxTime = 1'000'000'000'000;

/// Bytes in use during the time steps begin ≤ t < end: one entry per choice of a
/// variable, or one per pair of an edge (row-major like the edge's costs).
struct Usage {
  int64_t begin = 0, end = 0;
  std::vector<int64_t> bytes;
};

struct Variable {
  /// One cost per choice, 0 … forbidden.
  std::vector<int64_t> costs;
  std::vector<Usage> usages;
};

/// Costs of the pairs of choices of two different variables. Several edges may join the
/// same two variables; their costs add up.
struct Edge {
  uint32_t first = 0, second = 0;
  /// costs[a * choices(second) + b], 0 … forbidden.
  std::vector<int64_t> costs;
  std::vector<Usage> usages;
};

struct Problem {
  std::vector<Variable> variables;
  std::vector<Edge> edges;
  /// Variables of one class take the same choice (copies of a layer that are planned as
  /// one). They must have equally many choices. A variable is in at most one class.
  std::vector<std::vector<uint32_t>> classes;
  /// Absent: memory is unlimited.
  std::optional<int64_t> memoryLimit;
};

/// An error naming the first variable, edge, class or number that breaks the contracts
/// above; nothing otherwise.
Expected<void> check(const Problem &problem);

/// What `verify` found out about an answer.
struct Price {
  Wide cost = 0;
  /// The largest sum of bytes over all time steps, and the first step where it occurs.
  Wide peakBytes = 0;
  int64_t peakTime = 0;
};

/// Prices `choices` (one per variable) from the problem alone. An error, naming the
/// place, if the answer has the wrong size, takes a forbidden choice or pair, splits a
/// class or exceeds the memory limit. The problem must pass `check`.
Expected<Price> verify(const Problem &problem, const std::vector<uint32_t> &choices);

/// Decimal text of a wide integer.
std::string toString(Wide value);

} // namespace partita::solver

#endif // PARTITA_SOLVER_PROBLEM_H
