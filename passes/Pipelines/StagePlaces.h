//===- StagePlaces.h - The groups of ranks of a pipeline --------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_STAGEPLACES_H
#define PARTITA_PASSES_PIPELINES_STAGEPLACES_H

#include "partita/Rule/Decide/Hints.h"
#include "passes/Pipelines/StageMachine.h"

#include <map>
#include <string>

namespace partita {

/// Places of the stages of an entry, as its request, hints, plan or an earlier entry say.
class StagePlaces {
public:
  /// Both outlive the places. A plan may change what the request says of its cut.
  StagePlaces(Request &request, const Hints &hints);

  /// Takes stages, groups of ranks, meshes and order of a plan. An error names what the
  /// request says otherwise.
  Expected<void> follow(const std::string &file, const PlanEntry &plan);

  /// Finds the group of ranks of each of so many stages, and the mesh of each group. An
  /// error says what of the request or the hints does not fit.
  Expected<void> place(int64_t stages);

  /// Takes the places that a training step has its stages in. One micro-batch goes
  /// through them.
  void besideStep(const Feedback &step);

  StageMachine devices() const { return {request.machine, order, meshes}; }

  /// Stages that are asked for before any is placed; 0: none.
  int32_t wanted() const;

  /// Meshes: a single one for all groups of ranks, or by group.
  std::vector<Mesh> meshes;
  StageOrder order;
  std::map<std::string, int32_t> planned; ///< by node, of a plan that is followed

private:
  /// Compares the order that a plan has with what the request says, which gets it.
  Expected<void> followOrder(const std::string &file, const PlanEntry &plan);
  Expected<void> followMeshes(const std::string &file, const PlanEntry &plan);
  Expected<void> checkOrder(int64_t stages) const;

  Request &request;
  const Hints &hints;
};

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_STAGEPLACES_H
