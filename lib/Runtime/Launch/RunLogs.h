//===- RunLogs.h - Files that tell of a run, one per rank -------*- C++ -*-===//
//
// The folder of --log-dir: `rank-R.log` of each rank, written by the process of the rank,
// and `supervisor.log` of the process that starts and watches the ranks. A file is
// appended to, so that a run that starts again goes on in it.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_RUNLOGS_H
#define PARTITA_LIB_RUNTIME_LAUNCH_RUNLOGS_H

#include "Internal.h"

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace partita::runtime {

class RunLogs {
public:
  RunLogs() = default; ///< writes nothing
  RunLogs(RunLogs &&other) noexcept { swap(other); }
  RunLogs &operator=(RunLogs &&other) noexcept {
    swap(other);
    return *this;
  }
  ~RunLogs();

  /// The files of the ranks that the process of `runRanks` has: all of the bundle with
  /// local, one with MPI. Nothing without a folder.
  static Expected<RunLogs> ofRanks(const RunOptions &options, TransportKind transport);
  /// The file of the process that starts the ranks. Nothing without a folder, and in a
  /// process that is a rank already.
  static Expected<RunLogs> ofSupervisor(const RunOptions &options);

  /// Adds a line with the time to every file. A line that cannot be written is left out:
  /// a full disk must not end training. Does not allocate.
  void line(std::string_view text) const;
  /// Adds a line to the first file alone, whose rank prints for all.
  void printed(std::string_view text) const;
  /// Tells of a step that is done, at most once a second.
  void step(int64_t number, double seconds);
  /// Tells how the run came to its end.
  void end(const Expected<RunEnd> &how) const;

  /// `print`, which the first file gets too. `this` must outlive the result.
  Print alsoPrinting(const Print &print) const;

private:
  void swap(RunLogs &other) noexcept { files.swap(other.files); }
  Expected<void> add(const std::string &folder, const std::string &name);

  std::vector<int> files; ///< descriptors
  std::chrono::steady_clock::time_point told = {};
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_RUNLOGS_H
