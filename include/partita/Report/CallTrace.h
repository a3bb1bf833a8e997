//===- CallTrace.h - Calls in flight as they were run -----------*- C++ -*-===//
#ifndef PARTITA_REPORT_CALLTRACE_H
#define PARTITA_REPORT_CALLTRACE_H

#include "partita/Base/Error.h"

#include <cstdint>
#include <string>

namespace partita::report {

/// The last request of a trace (RunReport.h) of a program that is no pipeline: by rank
/// the seconds of its kernels, of calls that it starts and waits for, of calls that are
/// over where they stand; and its seconds if each call took `least` at least, by the
/// order of its tasks (CallTimeline.h). An error: the file is no trace, has no tasks, or
/// has those of another number of ranks.
Expected<std::string> callTraceText(const std::string &file, int64_t ranks, double least);

} // namespace partita::report

#endif // PARTITA_REPORT_CALLTRACE_H
