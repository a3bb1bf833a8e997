//===- Status.h - How every command ends -----------------------*- C++ -*-===//
//
// Exit status 0: everything was done and written; 1: an error; 2: the command line is
// wrong; 75: a run that lost a rank, which may do better when it is started again; 128
// and a signal: a run that the signal stopped behind a step (docs/checkpoints.md). Errors
// are one line on standard error that begins with "error: ".
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TOOLS_COMMON_STATUS_H
#define PARTITA_TOOLS_COMMON_STATUS_H

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <unistd.h>

namespace partita {

inline constexpr int errorStatus = 1, usageStatus = 2;

inline int fail(const std::string &message, int status = errorStatus) {
  std::fflush(stdout);
  std::fprintf(stderr, "error: %s\n", message.c_str());
  return status;
}

/// The status of a command that has written to standard output: an error where that went
/// nowhere, as on a full disk.
inline int finish(int status) {
  errno = 0;
  bool written = std::cout.flush().good();
  written &= std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (written)
    return status;
  // The stream may have failed some time ago: the system says why again.
  if (errno == 0)
    (void)!::write(STDOUT_FILENO, "\n", 1);
  std::string reason = errno ? ": " + std::string(std::strerror(errno)) : "";
  return fail("cannot write to standard output" + reason, status ? status : errorStatus);
}

} // namespace partita

#endif // PARTITA_TOOLS_COMMON_STATUS_H
