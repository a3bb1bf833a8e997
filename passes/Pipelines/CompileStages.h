//===- CompileStages.h - From a model file to a pipeline --------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_COMPILESTAGES_H
#define PARTITA_PASSES_PIPELINES_COMPILESTAGES_H

#include "passes/Pipelines/Compiler.h"

namespace partita {

/// Whether options, hints or a plan ask for stages; an error where a training step is to
/// be cut.
Expected<bool> wantsStages(const Request &request);

/// Compiler of an entry that is a pipeline (docs/stages.md).
std::unique_ptr<EntryCompiler> stageCompiler(const Job &job);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_COMPILESTAGES_H
