//===- PlanReport.h - What a search has found, as a page --------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_PLANREPORT_H
#define PARTITA_PASSES_PIPELINES_PLANREPORT_H

#include "passes/Pipelines/PlanText.h"

namespace partita {

/// One self-contained HTML page about the story's best plan; `timing` is of its program
/// and mesh.
std::string planReport(const PlanStory &story, search::Timing &timing,
                       const std::string &model);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_PLANREPORT_H
