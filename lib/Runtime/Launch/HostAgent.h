//===- HostAgent.h - What keeps ranks of a host to their launcher -*- C++ -*-===//
//
// The first rank of each host starts an agent, a process of its own. The agent tells the
// launcher four times a second that the host is there, and each answer is a lease of some
// seconds, which the agent passes on to the ranks of its host. Ranks without a lease end:
// a host that was cut off or stopped, and was given up, does not train on beside its
// successor. docs/deploy.md has the reasons.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_LIB_RUNTIME_LAUNCH_HOSTAGENT_H
#define PARTITA_LIB_RUNTIME_LAUNCH_HOSTAGENT_H

#include "Internal.h"

namespace partita::runtime {

/// Joins a rank of a launcher that may be on another host to the agent of its own host,
/// which the first rank there starts. To be called before the process has threads. Does
/// nothing where the launcher has asked for no agents.
void joinHost(const RunOptions &options, int rank);

} // namespace partita::runtime

#endif // PARTITA_LIB_RUNTIME_LAUNCH_HOSTAGENT_H
