//===- MpiRun.h - What a launcher and its MPI ranks agree on ----*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_MPIRUN_H
#define PARTITA_LIB_RUNTIME_LAUNCH_MPIRUN_H

#include "Internal.h"

#include <string_view>

namespace partita::runtime {

namespace mpi {
/// Marks the one sentence that a rank leaves for the user among what mpirun writes.
inline constexpr std::string_view marker = "partita: ";
/// Environment: the file of the launcher's page.
inline constexpr const char *pageVariable = "PARTITA_RUN_PAGE";
} // namespace mpi

/// Does not return after an error, which it writes itself.
Expected<RunEnd> runAsMpiRank(const RunOptions &options, int rank, const Print &print);

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_MPIRUN_H
