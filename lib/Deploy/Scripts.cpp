//===- Scripts.cpp - Batch scripts, and what pods do ----------------------===//
#include "Scripts.h"

#include "partita/Deploy/Deployment.h"

#include <cctype>
#include <cmath>
#include <cstring>

using namespace partita;
using namespace partita::deploy;

std::string deploy::shellText(const std::vector<std::string> &words) {
  std::string text;
  for (const std::string &word : words) {
    bool isPlain = !word.empty();
    for (char c : word)
      isPlain &=
          std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_-./=:,+%@", c);
    text += text.empty() ? "" : " ";
    if (isPlain) {
      text += word;
      continue;
    }
    text += '\'';
    for (char c : word)
      text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

std::string deploy::watchedText(const std::string &command) {
  return "trap 'kill -TERM \"$run\"' TERM INT\n" + command +
         " &\n"
         "run=$!\n"
         "status=0\n"
         "wait \"$run\" || status=$?\n"
         "# A signal ends the wait, and not the run.\n"
         "while kill -0 \"$run\" 2>/dev/null; do\n"
         "  status=0\n"
         "  wait \"$run\" || status=$?\n"
         "done\n";
}

std::string deploy::workerText(int port) {
  const std::string number = std::to_string(port);
  return "set -e\n"
         "key=$(mktemp -u)\n"
         "ssh-keygen -q -t ed25519 -N '' -f \"$key\"\n"
         "${SSHD:-/usr/sbin/sshd} -D -e -p " +
         number +
         " -h \"$key\" -o PidFile=none -o UsePAM=no -o StrictModes=no &\n"
         "daemon=$!\n"
         "# The ranks of a pod that is to go save first.\n"
         "leave() {\n"
         "  pkill -USR1 -x partita || true\n"
         "  while pgrep -x partita >/dev/null; do sleep 0.2; done\n"
         "  exit " +
         std::to_string(terminateStatus) +
         "\n"
         "}\n"
         "trap leave TERM\n"
         "wait \"$daemon\"\n";
}

std::string deploy::launcherText() {
  return "# The cluster starts this again after an error too, behind which no run "
         "begins.\n"
         "if [ -e \"$ENDED\" ]; then cat \"$ENDED\" >&2; exit 1; fi\n" +
         watchedText("\"$@\"") + "case $status in " + std::to_string(errorStatus) + "|" +
         std::to_string(usageStatus) +
         ")\n"
         "  mkdir -p \"${ENDED%/*}\"\n"
         "  echo \"error: the run has ended with status $status\" >\"$ENDED\" ;;\n"
         "esac\n"
         "exit $status\n";
}

/// The command with a hostfile, whose name is in a variable.
static std::string commandText(const Deployment &run) {
  return shellText(run.command) + " --hostfile \"$hosts\"";
}

std::string deploy::slurmText(const Deployment &run) {
  const std::string slots = std::to_string(run.slots),
                    restarts = std::to_string(run.restarts),
                    mebibytes = std::to_string((run.memory >> 20) + 1),
                    grace =
                        std::to_string(static_cast<int64_t>(std::ceil(run.grace)) + 5);
  std::string text = "#!/bin/bash\n"
                     "#SBATCH --job-name=" +
                     run.name + "\n#SBATCH --nodes=" + std::to_string(run.hosts()) +
                     "\n#SBATCH --ntasks-per-node=" + slots +
                     "\n#SBATCH --cpus-per-task=" + std::to_string(run.cpus) +
                     "\n#SBATCH --mem=" + mebibytes + "M\n#SBATCH --output=" + run.name +
                     "-%j.log\n#SBATCH --open-mode=append\n";
  // The batch shell has the run's grace before the job's time is over.
  text += run.checkpoints.empty()
              ? std::string("#SBATCH --no-requeue\n")
              : "#SBATCH --requeue\n#SBATCH --signal=B:TERM@" + grace + "\n";
  text += "hosts=$(mktemp)\n"
          "trap 'rm -f \"$hosts\"' EXIT\n"
          "scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed 's/$/ slots=" +
          slots +
          "/' >\"$hosts\"\n"
          "# A run that starts again does not wait for the cores of what it has lost.\n"
          "export SLURM_OVERLAP=1\n" +
          watchedText(commandText(run));
  if (run.checkpoints.empty())
    return text + "exit $status\n";
  return text + "# 75: a rank or host was lost, at most " + restarts +
         " times; 143, 130: stopped behind a generation.\n"
         "# A job that its user has cancelled is not running any more.\n"
         "again=no\n"
         "case $status in\n"
         "  75) if [ \"${SLURM_RESTART_COUNT:-0}\" -lt " +
         restarts +
         " ]; then again=yes; fi ;;\n"
         "  143|130) again=yes ;;\n"
         "esac\n"
         "if [ $again = yes ] && scontrol show job \"$SLURM_JOB_ID\" | grep -q "
         "JobState=RUNNING; then\n"
         "  scontrol requeue \"$SLURM_JOB_ID\"\n"
         "fi\n"
         "exit $status\n";
}

std::string deploy::hostsText(const Deployment &run) {
  std::string lines;
  for (const auto &[name, slots] : run.named)
    lines += name + " slots=" + std::to_string(slots) + "\n";
  return "#!/bin/sh\n"
         "# Starts the run on its hosts, over ssh. Started again, the run goes on.\n"
         "hosts=$(mktemp)\n"
         "trap 'rm -f \"$hosts\"' EXIT\n"
         "cat >\"$hosts\" <<'end of hosts'\n" +
         lines + "end of hosts\n" + watchedText(commandText(run)) + "exit $status\n";
}
