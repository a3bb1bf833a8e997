//===- Compare.h - Plans that people write, and what ours costs -*- C++ -*-===//
//
// The usual ways to spread a model, priced in the same cost model as a search's plan: so
// that one sees what the search has gained, and that it has not lost.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_COMPARE_H
#define PARTITA_SEARCH_COMPARE_H

#include "partita/Rule/Decide/OptimizerParallel.h"
#include "partita/Search/Memory.h"
#include "partita/Search/Search.h"

namespace partita::search {

struct KnownPlan {
  std::string name;
  Picos time = 0;
  int64_t memory = 0;
  /// On the graph as it was given; absent where hints cut dims that it does not cut.
  std::optional<Decided> plan = std::nullopt;
};

/// Data-parallel: batches over all axes. Fully sharded: the same, but every weight that
/// one op reads is kept in as many parts as there are devices, and gathered before.
/// Megatron and megatron-sp: the ready rules of these names (ReadyRules.h), with batches
/// over the axes that they leave and the head's columns split too where that is faster;
/// missing where the model has no such blocks.
///
/// Of a training step with these parameters: in place of fully sharded zero-1, zero-2
/// (where gradients are accumulated) and zero-3, which are data-parallel with a level of
/// optimizer_parallel over all ranks (OptimizerParallel.h); at the third a weight is
/// gathered for the forward and again for the backward pass. And both megatrons with
/// zero-1 over the ranks that hold the same, as Megatron's distributed optimizer.
std::vector<KnownPlan> knownPlans(FlowGraph &graph, const Placement &placement,
                                  const std::vector<ParameterOps> &parameters = {});

/// What a search found, or a known plan that is faster and fits, under the same bound. A
/// search that was not proved to be the best may have missed it, and may give up before
/// it finds any plan that fits. Where pins ask for something, nothing changes.
tl::expected<Found, NotFound> orKnown(tl::expected<Found, NotFound> found,
                                      const FlowGraph &graph, const Placement &placement,
                                      const std::vector<ParameterOps> &parameters,
                                      const SearchOptions &options);
/// The same, where the known plans are there.
tl::expected<Found, NotFound> orKnown(tl::expected<Found, NotFound> found,
                                      const FlowGraph &graph, const Placement &placement,
                                      const std::vector<KnownPlan> &known,
                                      const SearchOptions &options);

/// A conversion of a plan.
struct Reshard {
  std::string value, node;            ///< a value, and who makes it
  std::string from, to;               ///< Layout::str
  int32_t fromForm = -1, toForm = -1; ///< of the timing
  int32_t number = -1;                ///< of the value
  Picos time = 0;
  int64_t receivedBytes = 0;
  int64_t lowerBoundBytes = 0; ///< see ReshardPlan; 0 for window buffers
  int64_t copies = 1;          ///< equal conversions of other values, in equal layers
};

/// The conversions that take longest in all, equal ones counted together, at most
/// `count`; of one value alone if `only` is its number.
std::vector<Reshard> costliestReshards(Timing &timing, const Decided &plan, size_t count,
                                       int32_t only = -1);

/// The best plan that does not make a conversion, neither of this value nor of others.
struct RunnerUp {
  Picos time = 0;
  Picos lowerBound = 0;
  /// How the value is converted there, "from … to …", if it is.
  std::vector<std::string> instead;
};
/// One per conversion, nothing where there is no such plan or none was found in a second.
/// `reshards` and `model` (modelOf) are of `timing`, the program the one that was
/// searched with `options`.
std::vector<std::optional<RunnerUp>> runnersUp(Timing &timing, const Model &model,
                                               const SearchOptions &options,
                                               const std::vector<Reshard> &reshards);

} // namespace partita::search

#endif // PARTITA_SEARCH_COMPARE_H
