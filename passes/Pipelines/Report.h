//===- Report.h - A plan for a person to read -------------------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_REPORT_H
#define PARTITA_PASSES_PIPELINES_REPORT_H

#include "partita/Base/Error.h"

#include <string>

namespace partita {

/// Text for a bundle folder or a plan.json: model, mesh, notes, layouts of inputs and
/// outputs, strategies by how often they occur, collectives with their nodes, memory.
/// `entry`: of several (empty: the first). `inFull`: each collective of equal layers on a
/// line of its own.
Expected<std::string> reportText(const std::string &path, const std::string &entry,
                                 bool inFull);

/// The same as a JSON document, in full.
Expected<std::string> reportJson(const std::string &path, const std::string &entry);

/// The trace of a run. Of a training step of several stages it stands beside the schedule
/// (StepTrace.h), of other programs it says what calls take, and what a request would
/// take if each took so many seconds at least (CallTrace.h). An error: a pipeline is to
/// have such calls.
Expected<std::string> reportTrace(const std::string &path, const std::string &entry,
                                  const std::string &trace, double least);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_REPORT_H
