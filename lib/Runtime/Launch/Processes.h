//===- Processes.h - What the system tells of processes ---------*- C++ -*-===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_PROCESSES_H
#define PARTITA_LIB_RUNTIME_LAUNCH_PROCESSES_H

#include <optional>
#include <string>
#include <sys/types.h>

namespace partita::runtime {

/// Says whether a process still does something. A process that has ended and that mpirun,
/// its parent, has not asked for yet does nothing: an mpirun that hangs never asks.
bool isAlive(pid_t pid);

/// Wait status of a process that has ended and that its parent has not asked for; absent:
/// it lives, or is gone.
std::optional<int> statusOfZombie(pid_t pid);

/// Says whether a process is one of the run with this page. Its number alone does not say
/// so: the rank may be gone, and another process have the number.
bool isOfRun(pid_t pid, const std::string &page);

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_PROCESSES_H
