"""Pods of one machine: what controllers of Kubernetes make of manifests, as namespaces.

A pod has network, UTS, IPC, PID and mount namespaces of its own, the addresses and names that DNS
would give, claims and ConfigMaps where its manifest mounts them, and runs the manifest's very
command. In the place of sshd stands a small server that runs what it is sent.
"""
import copy
import os
import re
import signal
import socket
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SSHD = '''#!{python}
"""Runs the commands that clients send, as sshd would: "SSHD -p PORT …"."""
import os, signal, socket, subprocess, sys, threading
server = socket.create_server(("", int(sys.argv[sys.argv.index("-p") + 1])))
def share():
    """Gives a new session the share of the processors that this server has."""
    try:
        with open("/proc/self/autogroup") as file:
            nice = file.read().split()[-1]
        def keep():
            with open("/proc/self/autogroup", "w") as file:
                file.write(nice)
        return keep
    except (OSError, IndexError):
        return lambda: None
keep = share()
def serve(client):
    command = b""
    while not command.endswith(b"\\0"):
        more = client.recv(65536)
        if not more:  # who only looked whether anybody listens
            return client.close()
        command += more
    out = client.fileno()
    done = subprocess.run(["/bin/sh", "-c", command[:-1].decode()], stdin=subprocess.DEVNULL,
                          stdout=out, stderr=out, start_new_session=True,
                          preexec_fn=keep)
    client.sendall(b"\\0%d" % done.returncode)
    client.close()
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
'''

SSH = '''#!{python}
"""The agent of mpirun: "SSH [-x] [-o ConnectionAttempts=N] HOST COMMAND…"."""
import socket, sys, time
words, left = sys.argv[1:], 1
while words[0].startswith("-"):
    if words[0] == "-o":
        left = int(words[1].removeprefix("ConnectionAttempts="))
    words = words[2 if words[0] == "-o" else 1:]
server = None
while server is None:
    try:
        server = socket.create_connection((words[0], 2222), timeout=5)
    except OSError as error:
        left -= 1
        if left == 0:
            sys.exit(f"ssh: connect to host {{words[0]}} port 2222: {{error.strerror or error}}")
        time.sleep(1)
server.settimeout(None)
server.sendall(" ".join(words[1:]).encode() + b"\\0")
text = b""
while b"\\0" not in text:
    more = server.recv(65536)
    if not more:
        sys.exit(f"ssh: connection to {{words[0]}} closed by remote host")
    text += more
    sys.stderr.buffer.write(more.split(b"\\0")[0])
    sys.stderr.flush()
sys.exit(int(text.split(b"\\0")[1] or b"0"))
'''


#: Configuration of ssh in the Containerfile.
SSH_CONFIG = ("Host *\\n  Port 2222\\n  StrictHostKeyChecking no\\n"
              "  UserKnownHostsFile /dev/null\\n  BatchMode yes\\n  LogLevel ERROR\\n")


def can_have_pods():
    """Tells whether this machine lets a process make such namespaces."""
    return subprocess.run(
        ["unshare", "-n", "-u", "-i", "-p", "-m", "--fork", "sh", "-c",
         "ip link add one type veth peer name two && mount -t tmpfs tmpfs /mnt"],
        capture_output=True).returncode == 0


def enter_network():
    """Goes on in namespaces of network, mounts and processes, all of which end with it, with a
    bridge that joins pods."""
    if os.environ.get("PARTITA_TEST_CLUSTER") != "1":
        os.environ["PARTITA_TEST_CLUSTER"] = "1"
        os.execvp("unshare", ["unshare", "-n", "-m", "-p", "--fork", "--kill-child",
                              "--mount-proc", sys.executable, *sys.argv])
    for words in ("link set lo up", "link add pods type bridge",
                  "addr add 10.88.255.254/16 dev pods", "link set pods up"):
        subprocess.run(["ip", *words.split()], check=True)


class Pod:
    """`mounts` are pairs of a folder (None: memory) and a path, and whether it is read-only."""

    def __init__(self, name, command, env, mounts, grace=30):
        self.name, self.command, self.env = name, list(command), dict(env)
        self.mounts, self.grace = mounts, grace
        self.process = None


#: A server of this machine's sshd, at the port of the Containerfile.
SERVER = ("/usr/sbin/sshd -e -p 2222 -h /tmp/key -o PidFile=none -o UsePAM=no -o StrictModes=no"
          " -E /tmp/sshd.log")


def ssh_host(name, folder, env, mounts):
    """A host with this machine's sshd, for a Cluster that `has_ssh`; it stays when sshd ends.
    Sessions have the variables `env`."""
    given = "".join(f" -o SetEnv={name}={value}" for name, value in env.items())
    command = ("ssh-keygen -q -t ed25519 -N '' -f /tmp/key && "
               f"{SERVER}{given} && while :; do sleep 1; done")
    return Pod(name, ["/bin/sh", "-c", command], env,
               [*mounts, (keys_of(folder), "/home/partita/.ssh", True)])


class Cluster:
    """Pods by name. `folder` has what is theirs, `path` the commands of the image. With
    `has_ssh` pods run this machine's sshd and ssh, as the user of the Containerfile."""

    def __init__(self, folder, path, domain="", has_ssh=False):
        self.folder, self.path, self.domain = folder, path, domain
        self.has_ssh = has_ssh
        self.names, self.running = [], []
        os.makedirs(folder, exist_ok=True)
        for name, text in (("sshd", SSHD), ("ssh-agent", SSH)):
            with open(f"{folder}/{name}", "w") as file:
                file.write(text.format(python=sys.executable))
            os.chmod(f"{folder}/{name}", 0o755)

    def address(self, name):
        if name not in self.names:
            self.names.append(name)
        return f"10.88.0.{self.names.index(name) + 1}"

    def script(self, pod):
        """The script of the pod's first process: a root of its own, then the command."""
        root = f"{self.folder}/root-{pod.name}"
        os.makedirs(root, exist_ok=True)
        own = {"etc", "home", "tmp", "run", "proc", "dev"}
        lines = ["set -e", f"hostname {pod.name}", f"mount -t tmpfs tmpfs {root}"]
        for entry in os.listdir("/"):
            path = f"/{entry}"
            if os.path.islink(path):
                lines.append(f"cp -P {path} {root}/")
            elif os.path.isdir(path) and entry not in own:
                lines.append(f"mkdir {root}/{entry}; mount --rbind {path} {root}/{entry}")
        lines += [f"cp -a /etc {root}/etc; mkdir -p {root}/home {root}/run {root}/old",
                  f"mkdir -m 1777 {root}/tmp; mkdir {root}/proc {root}/dev",
                  f"mount -t proc proc {root}/proc; mount --rbind /dev {root}/dev",
                  # The project may lie where a pod has a folder of its own.
                  *(f"mkdir -p {root}{path}; mount --rbind {path} {root}{path}"
                    for path in (ROOT, sys.prefix, sys.base_prefix, self.path)
                    if path.split("/")[1] in own),
                  f"mkdir -p {root}/image; mount --bind {self.folder} {root}/image",
                  f"mount -t tmpfs tmpfs {root}/dev/shm"]
        for source, path, read_only in sorted(pod.mounts, key=lambda it: it[1]):
            lines.append(f"mkdir -p {root}{path}")
            lines.append(f"mount --bind {source} {root}{path}" if source else
                         f"mount -t tmpfs tmpfs {root}{path}")
            if read_only:
                lines.append(f"mount -o remount,bind,ro {root}{path}")
        hosts = "".join(f"{self.address(name)} {name}{self.domain} {name}\n"
                        for name in self.names)
        lines += [f"printf '%s' '127.0.0.1 localhost\n{hosts}' > {root}/etc/hosts",
                  # Names that are not there are refused at once.
                  f"rm -f {root}/etc/resolv.conf",
                  f"echo nameserver 127.0.0.1 > {root}/etc/resolv.conf"]
        if self.has_ssh:
            lines += [f"sed -i /:1000:/d {root}/etc/passwd",
                      f"echo partita:x:1000:1000::/home/partita:/bin/sh >> {root}/etc/passwd",
                      f"mkdir -p {root}/etc/ssh/ssh_config.d {root}/home/partita",
                      f"printf '{SSH_CONFIG}' > {root}/etc/ssh/ssh_config.d/partita.conf",
                      f"chown 1000:1000 {root}/home/partita"]
        lines += [f"cd {root}; pivot_root . old; umount -l /old; cd /",
                  "read go; ip link set lo up; ip link set eth0 up",
                  f"ip addr add {self.address(pod.name)}/16 dev eth0"]
        env = {"PATH": f"{self.path}:/usr/sbin:/usr/bin:/sbin:/bin",
               "OMPI_MCA_mpi_yield_when_idle": "1", **pod.env}
        if not self.has_ssh:
            env |= {"SSHD": "/image/sshd", "OMPI_MCA_plm_rsh_agent": "/image/ssh-agent"}
        for name in ("PARTITA_TARGET_CPU", "ONEDNN_MAX_CPU_ISA", "HOME"):
            if name in os.environ:
                env[name] = os.environ[name]
        if self.has_ssh:
            env["HOME"] = "/home/partita"
        as_user = "setpriv --reuid 1000 --regid 1000 --clear-groups " if self.has_ssh else ""
        lines.append(f'exec {as_user}env -i "$@"')
        return "\n".join(lines), [f"{name}={value}" for name, value in env.items()]

    def start(self, pod):
        script, env = self.script(pod)
        pod.out = open(f"{self.folder}/{pod.name}.out", "a+")
        pod.process = subprocess.Popen(
            ["unshare", "-n", "-u", "-i", "-p", "-m", "--fork", "--kill-child", "/bin/sh", "-c",
             script, "sh", *env, *pod.command], stdin=subprocess.PIPE, stdout=pod.out,
            stderr=pod.out, text=True)
        end = time.time() + 20
        children = f"/proc/{pod.process.pid}/task/{pod.process.pid}/children"
        while True:
            with open(children) as file:
                pod.first = file.read().split()[:1]
            if pod.first:
                break
            if time.time() > end or pod.process.poll() is not None:
                raise RuntimeError(f"pod {pod.name} does not start: {self.text(pod)}")
            time.sleep(0.01)
        pod.first = int(pod.first[0])
        link = f"pod{self.names.index(pod.name)}"
        subprocess.run(["ip", "link", "del", link], capture_output=True)
        # A hardware address for each name, so that nobody sends to that of a pod that is gone.
        number = self.names.index(pod.name) + 1
        for words in (f"link add {link} type veth peer name eth0 address 02:00:0a:58:00:"
                      f"{number:02x} netns {pod.first}",
                      f"link set {link} master pods up"):
            subprocess.run(["ip", *words.split()], check=True)
        pod.process.stdin.write("go\n")
        pod.process.stdin.close()
        self.running.append(pod)

    def wait_ready(self, pod, port=2222):
        """Waits as the readiness probe does."""
        end = time.time() + 120
        while time.time() < end and pod.process.poll() is None:
            try:
                return socket.create_connection((self.address(pod.name), port), 1).close()
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"pod {pod.name} is not ready: {self.text(pod)}")

    def kill(self, pod, how=signal.SIGKILL):
        os.kill(pod.first, how)

    def wait(self, pod, seconds=90):
        """The exit status of the container, as the kubelet tells it."""
        status = pod.process.wait(timeout=seconds)
        return 128 - status if status < 0 else status

    def processes(self, pod):
        """Names and ids of what runs in a pod."""
        own = os.readlink(f"/proc/{pod.first}/ns/pid")
        result = []
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and os.readlink(f"/proc/{name}/ns/pid") == own:
                    with open(f"/proc/{name}/comm") as file:
                        result.append((file.read().strip(), int(name)))
            except OSError:
                pass
        return result

    def text(self, pod):
        with open(f"{self.folder}/{pod.name}.out") as file:
            return file.read()

    def end(self):
        for pod in self.running:
            if pod.process.poll() is None:
                pod.process.kill()
                pod.process.wait()
            pod.out.close()
        self.running.clear()


# ---------------------------------------------------------------------------------------
# Controllers
# ---------------------------------------------------------------------------------------

def mounts_of(spec, container, volumes, folder):
    """Volumes of a pod as folders: `volumes` has those of claims, ConfigMaps and Secrets by
    name."""
    sources = {}
    for volume in spec.get("volumes", []):
        if "persistentVolumeClaim" in volume:
            sources[volume["name"]] = volumes[volume["persistentVolumeClaim"]["claimName"]]
        elif "configMap" in volume:
            sources[volume["name"]] = volumes[volume["configMap"]["name"]]
        elif "secret" in volume:
            sources[volume["name"]] = volumes[volume["secret"]["secretName"]]
        elif volume.get("emptyDir") == {"medium": "Memory"}:
            sources[volume["name"]] = None
        else:
            raise RuntimeError(f"a volume is {volume}")
    mounts = []
    for mount in container["volumeMounts"]:
        source = sources[mount["name"]]
        if "subPath" in mount:
            source = f"{source}/{mount['subPath']}"
        mounts.append((source, mount["mountPath"], mount.get("readOnly", False)))
    return mounts


def env_of(container, labels, more=()):
    """Variables in their order, with "$(NAME)" of earlier ones."""
    env = {}
    for entry in [*container.get("env", []), *more]:
        value = entry.get("value")
        if value is None:
            path = entry["valueFrom"]["fieldRef"]["fieldPath"]
            value = labels[re.fullmatch(r"metadata\.labels\['(.*)'\]", path)[1]]
        env[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda name: env[name[1]], value)
    return env


def pod_of(name, template, volumes, folder, labels=None, env=(), extra=()):
    spec = template["spec"]
    (container,) = spec["containers"]
    mounts = mounts_of(spec, container, volumes, folder) + list(extra)
    return Pod(name, container["command"], env_of(container, labels or {}, env), mounts,
               spec["terminationGracePeriodSeconds"])


OPEN_MPI = [{"name": "OMPI_MCA_orte_keep_fqdn_hostnames", "value": "true"},
            {"name": "OMPI_MCA_orte_default_hostfile", "value": "/etc/mpi/hostfile"},
            {"name": "OMPI_MCA_plm_rsh_args", "value": "-o ConnectionAttempts=10"}]


def keys_of(folder):
    """A Secret with keys of ssh, readable by the group of pods, and not their user's."""
    path = f"{folder}/keys"
    if not os.path.exists(path):
        os.makedirs(path)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{path}/id_rsa"],
                       check=True)
        os.chmod(f"{path}/id_rsa", 0o640)
        os.chown(f"{path}/id_rsa", 0, 1000)
        os.link(f"{path}/id_rsa.pub", f"{path}/authorized_keys")
    return path


def folder_of(folder, name, files):
    path = f"{folder}/{name}"
    os.makedirs(path, exist_ok=True)
    for file, text in files.items():
        with open(f"{path}/{file}", "w") as out:
            out.write(text)
    return path


class Expansion:
    """Pods of a job, and what follows from the end of the one that starts ranks: `next(status)`
    is "done", "failed", "launcher" (that pod is made again) or "all"."""

    domain = ""

    def __init__(self, documents, volumes, folder):
        self.by_kind = {it["kind"]: it for it in documents}
        self.volumes, self.folder = dict(volumes), folder
        self.failures = 0


class MpiJob(Expansion):
    def __init__(self, documents, volumes, folder):
        super().__init__(documents, volumes, folder)
        job = self.by_kind["MPIJob"]
        name, spec = job["metadata"]["name"], job["spec"]
        replicas = spec["mpiReplicaSpecs"]
        self.domain = f".{name}.default.svc"
        workers = [f"{name}-worker-{k}" for k in range(replicas["Worker"]["replicas"])]
        hosts = folder_of(folder, "hosts", {"hostfile": "".join(
            f"{worker}{self.domain} slots={spec['slotsPerWorker']}\n" for worker in workers)})
        keys = (keys_of(folder), spec["sshAuthMountPath"], True)
        self.workers = [pod_of(worker, replicas["Worker"]["template"], volumes, folder,
                               extra=[keys]) for worker in workers]
        self.launcher = pod_of(f"{name}-launcher", replicas["Launcher"]["template"], volumes,
                               folder, {"batch.kubernetes.io/controller-uid": f"uid-{folder}"
                                        .replace("/", "-")}, OPEN_MPI,
                               [keys, (hosts, "/etc/mpi", True)])
        self.limit = spec["runPolicy"]["backoffLimit"]
        if replicas["Worker"]["restartPolicy"] != "OnFailure" or \
                replicas["Launcher"]["restartPolicy"] != "Never":
            raise RuntimeError("a worker is made again in place, a launcher by its Job")

    def next(self, status):
        if status == 0:
            return "done"
        self.failures += 1
        return "failed" if self.failures > self.limit else "launcher"


class JobSet(Expansion):
    def __init__(self, documents, volumes, folder):
        super().__init__(documents, volumes, folder)
        self.make(self.by_kind["JobSet"], "worker")

    def make(self, job_set, workers, env=(), launcher_extra=(), extra=()):
        name, spec = job_set["metadata"]["name"], job_set["spec"]
        for document in self.by_kind.values():
            if document["kind"] == "ConfigMap":
                self.volumes[document["metadata"]["name"]] = folder_of(
                    self.folder, "hosts", document["data"])
        self.volumes.setdefault("keys", keys_of(self.folder))
        self.domain = f".{name}"
        jobs = {it["name"]: it["template"]["spec"] for it in spec["replicatedJobs"]}
        self.workers = [
            pod_of(f"{name}-{workers}-0-{k}", jobs[workers]["template"], self.volumes,
                   self.folder, extra=extra) for k in range(jobs[workers]["completions"])]
        self.launcher = pod_of(f"{name}-launcher-0-0", jobs["launcher"]["template"],
                               self.volumes, self.folder, env=env,
                               extra=[*extra, *launcher_extra])
        self.job, self.policy = jobs["launcher"], spec["failurePolicy"]

    def next(self, status):
        if status == 0:
            return "done"
        for rule in self.job["podFailurePolicy"]["rules"]:
            exits = rule.get("onExitCodes")
            if exits and exits["operator"] == "In" and status in exits["values"]:
                if rule["action"] == "Ignore":
                    return "launcher"
                (fail,) = self.policy["rules"]
                if (rule["action"], fail["action"], fail["onJobFailureReasons"]) == \
                        ("FailJob", "FailJobSet", ["PodFailurePolicy"]):
                    return "failed"
                raise RuntimeError(f"rules are {rule} and {fail}")
        if self.job["backoffLimit"] != 0:
            raise RuntimeError("a loss is counted by the JobSet")
        self.failures += 1
        return "failed" if self.failures > self.policy["maxRestarts"] else "all"


class TrainJob(JobSet):
    def __init__(self, documents, volumes, folder):
        Expansion.__init__(self, documents, volumes, folder)
        job, runtime = self.by_kind["TrainJob"], self.by_kind["TrainingRuntime"]
        reference = job["spec"]["runtimeRef"]
        if reference != {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime",
                         "name": runtime["metadata"]["name"]}:
            raise RuntimeError(f"runtimeRef is {reference}")
        policy = runtime["spec"]["mlPolicy"]
        made = {"metadata": job["metadata"],
                "spec": copy.deepcopy(runtime["spec"]["template"]["spec"])}
        by_name = {it["name"]: it["template"] for it in made["spec"]["replicatedJobs"]}
        nodes = by_name["node"]["spec"]
        nodes["completions"] = nodes["parallelism"] = job["spec"]["trainer"]["numNodes"]
        if by_name["launcher"]["metadata"]["labels"] != \
                {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}:
            raise RuntimeError("the launcher is no trainer's")
        name, mpi = job["metadata"]["name"], policy["mpi"]
        hosts = folder_of(folder, "hosts", {"hostfile": "".join(
            f"{name}-node-0-{k}.{name} slots={mpi['numProcPerNode']}\n"
            for k in range(nodes["completions"]))})
        self.make(made, "node", OPEN_MPI, [(hosts, "/etc/mpi", False)],
                  [(keys_of(folder), mpi["sshAuthMountPath"], False)])


KINDS = {"mpijob": MpiJob, "jobset": JobSet, "trainjob": TrainJob}
