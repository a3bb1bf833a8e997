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

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
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

/// Row-major costs of pairs of choices, or bytes. Copies share the numbers until one of
/// them is changed, so the equal layers of a model cost one table. The solver works on
/// shared tables once: a caller that builds equal tables should copy the first.
class CostTable {
public:
  CostTable() = default;
  CostTable(std::vector<int64_t> costs)
      : shared(std::make_shared<std::vector<int64_t>>(std::move(costs))) {}
  CostTable(std::initializer_list<int64_t> costs)
      : CostTable(std::vector<int64_t>(costs)) {}

  size_t size() const { return shared ? shared->size() : 0; }
  bool empty() const { return size() == 0; }
  int64_t operator[](size_t i) const { return (*shared)[i]; }
  const int64_t *begin() const { return shared ? shared->data() : nullptr; }
  const int64_t *end() const { return begin() + size(); }
  /// Equal for tables that share their numbers; null for an empty one.
  const void *id() const { return shared.get(); }

  friend bool operator==(const CostTable &a, const CostTable &b) {
    return a.id() == b.id() || std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  void push_back(int64_t cost) { edit().push_back(cost); }
  void reserve(size_t count) { edit().reserve(count); }
  /// The numbers, to be changed for this table alone.
  std::vector<int64_t> &edit() {
    if (!shared)
      shared = std::make_shared<std::vector<int64_t>>();
    else if (shared.use_count() > 1)
      shared = std::make_shared<std::vector<int64_t>>(*shared);
    return *shared;
  }

private:
  std::shared_ptr<std::vector<int64_t>> shared;
};

/// Bytes in use during the time steps begin ≤ t < end: one entry per choice of a
/// variable, or one per pair of an edge (row-major like the edge's costs).
/// Equal layers share the numbers, as they share costs.
struct Usage {
  int64_t begin = 0, end = 0;
  CostTable bytes;
};

struct Variable {
  /// One cost per choice, 0 … forbidden.
  std::vector<int64_t> costs;
  std::vector<Usage> usages;
};

/// Gives equal tables out as copies of one.
class TablePool {
public:
  /// Leaves `costs` alone, to be used again, where an equal table is known.
  CostTable add(std::vector<int64_t> &&costs);

private:
  std::unordered_map<uint64_t, std::vector<CostTable>> known;
};

/// Costs of the pairs of choices of two different variables. Several edges may join the
/// same two variables; their costs add up.
struct Edge {
  uint32_t first = 0, second = 0;
  /// costs[a * choices(second) + b], 0 … forbidden.
  CostTable costs;
  std::vector<Usage> usages;
};

/// Copies of one layer that are planned together, in the order in which they follow each
/// other. The copies fall into at most `runs` runs of consecutive ones; inside a run all
/// copies take the same choices, position by position. One run ties all copies; as many
/// runs as copies tie none.
struct Class {
  /// Per copy its variables: equally many in each, with equally many choices at equal
  /// positions. A variable is in at most one copy of one class.
  std::vector<std::vector<uint32_t>> copies;
  uint32_t runs = 1;
};

struct Problem {
  std::vector<Variable> variables;
  std::vector<Edge> edges;
  std::vector<Class> classes;
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
/// place, if the answer has the wrong size, takes a forbidden choice or pair, exceeds the
/// memory limit or splits a class into more runs than it may have. The problem must pass
/// `check`.
Expected<Price> verify(const Problem &problem, const std::vector<uint32_t> &choices);

/// As `verify`, but whatever the classes say.
Expected<Price> verifyWithoutClasses(const Problem &problem,
                                     const std::vector<uint32_t> &choices);

/// As `verify`, but whatever the classes and the memory limit say.
Expected<Price> priceOf(const Problem &problem, const std::vector<uint32_t> &choices);

/// Decimal text of a wide integer.
std::string toString(Wide value);

} // namespace partita::solver

#endif // PARTITA_SOLVER_PROBLEM_H
