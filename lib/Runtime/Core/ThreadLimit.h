//===- ThreadLimit.h - How many threads a process may have ------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_CORE_THREADLIMIT_H
#define PARTITA_LIB_RUNTIME_CORE_THREADLIMIT_H

#include <cstdint>
#include <string>

namespace partita::runtime {

/// The least of what the system allows: of the user's processes (RLIMIT_NPROC), of the
/// control group's, of all threads and their numbers, of mappings, and of address space
/// for stacks. Other processes count too, so that fewer may be free.
struct ThreadLimit {
  int64_t threads = INT64_MAX;
  std::string source; ///< whose limit it is, for messages
};
ThreadLimit threadLimit();

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_CORE_THREADLIMIT_H
