//===- Hosts.h - Ranks on other hosts ---------------------------*- C++ -*-===//
//
// A launcher shares no memory with ranks on other hosts. All that it knows of them comes
// by the standard error of mpirun: marks that ranks write (MpiRun.h), and mpirun's own
// words about processes and hosts that are gone.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_HOSTS_H
#define PARTITA_LIB_RUNTIME_LAUNCH_HOSTS_H

#include "partita/Runtime/Launch.h"

#include <optional>
#include <string_view>
#include <vector>

namespace partita::runtime {

struct HostSlots {
  std::string name;
  int64_t slots = 1;
};
/// Hosts of a hostfile ("NAME slots=N" by line, "#" begins a comment). An error if it
/// cannot be read or names a host twice.
Expected<std::vector<HostSlots>> readHostfile(const std::string &path);
/// An error if the file has fewer slots than there are ranks, too.
Expected<void> checkHostfile(const std::string &path, int64_t ranks);

/// The end of a run by what mpirun says of a process or a host that is gone: its text may
/// have more. Absent: mpirun says nothing of the kind. `asked`: see RunEnd::signal.
std::optional<Expected<RunEnd>> endByMpirun(std::string_view text, int asked);

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_HOSTS_H
