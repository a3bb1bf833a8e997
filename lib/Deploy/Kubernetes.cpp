//===- Kubernetes.cpp - Manifests of jobs ---------------------------------===//
//
// Each kind has pods in which ranks are started over ssh, and one that starts them and
// sees how the run ends. They differ in who makes keys, names and the hostfile, and in
// what may be said of exit statuses.
//
//===----------------------------------------------------------------------===//
#include "Scripts.h"
#include "Yaml.h"
#include "partita/Deploy/Deployment.h"

#include <cmath>

using namespace partita;
using namespace partita::deploy;
using Json = nlohmann::ordered_json;

/// The user of the image, its port for ssh, and where each kind mounts keys and hosts.
static constexpr int user = 1000, port = 2222;
static constexpr const char *keyFolder = "/home/partita/.ssh";
static constexpr const char *hostFolder = "/etc/mpi";

/// How often a worker's pod is made anew: whether the run goes on is for the launcher.
static constexpr int64_t always = 2147483647;

static std::string mebibytes(int64_t bytes) {
  return std::to_string((bytes >> 20) + 1) + "Mi";
}

static Json metadata(const std::string &name) {
  return {{"name", name}, {"labels", {{"app.kubernetes.io/name", "partita"}}}};
}

namespace {
/// Volumes of a pod and where its container has them.
struct Volumes {
  Json list = Json::array(), mounts = Json::array();

  void add(const std::string &name, Json source, const std::string &path,
           bool readOnly = false, const std::string &subPath = {}) {
    bool isThere = false;
    for (const Json &entry : list)
      isThere |= entry["name"] == name;
    if (!isThere) {
      source["name"] = name;
      list.push_back(source);
    }
    Json mount = {{"name", name}, {"mountPath", path}};
    if (!subPath.empty())
      mount["subPath"] = subPath;
    if (readOnly)
      mount["readOnly"] = true;
    mounts.push_back(mount);
  }
};
} // namespace

/// Claims of the run, each once.
static Volumes claimsOf(const Deployment &run) {
  Volumes volumes;
  for (const Volume &volume : run.volumes)
    volumes.add(nameFrom(volume.claim),
                {{"persistentVolumeClaim", {{"claimName", volume.claim}}}}, volume.path,
                volume.readOnly, volume.subPath);
  return volumes;
}

static void addKeys(const Deployment &run, Volumes &volumes) {
  Json items = {{{"key", "ssh-privatekey"}, {"path", "id_rsa"}},
                {{"key", "ssh-publickey"}, {"path", "id_rsa.pub"}},
                {{"key", "ssh-publickey"}, {"path", "authorized_keys"}}};
  // Readable by the group of the pod, 0440.
  volumes.add(
      "keys",
      {{"secret", {{"secretName", run.keys}, {"defaultMode", 288}, {"items", items}}}},
      keyFolder, true);
}

static Json podOf(const Deployment &run, const Volumes &volumes, Json container) {
  container["volumeMounts"] = volumes.mounts;
  Json spec = {
      {"terminationGracePeriodSeconds", static_cast<int64_t>(std::ceil(run.grace)) + 5},
      {"securityContext", {{"runAsUser", user}, {"runAsGroup", user}, {"fsGroup", user}}},
      {"containers", {container}},
      {"volumes", volumes.list}};
  return {{"spec", spec}};
}

/// A pod of ranks. `container` is its name.
static Json workerPod(const Deployment &run, Volumes volumes, const char *container) {
  volumes.add("shared-memory", {{"emptyDir", {{"medium", "Memory"}}}}, "/dev/shm");
  Json resources = {{"requests",
                     {{"cpu", std::to_string(run.slots * run.cpus)},
                      {"memory", mebibytes(run.memory)}}}};
  return podOf(
      run, volumes,
      {{"name", container},
       {"image", run.image},
       {"command", {"/bin/sh", "-c", workerText(port)}},
       {"resources", resources},
       {"ports", {{{"name", "ssh"}, {"containerPort", port}}}},
       {"readinessProbe", {{"tcpSocket", {{"port", port}}}, {"periodSeconds", 2}}}});
}

static std::vector<std::string> commandOf(const Deployment &run) {
  std::vector<std::string> words = run.command;
  words.insert(words.end(), {"--hostfile", std::string(hostFolder) + "/hostfile"});
  return words;
}

/// The pod that starts the ranks, by these words.
static Json launcherPod(const Deployment &run, const Volumes &volumes,
                        const char *container, const std::vector<std::string> &words,
                        const Json &environment = nullptr) {
  Json it = {{"name", container}, {"image", run.image}, {"command", words}};
  if (!environment.is_null())
    it["env"] = environment;
  it["resources"] = {{"requests", {{"cpu", "500m"}, {"memory", "256Mi"}}}};
  return podOf(run, volumes, it);
}

//===----------------------------------------------------------------------===//
// MPIJob
//===----------------------------------------------------------------------===//

/// Launcher of an MPIJob, whose Job has no policy by exit statuses: a script remembers
/// errors, beside the checkpoints and by the Job's uid.
static Json mpiLauncher(const Deployment &run) {
  if (run.checkpoints.empty())
    return launcherPod(run, claimsOf(run), "launcher", commandOf(run));
  Json field = {{"fieldPath", "metadata.labels['batch.kubernetes.io/controller-uid']"}};
  Json environment = {{{"name", "JOB"}, {"valueFrom", {{"fieldRef", field}}}},
                      {{"name", "ENDED"}, {"value", run.checkpoints + "/ended-$(JOB)"}}};
  std::vector<std::string> words = {"/bin/sh", "-c", launcherText(), "launcher"};
  for (const std::string &word : commandOf(run))
    words.push_back(word);
  return launcherPod(run, claimsOf(run), "launcher", words, environment);
}

std::string deploy::mpiJobText(const Deployment &run) {
  Json launcher = {
      {"replicas", 1}, {"restartPolicy", "Never"}, {"template", mpiLauncher(run)}};
  Json workers = {{"replicas", run.hosts()},
                  {"restartPolicy", "OnFailure"},
                  {"template", workerPod(run, claimsOf(run), "worker")}};
  Json spec = {{"slotsPerWorker", run.slots},
               {"mpiImplementation", "OpenMPI"},
               {"sshAuthMountPath", keyFolder},
               {"launcherCreationPolicy", "WaitForWorkersReady"},
               {"runPolicy",
                {{"cleanPodPolicy", "Running"},
                 {"backoffLimit", run.checkpoints.empty() ? 0 : run.restarts}}},
               {"mpiReplicaSpecs", {{"Launcher", launcher}, {"Worker", workers}}}};
  return yamlText({{"apiVersion", "kubeflow.org/v2beta1"},
                   {"kind", "MPIJob"},
                   {"metadata", metadata(run.name)},
                   {"spec", spec}});
}

//===----------------------------------------------------------------------===//
// JobSet, and TrainJob, which is made into one
//===----------------------------------------------------------------------===//

/// Policy by exit statuses: an error ends the Job at once, a run that has stopped or
/// whose node goes is started again, and a loss is counted by whoever owns the Job.
static Json failurePolicy(const char *container) {
  auto exits = [&](const char *action, std::vector<int> values) {
    return Json{{"action", action},
                {"onExitCodes",
                 {{"containerName", container}, {"operator", "In"}, {"values", values}}}};
  };
  Json disruption = {
      {"action", "Ignore"},
      {"onPodConditions", {{{"type", "DisruptionTarget"}, {"status", "True"}}}}};
  return {{"rules",
           {exits("FailJob", {errorStatus, usageStatus}), disruption,
            exits("Ignore", {interruptStatus, terminateStatus})}}};
}

static Json launcherJob(const Deployment &run, const char *container, Json pod) {
  Json spec = {{"parallelism", 1}, {"completions", 1}, {"backoffLimit", 0}};
  if (!run.checkpoints.empty())
    spec["podFailurePolicy"] = failurePolicy(container);
  pod["spec"]["restartPolicy"] = "Never";
  spec["template"] = std::move(pod);
  return spec;
}

static Json workerJob(const Deployment &run, Json pod) {
  pod["spec"]["restartPolicy"] = "Never";
  return {{"completionMode", "Indexed"},      {"parallelism", run.hosts()},
          {"completions", run.hosts()},       {"backoffLimit", always},
          {"podReplacementPolicy", "Failed"}, {"template", std::move(pod)}};
}

/// The jobs of a JobSet, and what follows from their ends. `workers` is the name of the
/// pods of ranks.
static Json jobsSpec(const Deployment &run, const char *workers, Json workerJob,
                     Json launcherTemplate) {
  Json rule = {{"name", "error"},
               {"action", "FailJobSet"},
               {"targetReplicatedJobs", {"launcher"}},
               {"onJobFailureReasons", {"PodFailurePolicy"}}};
  Json launcher = {{"name", "launcher"},
                   {"replicas", 1},
                   {"dependsOn", {{{"name", workers}, {"status", "Ready"}}}},
                   {"template", std::move(launcherTemplate)}};
  return {
      {"network", {{"publishNotReadyAddresses", true}}},
      {"successPolicy", {{"operator", "All"}, {"targetReplicatedJobs", {"launcher"}}}},
      {"failurePolicy",
       {{"maxRestarts", run.checkpoints.empty() ? 0 : run.restarts}, {"rules", {rule}}}},
      {"replicatedJobs",
       {{{"name", workers},
         {"replicas", 1},
         {"template", {{"spec", std::move(workerJob)}}}},
        launcher}}};
}

/// Names that DNS has for the pods of a JobSet, under a headless service of its name.
static std::string hostfileText(const Deployment &run) {
  std::string lines;
  for (int64_t k = 0; k < run.hosts(); ++k)
    lines += run.name + "-worker-0-" + std::to_string(k) + "." + run.name +
             " slots=" + std::to_string(run.slots) + "\n";
  return lines;
}

static Json serviceOf(const Deployment &run) {
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata", metadata(run.name)},
          {"spec",
           {{"clusterIP", "None"},
            {"publishNotReadyAddresses", true},
            {"selector", {{"jobset.sigs.k8s.io/jobset-name", run.name}}}}}};
}

std::string deploy::jobSetText(const Deployment &run) {
  const std::string hosts = run.name + "-hosts";
  Volumes volumes = claimsOf(run);
  addKeys(run, volumes);
  Json workers = workerJob(run, workerPod(run, volumes, "worker"));
  volumes.add("hosts", {{"configMap", {{"name", hosts}}}}, hostFolder, true);
  Json environment = {
      {{"name", "OMPI_MCA_orte_keep_fqdn_hostnames"}, {"value", "true"}},
      {{"name", "OMPI_MCA_plm_rsh_args"}, {"value", "-o ConnectionAttempts=10"}}};
  Json pod = launcherPod(run, volumes, "launcher", commandOf(run), environment);
  Json spec = jobsSpec(run, "worker", std::move(workers),
                       {{"spec", launcherJob(run, "launcher", std::move(pod))}});
  spec["network"] = {{"enableDNSHostnames", true},
                     {"subdomain", run.name},
                     {"publishNotReadyAddresses", true}};
  Json map = {{"apiVersion", "v1"},
              {"kind", "ConfigMap"},
              {"metadata", metadata(hosts)},
              {"data", {{"hostfile", hostfileText(run)}}}};
  Json set = {{"apiVersion", "jobset.x-k8s.io/v1alpha2"},
              {"kind", "JobSet"},
              {"metadata", metadata(run.name)},
              {"spec", std::move(spec)}};
  return yamlText(serviceOf(run)) + "---\n" + yamlText(map) + "---\n" + yamlText(set);
}

std::string deploy::trainJobText(const Deployment &run) {
  const std::string runtime = run.name + "-runtime";
  // The trainer finds containers by the name "node".
  Json workers = workerJob(run, workerPod(run, claimsOf(run), "node"));
  Json pod = launcherPod(run, claimsOf(run), "node", commandOf(run));
  Json launcher = {
      {"metadata",
       {{"labels", {{"trainer.kubeflow.org/trainjob-ancestor-step", "trainer"}}}}},
      {"spec", launcherJob(run, "node", std::move(pod))}};
  Json mpi = {{"mpiImplementation", "OpenMPI"},
              {"numProcPerNode", run.slots},
              {"sshAuthMountPath", keyFolder},
              {"runLauncherAsNode", false}};
  Json jobs = jobsSpec(run, "node", std::move(workers), std::move(launcher));
  Json made = {{"apiVersion", "trainer.kubeflow.org/v1alpha1"},
               {"kind", "TrainingRuntime"},
               {"metadata", metadata(runtime)},
               {"spec",
                {{"mlPolicy", {{"numNodes", run.hosts()}, {"mpi", mpi}}},
                 {"template", {{"spec", std::move(jobs)}}}}}};
  made["metadata"]["labels"]["trainer.kubeflow.org/framework"] = "partita";
  Json reference = {{"apiGroup", "trainer.kubeflow.org"},
                    {"kind", "TrainingRuntime"},
                    {"name", runtime}};
  Json job = {
      {"apiVersion", "trainer.kubeflow.org/v1alpha1"},
      {"kind", "TrainJob"},
      {"metadata", metadata(run.name)},
      {"spec", {{"runtimeRef", reference}, {"trainer", {{"numNodes", run.hosts()}}}}}};
  return yamlText(made) + "---\n" + yamlText(job);
}
