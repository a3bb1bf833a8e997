//===- Scripts.h - Shell text of runs and pods ------------------*- C++ -*-===//
#ifndef PARTITA_LIB_DEPLOY_SCRIPTS_H
#define PARTITA_LIB_DEPLOY_SCRIPTS_H

#include <string>
#include <vector>

namespace partita::deploy {

/// Exit statuses of `run` (docs/checkpoints.md#losses).
inline constexpr int errorStatus = 1, usageStatus = 2, interruptStatus = 130,
                     terminateStatus = 143;

/// Words for a shell, quoted where they need it.
std::string shellText(const std::vector<std::string> &words);

/// Runs a command, as text of a shell, to which SIGTERM and SIGINT of the script are
/// passed on; leaves its exit status in $status.
std::string watchedText(const std::string &command);

/// Script of a pod in which ranks are started over ssh, at this port.
std::string workerText(int port);
/// Script of the pod that starts the ranks, by the words behind the script, where the
/// cluster would start it again after an error too: `$ENDED` is a file that remembers
/// one.
std::string launcherText();

} // namespace partita::deploy

#endif // PARTITA_LIB_DEPLOY_SCRIPTS_H
