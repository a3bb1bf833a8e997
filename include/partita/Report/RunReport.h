//===- RunReport.h - A run as text, JSON and trace --------------*- C++ -*-===//
#ifndef PARTITA_REPORT_RUNREPORT_H
#define PARTITA_REPORT_RUNREPORT_H

#include "partita/Base/Bundle/RunRecord.h"

namespace partita::report {

/// One source node, or one transfer between stages, over the profiled requests. Every
/// figure is one request's of all ranks that run it; the median is over requests.
struct NodeTimes {
  std::string node;
  std::string kinds; ///< the task kinds, e.g. "matmul, all-reduce, wait"
  int64_t ranks = 0; ///< that run it
  double medianSeconds = 0, minSeconds = 0; ///< of the slowest rank
  double spreadSeconds = 0;   ///< median of the slowest rank's less the fastest rank's
  double waitingSeconds = 0;  ///< median, of the rank that waits longest
  uint64_t receivedBytes = 0; ///< from other ranks, of the rank that receives the most
  /// Of one request, of the rank that has the most: what its tasks compute and what their
  /// operands hold (task::Work).
  double flops = 0, bytes = 0;
  /// Median share of what the rank's host reaches at most, while tasks compute or copy
  /// (what communicates is left out), of the rank that does so longest. Bytes that come
  /// from a cache may make more than 1 of it. 0: unknown, or nothing is computed.
  double peakShare = 0, memoryShare = 0;
};

/// Those that take longest first; of equals, by name.
std::vector<NodeTimes> timesByNode(const RunProfile &profile);
/// How many requests the profile has.
int64_t profiledRequests(const RunProfile &profile);

/// A table for people, with a heading. The record has a profile.
std::string profileText(const RunRecord &record);
/// Requests, outputs, and the profile if there is one.
std::string runJson(const RunRecord &record);
/// Chrome's trace format, which Perfetto reads: a track per rank, on which requests,
/// segments (of pipelines), tasks and waits nest. The record has a profile.
std::string traceJson(const RunRecord &record);

} // namespace partita::report

#endif // PARTITA_REPORT_RUNREPORT_H
