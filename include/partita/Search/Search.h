//===- Search.h - The fastest plan, with a certificate ----------*- C++ -*-===//
//
// See docs/search.md: the space, the problem, and why what is priced is what is emitted.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_SEARCH_H
#define PARTITA_SEARCH_SEARCH_H

#include "partita/Base/Stop.h"
#include "partita/Search/Bound.h"
#include "partita/Search/KnownPlans.h"
#include "partita/Search/Memory.h"
#include "partita/Search/Model.h"

#include <functional>

namespace partita::search {

struct SearchOptions {
  std::optional<int64_t> memoryLimit; ///< bytes of one device; absent: none
  Pins pins;                          ///< of `search`; candidates have their own
  ModelOptions model;    ///< limits of the space; its memory limit and pins are not read
  double timeLimit = 20; ///< seconds of solving
  /// Instead of it, so that the answer is the same on every machine: see SolveOptions.
  std::optional<int64_t> workLimit;
  int threads = 1;
  StopFlag stop; ///< raised: no plan is wanted any more
  /// Raised: the best plan of those found is wanted, and if there is none the first.
  StopFlag enough = {};
  /// Hears a line about each candidate that is bounded, solved or left out.
  std::function<void(const std::string &)> log = {};
  /// Layers that are copies of each other are planned alike: the bound then is of plans
  /// that do so.
  bool tieLayers = true;
};

struct Found {
  Decided plan;
  PlanCost cost;
  Bound bound;
  Bound freeBound; ///< with any memory
  /// Whether plans were left out because they need too much memory.
  bool isLimitFelt = false;
  /// True if no plan is faster, of those that the bound speaks of. A known plan may be
  /// none of them, and faster than all.
  bool proved = false;
  MemoryUse memory;
  double buildSeconds = 0, solveSeconds = 0;
  size_t variables = 0, edges = 0, tiedLayers = 0;
  /// Plans that the search began from; absent where it ended without them.
  std::shared_ptr<const std::vector<KnownPlan>> known;
  /// (total − bound) / total; 0 where the plan is faster than the bound.
  double gap() const;
};

/// The model that is searched, of the timing's program, with the limits and pins of
/// `options` and layers tied, if they are to be. `tiedLayers`: how many are. An error if
/// pins leave an op no strategy.
Expected<Model> modelOf(Timing &timing, const SearchOptions &options,
                        Rows rows = Rows::Most, size_t *tiedLayers = nullptr);

/// Plans that a search of the program speaks of (Bound::Space), without a limit.
unsigned spaceOf(const FlowGraph &graph, size_t tiedLayers);

/// Why there is no plan.
struct NotFound {
  std::string message;
  /// Whether there is none; else none was found in time, and one takes at least this.
  bool proved = true;
  Bound bound = {};
  /// Whether there may be plans, none of them faster than the best on another mesh.
  bool isSlower = false;
  /// With a memory limit that no plan meets: what the plan of least memory needs.
  std::optional<MemoryUse> least = std::nullopt;
  /// Bound with any memory, as Found has it; 0 where the problem without memory was not
  /// solved.
  Bound freeBound = {};
};

/// The graph is finalized; the parameters are those of a training step.
tl::expected<Found, NotFound> search(const FlowGraph &graph, const Placement &placement,
                                     const SearchOptions &options,
                                     std::vector<ParameterOps> parameters = {});

/// One of the meshes that may be taken.
struct Candidate {
  const FlowGraph &graph; ///< finalized
  const Placement &placement;
  Pins pins;
  std::vector<ParameterOps> parameters = {}; ///< of a training step
};

/// Searches for the fastest of all plans, one result per candidate. Every candidate is
/// solved without memory first; then, from the least of those bounds on, in full, but for
/// plans slower than the best so far. Where that is no proof and nothing is pinned, the
/// search begins from the plans that people write. Of equally fast plans the first
/// candidate's is found in any case. Threads look at different candidates; each has the
/// time limit for itself.
std::vector<tl::expected<Found, NotFound>>
searchAll(const std::vector<Candidate> &candidates, const SearchOptions &options);

} // namespace partita::search

#endif // PARTITA_SEARCH_SEARCH_H
