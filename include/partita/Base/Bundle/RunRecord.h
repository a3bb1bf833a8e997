//===- RunRecord.h - What happened in a run ---------------------*- C++ -*-===//
//
// The runtime fills it, lib/Report makes tables and traces of it.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_BUNDLE_RUNRECORD_H
#define PARTITA_BASE_BUNDLE_RUNRECORD_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace partita {

/// A stretch of time of one rank. The spans of a rank nest: a request holds segments and
/// waits for transfers, a segment holds tasks. Plain bytes: processes send them.
struct RunSpan {
  enum What : uint32_t { Request, Segment, Task, Transfer };
  What what = Task;
  uint32_t request = 0;
  uint32_t index = 0;      ///< of a segment, task or transfer of the rank's program
  uint32_t microBatch = 0; ///< of a segment or transfer
  /// Seconds on the clock of the rank's machine, which begins anywhere.
  double begin = 0, end = 0;
  double waited = 0;     ///< of these, inside a wait for a collective or transfer
  uint64_t received = 0; ///< bytes from other ranks
};

/// What the spans of a program's ranks stand for.
struct RunProgram {
  struct Task {
    std::string node, kind;
    /// What one run of it computes, and the bytes of what it reads and writes
    /// (TaskWork.h); 0 of what communicates.
    double flops = 0, bytes = 0;
    /// Names the call of a task that communicates: 0 if the call is over when the task
    /// is, else equal for the one that starts a call and the one that waits for it. −1:
    /// of any other.
    int64_t handle = -1;
  };
  std::string name; ///< empty where there is only one
  std::vector<Task> tasks;
  std::vector<std::string> transfers, segments;
};

/// What a rank reaches at most, measured on its host while all ranks measured; 0:
/// unknown.
struct Roofline {
  double flops = 0; ///< f32 multiply-adds and others, per second
  double bytes = 0; ///< read from memory, per second
};

struct RankRecord {
  size_t program = 0; ///< of RunProfile
  Roofline roofline;
  std::vector<RunSpan> spans; ///< a span stands behind those that it holds
};

struct RunProfile {
  std::vector<RunProgram> programs;
  std::vector<RankRecord> ranks; ///< by rank
};

struct RunRecord {
  struct Tensor {
    std::string name, type;
    std::vector<int64_t> shape;
  };
  std::string bundle;
  std::vector<double> requests; ///< seconds of each
  std::vector<Tensor> outputs;
  /// Of the first requests, or of all; absent if nobody asked for it.
  std::optional<RunProfile> profile = {};
  /// Bytes of weight files, and seconds of the ranks of rank 0's process together.
  uint64_t checkedBytes = 0;
  double checkSeconds = 0;
};

} // namespace partita

#endif // PARTITA_BASE_BUNDLE_RUNRECORD_H
