//===- CompileStages.h - From a model file to a pipeline --------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_COMPILESTAGES_H
#define PARTITA_PASSES_PIPELINES_COMPILESTAGES_H

#include "passes/Pipelines/Compiler.h"
#include "passes/Stage/Stages.h"

namespace partita {

/// Whether options, hints or a plan ask for stages; an error where a training step is to
/// be cut.
Expected<bool> wantsStages(const Request &request);

/// Compiler of an entry that is a pipeline (docs/stages.md).
std::unique_ptr<EntryCompiler> stageCompiler(const Job &job);

/// The stages of a pipeline that infers, each as the program of one rank of its mesh
/// (L3). Modules are of the job's sources, which live longer.
struct PartitionedStages {
  SplitProgram program;
  StageOrder order;
  std::vector<std::vector<int64_t>> ranks; ///< of the pipeline, by stage
  std::set<std::string> sliced; ///< inputs and outputs with a slice per micro-batch
  std::vector<std::string> inputs, outputs; ///< in the model's order
  WeightTable weights;
};
Expected<PartitionedStages> partitionStages(const Job &job);

/// A training step of several stages as its ranks run it (L4). The module is of the job's
/// sources, which live longer.
struct ScheduledStep {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::vector<std::string> inputs, outputs; ///< in the step's order
  WeightTable weights;
};
Expected<ScheduledStep> scheduleStep(const Job &job);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_COMPILESTAGES_H
