//===- CompileStages.h - From a model file to a pipeline --------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_COMPILESTAGES_H
#define PARTITA_PASSES_PIPELINES_COMPILESTAGES_H

#include "passes/Pipelines/Compiler.h"

namespace partita {

/// Whether options or hints ask for stages; an error where the hints cannot be read, or a
/// training step is to be cut.
Expected<bool> wantsStages(const CompileOptions &options);

/// compileModel for a pipeline, see docs/stages.md.
Expected<CompileReport> compileStages(const CompileOptions &options,
                                      const Progress &progress);
/// Of one entry of a bundle that is a pipeline.
std::unique_ptr<EntryCompiler> stageCompiler(const CompileOptions &options,
                                             Progress progress);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_COMPILESTAGES_H
