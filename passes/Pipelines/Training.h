//===- Training.h - How a model is imported to train ------------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_TRAINING_H
#define PARTITA_PASSES_PIPELINES_TRAINING_H

#include "partita/Base/Bundle/Bundle.h"
#include "partita/Train/Spec.h"
#include "passes/Import/Import.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

namespace partita {

/// Reads what a specification says of a model's initializers, for its step or for the
/// entry that evaluates. An error names a pattern that matches none of them.
Expected<TrainingImport> trainingImport(const train::Spec &spec,
                                        const onnx_model::Model &model, bool evaluates);

/// Makes every Dropout of a model pass on what it gets, as where it is evaluated.
void dropNothing(onnx_model::Model &model);

/// The flags among the outputs of a step that partita-train has derived.
StepFlags flagsOf(mlir::FunctionOpInterface step);

/// Gives initializers of a training step of the file the values that its initialization
/// makes, by the reference evaluator.
Expected<void> initialize(mlir::MLIRContext *context, onnx_model::Model &model);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_TRAINING_H
