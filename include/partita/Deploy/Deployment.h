//===- Deployment.h - A run of a bundle on a cluster ------------*- C++ -*-===//
//
// Needs of a run, whichever kind of cluster runs it, and the file by which each kind
// takes them: manifests of Kubernetes, a batch script of Slurm, a script for
// hosts that are there. docs/deploy.md says what the files do.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_DEPLOY_DEPLOYMENT_H
#define PARTITA_DEPLOY_DEPLOYMENT_H

#include "partita/Base/Bundle/Plan.h"
#include "partita/Base/Error.h"
#include "partita/Topology/Topology.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace partita::deploy {

/// A claim (PersistentVolumeClaim) that stands in every pod.
struct Volume {
  std::string claim, subPath; ///< the sub-path may be empty
  std::string path;           ///< absolute, in pods
  bool readOnly = false;
};

/// A host with a name, and the ranks that it has room for.
struct NamedHost {
  std::string name;
  int64_t slots = 1;
};

struct Deployment {
  std::string name; ///< of the job: a DNS label
  /// "partita", "run", the bundle and its options: all but --hostfile.
  std::vector<std::string> command;
  int64_t ranks = 1;
  int64_t slots = 1;            ///< ranks of a host or pod, where hosts have no names
  std::vector<NamedHost> named; ///< in which ranks go onto them; empty: none has a name
  int64_t cpus = 1;             ///< of a rank
  int64_t memory = 0;           ///< bytes of a host
  std::string checkpoints;      ///< folder that the run goes on from; empty: it runs once
  double grace = 25;            ///< seconds from a signal to the end of a run
  int64_t restarts = 0;         ///< after losses

  // Kubernetes alone:
  std::string image;
  std::string keys; ///< name of the Secret with the keys of ssh, where one is needed
  std::vector<Volume> volumes;

  /// How many ranks each host has: host by host, as many as there is room for.
  std::vector<int64_t> ranksOfHosts() const;
  int64_t hosts() const { return static_cast<int64_t>(ranksOfHosts().size()); }
};

/// Ranks of one host: those of the innermost level of the cluster, or of the devices for
/// which the plan was searched. All ranks where the plan knows of one host only. An error
/// if the cluster has another number of devices.
Expected<int64_t> ranksPerHost(const PlanEntry &entry, int64_t ranks,
                               const std::optional<Topology> &cluster);

/// Bytes that a host needs for its ranks, of the host with most: the plan's, a copy of
/// the states if the run `saves`, the runtime's, and a margin. An error if the plan has
/// none.
Expected<int64_t> memoryOfHost(const Plan &plan, const std::vector<int64_t> &ranksOfHosts,
                               bool saves);

/// An error if the name is none that pods can have.
Expected<void> checkName(const std::string &name);
/// The characters of a text that a name may have.
std::string nameFrom(const std::string &text);
/// Reads "CLAIM[/SUB/PATH]:/PATH[:ro]", whose paths have no "..".
Expected<Volume> readVolume(const std::string &text);
/// An error if a path of pods is not in a volume that can be written. `option` is named.
Expected<void> checkWritable(const Deployment &run, const std::string &option,
                             const std::string &path);

/// Manifests, as YAML. docs/deploy.md#kubernetes says what of the cluster they use.
std::string mpiJobText(const Deployment &run);
std::string jobSetText(const Deployment &run);
std::string trainJobText(const Deployment &run);
/// A script for sbatch.
std::string slurmText(const Deployment &run);
/// A script that starts the run on the named hosts.
std::string hostsText(const Deployment &run);

} // namespace partita::deploy

#endif // PARTITA_DEPLOY_DEPLOYMENT_H
