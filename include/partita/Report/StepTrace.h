//===- StepTrace.h - A pipeline's step as it was run ------------*- C++ -*-===//
#ifndef PARTITA_REPORT_STEPTRACE_H
#define PARTITA_REPORT_STEPTRACE_H

#include "partita/Base/Bundle/Plan.h"
#include "partita/Comm/StepOrder.h"

namespace partita::report {

/// The last request of a trace (RunReport.h) beside the schedule of its plan: by group of
/// ranks the seconds of forward, backward and weight parts and of what runs once, its
/// idle share, and the idle share of the schedule if each part takes what it took on
/// average; then who ran what when, in 40 cells. Of a group its slowest rank counts. An
/// error: the file is no trace, or has no segments of a step with these stages.
Expected<std::string> stepTraceText(const PlanEntry &plan, const PipelineStep &step,
                                    const std::string &file);

} // namespace partita::report

#endif // PARTITA_REPORT_STEPTRACE_H
