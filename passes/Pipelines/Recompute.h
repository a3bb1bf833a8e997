//===- Recompute.h - Forms of a training step that is compiled --*- C++ -*-===//
//
// Search/StepFitter.h for a compile: a form is planned, compiled down to L4 and measured,
// so that its arena decides.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_PIPELINES_RECOMPUTE_H
#define PARTITA_PASSES_PIPELINES_RECOMPUTE_H

#include "partita/Search/StepFitter.h"
#include "passes/Pipelines/Compiler.h"

namespace partita {

/// What a plan that is followed computes again, and its number of micro-batches.
void takeChoices(Job &job);

/// Whether a training step's specification leaves open what is computed again.
bool choosesRecompute(const Job &job);

/// Whether a step of one program is asked for under a limit, whose specification leaves
/// open what is computed again, or the number of micro-batches.
bool choosesStep(const Job &job);

/// With a memory limit: adds to the feedback what must be computed again and the number
/// of micro-batches so that the program fits, if anything, and says so in a note. An
/// error says what is needed, what there is, and what takes most.
Expected<void> chooseStep(Job &job, std::vector<std::string> &notes);

/// Says in a plan's words what is computed again; absent: nothing is.
std::optional<PlanRecompute> planRecompute(const search::RecomputeChoice &choice);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_RECOMPUTE_H
