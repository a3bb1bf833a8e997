//===- ReadStages.h - A pipeline from the files of its ranks ----*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_READSTAGES_H
#define PARTITA_PASSES_PIPELINES_READSTAGES_H

#include "partita/Onnx/MergeStages.h"
#include "passes/Pipelines/Compiler.h"
#include "passes/Stage/Stages.h"

#include <set>
#include <string>
#include <vector>

namespace partita {

/// Ends of the whole model, as the files of a pipeline say them.
struct StagedEnds {
  int64_t microBatches = 1;
  std::vector<std::string> inputs, outputs; ///< in the model's order
  std::set<std::string> sliced;             ///< that have a slice per micro-batch
};

/// Ends of the stages together. Files that do not say a number of micro-batches have the
/// one that is asked for, and all their inputs and outputs have the batch. An error names
/// an output that two stages give or none does, an input of two types, an output that has
/// no slice for each of several micro-batches, or numbers that differ.
Expected<StagedEnds> endsOf(const onnx_model::StagedModels &models, int64_t asked);

/// Imports a stage into `product`, its weights beside those of earlier stages.
Expected<void> importStage(Compiler &product, const onnx_model::Model &model,
                           const Mesh &mesh);

/// An error if an input or output that has a slice for each micro-batch has no dims.
Expected<void> checkSliced(const std::set<std::string> &sliced,
                           const std::vector<mlir::OwningOpRef<mlir::ModuleOp>> &stages);

/// The crossings of stages that are imported; an error where a stage receives another
/// type than is sent.
Expected<std::vector<StageCrossing>>
crossingsOf(const onnx_model::StagedModels &models,
            const std::vector<mlir::OwningOpRef<mlir::ModuleOp>> &stages);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_READSTAGES_H
