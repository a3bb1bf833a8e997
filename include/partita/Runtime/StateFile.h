//===- StateFile.h - The states of a session as a file ----------*- C++ -*-===//
//
// A safetensors file with every state as a whole tensor, by its name, row-major: it
// fits any plan, number of ranks and transport. For readers, the metadata have the
// layout that the saving session had: "layout of NAME".
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_RUNTIME_STATEFILE_H
#define PARTITA_RUNTIME_STATEFILE_H

#include "partita/Runtime/Session.h"

#include <string>

namespace partita::runtime {

/// Writes all states as the last request left them, aside and then renamed, so that
/// `path` is never half of one. All processes of an MPI job make the call; rank 0 writes.
/// An error names the file. `steps` on data are behind the states; it is kept beside
/// them.
Expected<void> saveStates(Session &session, const std::string &path, int64_t steps = 0);

/// Sets all states for the next request. An error, before anything is set, if a state is
/// missing, of another type or shape, or the file has one that the session has not.
Expected<void> loadStates(Session &session, const std::string &path);

/// The steps that `saveStates` has put down, 0 if the file has none.
Expected<int64_t> savedSteps(const std::string &path);

} // namespace partita::runtime

#endif // PARTITA_RUNTIME_STATEFILE_H
