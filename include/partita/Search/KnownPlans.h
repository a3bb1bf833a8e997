//===- KnownPlans.h - Plans that people write -------------------*- C++ -*-===//
//
// The usual ways to spread a model, priced in the cost model of a search: the search
// begins from them, and people see what it has gained.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_SEARCH_KNOWNPLANS_H
#define PARTITA_SEARCH_KNOWNPLANS_H

#include "partita/Rule/Decide/OptimizerParallel.h"
#include "partita/Search/Model.h"

#include <string>

namespace partita::search {

struct KnownPlan {
  std::string name; ///< of several with one name one is over each axis
  Picos time = 0;
  int64_t memory = 0;
  /// On the graph as it was given; absent where hints cut dims that it does not cut.
  std::optional<Decided> plan = std::nullopt;
  std::string mesh = {};  ///< Mesh::str
  bool isOfBatch = false; ///< the same on every mesh of as many devices
};

/// Data-parallel: batches over all axes. Fully sharded: the same, but every weight that
/// one op reads is kept in as many parts as there are devices, and gathered before.
/// Megatron, megatron-sp and megatron-ep: the ready rules of these names (ReadyRules.h),
/// over each axis, with batches over the axes that they leave and the head's columns
/// split too where that can be; missing where the model has no such blocks or no
/// experts.
///
/// A training step with these parameters has, in place of fully sharded, zero-1, zero-2
/// (where gradients are accumulated) and zero-3, which are data-parallel with a level of
/// optimizer_parallel over all ranks (OptimizerParallel.h); at the third a weight is
/// gathered for the forward and again for the backward pass. And both megatrons with
/// zero-1 over the ranks that hold the same, as Megatron's distributed optimizer.
std::vector<KnownPlan> knownPlans(const FlowGraph &graph, const Placement &placement,
                                  const std::vector<ParameterOps> &parameters = {});

/// A program on one of several meshes of as many devices.
struct MeshProgram {
  Picos lowerBound = 0; ///< of its plans that fit
  const FlowGraph &graph;
  const Placement &placement;
  const std::vector<ParameterOps> &parameters;
};
/// The known plans of a program on the meshes that suit them: of those with one name the
/// fastest that fits, if one does, else the fastest. Among equals the first mesh's;
/// `first` are those, if they are known.
std::vector<KnownPlan> knownPlans(const std::vector<MeshProgram> &meshes,
                                  std::optional<int64_t> memoryLimit,
                                  const std::vector<KnownPlan> *first);

} // namespace partita::search

#endif // PARTITA_SEARCH_KNOWNPLANS_H
