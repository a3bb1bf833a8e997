//===- TraceEvents.h - What `run --trace` wrote -----------------*- C++ -*-===//
#ifndef PARTITA_LIB_REPORT_TRACEEVENTS_H
#define PARTITA_LIB_REPORT_TRACEEVENTS_H

#include "partita/Base/Error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace partita::report {

/// A stretch of time of a rank (Trace.cpp).
struct TraceEvent {
  std::string name, kind;
  int64_t rank = 0, request = 0, microBatch = 0;
  /// Names the call of a task: −1 of one that does not communicate, 0 of a call that is
  /// over when the task is, else the handle of a call in flight.
  int64_t handle = -1;
  double begin = 0, end = 0; ///< seconds
};

/// The last request of a trace.
struct TracedRequest {
  int64_t number = 0;
  double begin = 0, end = 0;      ///< seconds, over all ranks
  std::vector<TraceEvent> events; ///< in the file's order, without those of requests
};

/// Reads a trace. An error: it cannot be read, is no trace, or has no request.
Expected<TracedRequest> readTrace(const std::string &file);

} // namespace partita::report

#endif // PARTITA_LIB_REPORT_TRACEEVENTS_H
