//===- StepLog.h - The file with a line per step ----------------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_STEPLOG_H
#define PARTITA_LIB_RUNTIME_LAUNCH_STEPLOG_H

#include "Descriptor.h"
#include "Internal.h"

namespace partita::runtime {

class StepLog {
public:
  /// `append` if the run goes on where another one has stopped. No path: no log.
  Expected<void> open(const std::string &path, bool append);
  /// Opens it behind this step: lines of later steps, and a line that was not finished,
  /// go.
  Expected<void> openBehind(const std::string &path, int64_t step);
  /// From now on a line that cannot be written is no error. Lines wait and are tried
  /// again with the next one; `print` says so once.
  void waitForRoom(const Print &print) { waits = &print; }
  /// −1: there is none.
  int descriptor() const { return file.get(); }
  /// Appends a line of a step.
  Expected<void> add(int64_t step, std::string_view line);
  /// Adds a member to the last line, in one write: a line that is cut off would be lost
  /// where the run goes on once more. No line, or one that has the member, stays.
  Expected<void> amendLast(const std::string &name, const std::string &value) const;
  /// An error if a line was not written.
  Expected<void> close();

private:
  bool write();
  tl::unexpected<Error> cannotWrite(int problem) const;

  std::string path;
  FileDescriptor file;
  const Print *waits = nullptr; ///< absent: what cannot be written is an error
  std::string owed;             ///< not written yet
  int64_t firstOwed = 0;        ///< the step of its first line; 0: nothing is owed
};

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_STEPLOG_H
