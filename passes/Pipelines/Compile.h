//===- Compile.h - From a model file to a bundle ----------------*- C++ -*-===//
//
// The one pipeline that `partita compile` runs, without a command line: other programs
// call it as they call a library. The level names are those of docs/architecture.md.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_PASSES_PIPELINES_COMPILE_H
#define PARTITA_PASSES_PIPELINES_COMPILE_H

#include "partita/Base/Stop.h"
#include "passes/Pipelines/Request.h"

#include <functional>

namespace partita {

/// What a rank receives in all, and the largest sum of the buffers that one step of
/// communication reads and writes.
struct Communication {
  int64_t receivedBytes = 0, peakBytes = 0;
};

/// What a compile did, for the command's summary.
struct CompileReport {
  /// By the conversions of the plan, and by the ops of the program: equal, or the compile
  /// fails.
  Communication priced, emitted;
  std::vector<PlanCollective> collectives;
  std::vector<std::string> notes; ///< sentences for the user
  int64_t numOps = 0, numTasks = 0, numKernels = 0;
  /// Per rank: weights as stored, weights as repacked for engines, and everything else.
  int64_t weightBytesPerRank = 0, packedBytes = 0, arenaBytes = 0;
  int64_t stateBytes = 0;       ///< per rank
  int64_t neededBytes = 0;      ///< of these, on the rank that has most of them together
  std::optional<PlanWork> work; ///< from L2 on
  /// Of a searched plan: the bytes that a device may use, and those that were expected.
  std::optional<int64_t> memoryLimit;
  int64_t plannedMemory = 0;
  double seconds = 0;
  /// Seconds of each stage: import, strategies, partition, code.
  std::vector<std::pair<std::string, double>> stages;
};

/// Receives progress: one short line per stage as it begins.
using Progress = std::function<void(const std::string &)>;

/// Once `stop` is raised the compile ends, between two of its passes, with the error
/// "cancelled"; files that it has begun are removed.
Expected<CompileReport> compileModel(const Request &request, const Progress &progress,
                                     StopFlag stop = {});

/// "work per rank: at most 1.2 GFLOP, …", one line.
std::string workText(const PlanWork &work);

/// A table of the collectives: op, bytes per rank, axes, source node, and the sums.
std::string summaryText(const std::vector<PlanCollective> &collectives,
                        bool inFull = false);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_COMPILE_H
