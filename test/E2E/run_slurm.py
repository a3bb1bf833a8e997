#!/usr/bin/env python3
"""By hand, as root: `partita deploy --slurm` under Debian's slurm-wlm, with a controller and two nodes
made of namespaces.

usage: run_slurm.py PARTITA        (apt-get install slurm-wlm munge)

A job is submitted; a node is killed and comes back; the batch shell is told to go; both times the job
is queued again and goes on, and its losses are those of a run that nothing happened to. A job that
is cancelled stays so.
"""
import os
import subprocess
import sys
import tempfile
import time

import cluster
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

    def state(self, job):
        text = self.call("scontrol", "show", "job", job)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def wait(self, what, holds, seconds=120):
        end = time.time() + seconds
        while not holds():
            if time.time() > end:
                raise RuntimeError(f"no {what} within {seconds} s: {self.call('sinfo')}"
                                   f"{self.call('scontrol', 'show', 'job')}")
            time.sleep(0.1)

    def submit(self, folder):
        text = self.call("sh", "-c", f"cd {folder} && sbatch --export=ALL {folder}/job.sh")
        if "Submitted batch job" not in text:
            raise RuntimeError(text)
        return text.split()[-1]


def check(work, slurm, folder):
    bundle, expected = work.bundle("gpt2-tiny", "dp")
    shared = f"{folder}/shared"
    os.makedirs(shared)
    work.deploy(bundle, "dp", ["--slurm"], {"data": f"{folder}/gpt2-tiny.npz",
                                           "shared": shared}, f"{folder}/job.sh")
    log = f"{shared}/log.jsonl"
    slurm.wait("node", lambda: slurm.call("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == "2")
    job = slurm.submit(folder)
    begun = time.time()
    slurm.wait("step 20", lambda: run_deploy.lines_of(log) >= 20)
    lost = slurm.pods["node-1"]
    slurm.there.kill(lost)
    slurm.there.wait(lost)
    print(f"{time.time() - begun:.1f} s: node-1 is killed behind step "
          f"{run_deploy.lines_of(log)}", flush=True)
    time.sleep(3)
    slurm.there.start(lost)
    before = run_deploy.lines_of(log)
    slurm.wait("new step", lambda: run_deploy.lines_of(log) > before + 5)
    state = slurm.state(job)
    print(f"{time.time() - begun:.1f} s: goes on, queued again {state['Restarts']} times",
          flush=True)
    slurm.call("scancel", "--signal=TERM", "--batch", job)
    slurm.wait("requeue", lambda: int(slurm.state(job)["Restarts"]) > int(state["Restarts"]))
    print(f"{time.time() - begun:.1f} s: told to go, queued again", flush=True)
    slurm.wait("end", lambda: slurm.state(job)["JobState"] == "COMPLETED", 300)
    run_deploy.same_losses("slurm", log, expected)
    print(f"{time.time() - begun:.1f} s: done, {len(expected)} losses are the same", flush=True)
    # A job that is cancelled stays so.
    os.rename(shared, f"{folder}/first")
    os.makedirs(shared)
    job = slurm.submit(folder)
    slurm.wait("step 20", lambda: run_deploy.lines_of(log) >= 20)
    slurm.call("scancel", job)
    slurm.wait("end", lambda: slurm.state(job)["JobState"] == "CANCELLED")
    time.sleep(15)
    state = slurm.state(job)
    if (state["JobState"], state["Restarts"]) != ("CANCELLED", "0"):
        raise RuntimeError(f"a cancelled job is {state}")
    print("a cancelled job stays so", flush=True)


def main():
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
