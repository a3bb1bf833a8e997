//===- MpiRun.h - What a launcher and its MPI ranks agree on ----*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_MPIRUN_H
#define PARTITA_LIB_RUNTIME_LAUNCH_MPIRUN_H

#include "Internal.h"

#include <string_view>

namespace partita::runtime {

namespace mpi {
/// Marks the one sentence that a rank leaves for the user among what mpirun writes; the
/// second, where the run lost a rank.
inline constexpr std::string_view marker = "partita: ";
inline constexpr std::string_view lostMarker = "partita, try again: ";
/// Line of a rank that has joined the job, where a launcher on another host asks for it.
inline constexpr std::string_view joinedMarker = "partita, a rank has joined";
/// Line of a rank that has stopped by a signal, behind a step that is saved, likewise.
inline constexpr std::string_view stoppedMarker = "partita, a rank has stopped";
/// Environment: the file of the launcher's page.
inline constexpr const char *pageVariable = "PARTITA_RUN_PAGE";
/// Environment: ranks of a launcher that may be on another host. The value says where
/// agents find it (HostWatch).
inline constexpr const char *hostsVariable = "PARTITA_RUN_HOSTS";
/// Environment: the incarnation of the start that ranks belong to.
inline constexpr const char *incarnationVariable = "PARTITA_RUN_INCARNATION";
/// How mpirun tells of a rank that died; a number is next.
inline constexpr std::string_view signalPhrase = "exited on signal ";
} // namespace mpi

/// Does not return after an error, which it writes itself.
Expected<RunEnd> runAsMpiRank(const RunOptions &options, int rank, const Print &print);

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_MPIRUN_H
