//===- StepLog.h - The file with a line per step ----------------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_STEPLOG_H
#define PARTITA_LIB_RUNTIME_LAUNCH_STEPLOG_H

#include "Descriptor.h"
#include "Internal.h"

#include <deque>

namespace partita::runtime {

class StepLog {
public:
  /// `append` if the run goes on where another one has stopped. No path: no log.
  Expected<void> open(const std::string &path, bool append);
  /// Opens it behind this step: lines of later steps, and a line that was not finished,
  /// go. `print` is told where lines of steps before are missing.
  Expected<void> openBehind(const std::string &path, int64_t step, const Print &print);
  /// Makes a line that cannot be written no error from now on. Lines wait and are tried
  /// again with the next one; `print` says so once.
  void waitForRoom(const Print &print) { waits = &print; }
  /// −1: there is none.
  int descriptor() const { return file.get(); }
  /// Appends a line of a step.
  Expected<void> add(int64_t step, std::string_view line);
  /// Adds a member to the last line, in one write: a line that is cut off would be lost
  /// where the run goes on once more. A log whose last line is of another step, or has
  /// the member, stays as it is.
  Expected<void> amendLast(int64_t step, const std::string &name,
                           const std::string &value) const;
  /// An error if a line was not written.
  Expected<void> close();

private:
  bool write();
  tl::unexpected<Error> cannotWrite(int problem) const;

  std::string path;
  FileDescriptor file;
  const Print *waits = nullptr; ///< absent: what cannot be written is an error
  struct Line {
    int64_t step = 0;
    std::string text; ///< or what is left of it
  };
  std::deque<Line> owed; ///< not written yet
  bool isTold = false;   ///< that lines wait
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_STEPLOG_H
