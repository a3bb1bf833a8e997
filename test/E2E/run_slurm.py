#!/usr/bin/env python3
"""`partita deploy --slurm` under Debian's slurm-wlm: a controller and two nodes made of namespaces.

usage: run_slurm.py PARTITA        (as root; apt-get install slurm-wlm munge)

A job is submitted. A node is killed and comes back, and is killed and stays away; ranks are killed
until the run ends with 75; the batch script is told to go; the user queues the job again. Each
time the job goes on, and its losses are those of a run that nothing happened to, each step once. A
job that is cancelled stays so. Where Slurm or namespaces are missing nothing is run.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import cluster
import kills
import run_deploy

CONFIG = """ClusterName=test
SlurmctldHost=ctl
SlurmUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5
StateSaveLocation=/var/spool/partita
SlurmdSpoolDir=/var/spool/partita
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
ReturnToService=2
MpiDefault=none
SlurmdTimeout=10
KillWait=5
JobRequeue=1
NodeName=node-[0-1] CPUs={cpus} RealMemory=2000 State=UNKNOWN
PartitionName=main Nodes=node-[0-1] Default=YES MaxTime=INFINITE State=UP
"""
START = """set -e
mkdir -p /run/munge /var/spool/partita
cp /image/munge.key /run/munge.key; chmod 400 /run/munge.key; chmod 755 /run/munge
munged --force --key-file=/run/munge.key --log-file=/run/munged.log --pid-file=/run/munged.pid \
  --seed-file=/run/munged.seed
"""


class Slurm:
    def __init__(self, folder, partita):
        self.there = cluster.Cluster(f"{folder}/pods", os.path.dirname(partita))
        with open(f"{folder}/pods/munge.key", "wb") as file:
            file.write(os.urandom(128))
        config = cluster.folder_of(folder, "slurm", {
            "slurm.conf": CONFIG.format(cpus=os.cpu_count())})
        self.pods = {}
        for name, command in (("ctl", "exec slurmctld -D"), ("node-0", "exec slurmd -D -N node-0"),
                              ("node-1", "exec slurmd -D -N node-1")):
            self.there.address(name)
            state = cluster.folder_of(folder, f"state-{name}", {})
            self.pods[name] = cluster.Pod(name, ["/bin/sh", "-c", START + command], {}, [
                (config, "/etc/slurm", False), (folder, folder, False),
                (state, "/var/spool/partita", False)])
        for pod in self.pods.values():
            self.there.start(pod)

    def call(self, *words):
        """Output of a command in the pod of the controller."""
        done = subprocess.run(
            ["nsenter", "-t", str(self.pods["ctl"].first), "-m", "-n", "-u", "-i", "-p", "env",
             "-i", f"PATH={self.there.path}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
             "OMPI_MCA_mpi_yield_when_idle=1", *words], capture_output=True, text=True)
        return done.stdout + done.stderr

    def wait(self, what, holds, seconds=120):
        end = time.time() + seconds
        while not holds():
            if time.time() > end:
                raise RuntimeError(f"no {what} within {seconds} s: {self.call('sinfo')}"
                                   f"{self.call('scontrol', 'show', 'job')}")
            time.sleep(0.1)


class Job:
    """A job of the script that `partita deploy` has written."""

    def __init__(self, slurm, folder, log):
        self.slurm, self.folder, self.log, self.begin = slurm, folder, log, time.time()
        text = slurm.call("sh", "-c", f"cd {folder} && sbatch --export=ALL {folder}/job.sh")
        if "Submitted batch job" not in text:
            raise RuntimeError(text)
        self.id = text.split()[-1]

    def state(self):
        text = self.slurm.call("scontrol", "show", "job", self.id)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def text(self):
        """Lines of the batch script, of all its starts."""
        with open(f"{self.folder}/train-{self.id}.log") as file:
            return file.read()

    def await_steps(self, count=20):
        """Waits for so many steps more than there are."""
        before = run_deploy.lines_of(self.log)
        self.slurm.wait("new step", lambda: run_deploy.lines_of(self.log) >= before + count)

    def await_requeue(self, act, again=lambda: None):
        """Calls `act`, and waits until the job is queued once more; `again` is called
        meanwhile."""
        before = int(self.state()["Restarts"])
        act()

        def holds():
            again()
            return int(self.state()["Restarts"]) > before
        self.slurm.wait("requeue", holds)

    def await_end(self, state):
        self.slurm.wait("end", lambda: self.state()["JobState"] == state, 300)

    def tell(self, what):
        print(f"{time.time() - self.begin:.1f} s: {what}; queued again "
              f"{self.state()['Restarts']} times", flush=True)


def ranks_on(slurm, name):
    return [pid for comm, pid in slurm.there.processes(slurm.pods[name])
            if comm in ("partita", "partita-run")]


def disturb(job, slurm):
    """Losses inside the allocation, of a node, of ranks again and again; a signal to the batch
    script; a requeue by the user."""
    lost = slurm.pods["node-1"]

    def kill_node():
        slurm.there.kill(lost)
        slurm.there.wait(lost)

    def start_node():
        slurm.there.running.remove(lost)
        slurm.there.start(lost)
    job.await_steps()
    kill_node()
    time.sleep(3)
    start_node()
    job.await_steps()
    if job.state()["Restarts"] != "0":
        raise RuntimeError("a node that came back was not gone on with")
    job.tell("node-1 was killed and came back, and the run goes on")
    job.await_requeue(kill_node)
    start_node()
    job.await_steps()
    job.tell("node-1 was killed and was away")
    job.await_requeue(lambda: None, lambda: kills.kill_all(ranks_on(slurm, "node-1")))
    if not re.search(r"^error: .*; started again 3 times without a new generation "
                     r"\(--restarts\)$", job.text(), re.MULTILINE):
        raise RuntimeError("ranks that are lost again and again did not end with 75")
    job.await_steps()
    job.tell("ranks on node-1 were killed until the run ended with 75")
    job.await_requeue(lambda: slurm.call("scancel", "--signal=TERM", "--batch", job.id))
    job.await_steps()
    job.tell("the batch script was told to go, behind which the run ended with 143")
    job.await_requeue(lambda: slurm.call("scontrol", "requeue", job.id))
    job.await_steps()
    job.tell("scontrol requeue")


def check(work, slurm, folder):
    model = "gpt2-tiny"
    bundle, expected = work.bundle(model, "dp")
    shared = f"{folder}/shared"
    os.makedirs(shared)
    work.deploy(bundle, model, "dp", ["--slurm"], {
        "data": f"{folder}/{model}.npz", "shared": shared}, f"{folder}/job.sh")
    log = f"{shared}/log.jsonl"
    slurm.wait("node", lambda: slurm.call("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == "2")
    job = Job(slurm, folder, log)
    disturb(job, slurm)
    job.await_end("COMPLETED")
    run_deploy.same_losses("slurm", log, expected)
    job.tell(f"done, with the {len(expected)} losses of a run that nothing happened to")
    # A job that is cancelled stays so.
    os.rename(shared, f"{folder}/first")
    os.makedirs(shared)
    job = Job(slurm, folder, log)
    job.await_steps()
    slurm.call("scancel", job.id)
    job.await_end("CANCELLED")
    time.sleep(15)
    state = job.state()
    if (state["JobState"], state["Restarts"]) != ("CANCELLED", "0"):
        raise RuntimeError(f"a cancelled job is {state}")
    print("a cancelled job stays so", flush=True)


def missing():
    """Names what keeps a cluster from running on this machine; empty: nothing."""
    lacking = [name for name in ("slurmctld", "slurmd", "munged") if not shutil.which(
        name, path=f"{os.environ['PATH']}:/usr/sbin")]
    if lacking:
        return f"{', '.join(lacking)} not installed here (slurm-wlm, munge)"
    return "" if os.environ.get("PARTITA_TEST_CLUSTER") == "1" or cluster.can_have_pods() \
        else "no namespaces can be made here"


def main():
    if why := missing():
        print(f"{why}: nothing was run under Slurm", flush=True)
        return
    cluster.enter_network()
    run_deploy.STEPS = 3000  # so that it is met after each restart
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        partita = os.path.abspath(sys.argv[1])
        work = run_deploy.Work(partita, folder)
        slurm = Slurm(folder, partita)
        try:
            check(work, slurm, folder)
        except Exception:
            for name, pod in slurm.pods.items():
                print(f"== {name}\n{slurm.there.text(pod)[-1500:]}")
            for name in os.listdir(folder):
                if name.endswith(".log"):
                    with open(f"{folder}/{name}") as file:
                        print(f"== {name}\n{file.read()[-3000:]}")
            raise
        finally:
            slurm.there.end()


if __name__ == "__main__":
    main()
