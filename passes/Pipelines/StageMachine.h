//===- StageMachine.h - Where stages lie, and what they cost there -*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_STAGEMACHINE_H
#define PARTITA_PASSES_PIPELINES_STAGEMACHINE_H

#include "partita/Base/Bundle/StageOrder.h"
#include "partita/Search/StepCut.h"
#include "passes/Pipelines/Request.h"

#include "mlir/IR/BuiltinOps.h"

namespace partita {

/// The groups of ranks of a pipeline on a machine. Ranks are numbered group by group.
struct StageMachine {
  const Machine &machine;
  const StageOrder &order;
  const std::vector<Mesh> &meshes; ///< one for all groups, or by group

  const Mesh &meshOf(int64_t group) const {
    return meshes.size() == 1 ? meshes[0] : meshes[static_cast<size_t>(group)];
  }
  std::vector<int64_t> ranksOf(int64_t group) const;

  /// Seconds of every op on one device of the cluster or of this host, and the slowest
  /// link between groups that are neighbours. An error: the groups have not as many ranks
  /// as the cluster has devices.
  Expected<search::StageCost> costOf(const FlowGraph &graph) const;

  struct CutStep {
    std::vector<int32_t> stages; ///< by op of the forward graph
    search::StageCost cost;      ///< per micro-batch
    std::string note;            ///< says that none fits; else empty
  };
  /// The cut of a training step in this order of its parts. The stage of an op of the
  /// step says by its number in `forward` which op it is, or is a gradient or update of.
  /// `sharesStates` as in search::StepMemory.
  Expected<CutStep> cut(mlir::ModuleOp step, const FlowGraph &forward,
                        const PipelineStep &order, bool sharesStates) const;

  /// Says of each stage what it begins with, its work, and what it passes on.
  std::vector<std::string> notesOf(const FlowGraph &graph, const search::StageCost &cost,
                                   const std::vector<int32_t> &stages) const;

private:
  Expected<double> slowestLink(const Topology &all) const;
  /// Seconds and bytes that each op of the forward pass takes in a training step.
  Expected<search::StepWork> workOf(mlir::ModuleOp step, const FlowGraph &forward) const;
};

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_STAGEMACHINE_H
