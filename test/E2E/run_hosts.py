#!/usr/bin/env python3
"""Faults of three hosts while they train: each is named, none hangs, and a slow link is no loss.

usage: run_hosts.py PARTITA PARTITA_RUN [--faults 20] [--seed 1] [--only KIND] [--ssh]

Three hosts of namespaces on one machine (network, UTS, IPC, processes, mounts, a /dev/shm of their
own) train a small transformer, elastic over 1 to 3 ranks. A fault is drawn by the seed: which one,
on which host, at which step. `named` is from the fault to the line that names it and its host. A
fault that ends the run of all ranks is gone on with by the hosts that are left, and the losses of
all steps are those of a run that nothing happened to, within 1e-4. What was given up comes back
late, and neither joins nor writes. With --ssh hosts have this machine's sshd, and none runs as
root. Where the kernel allows no namespaces nothing is run. The quick
tier has one fault, the full one has one of each kind; docs/deploy.md has twenty.
"""
import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time

import cluster
import tier
from generations import files_of, losses, steps_of
from run_elastic import SEED, Transformer, is_alive, near, steps_done, wait_for

HOSTS, STEPS = 3, 3000
#: Moves the clock that programs of a host see.
CLOCK = """#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = syscall(SYS_clock_gettime, clock, now);
  if (clock == CLOCK_REALTIME)
    now->tv_sec += 90;
  return result;
}
"""


class Faulty:
    """A cluster of three hosts and the run on them."""

    def __init__(self, work, name, steps, words=()):
        self.work, self.place, self.words = work, work.place(name), words
        self.folder = f"{work.folder}/cluster-{name}"
        self.there = cluster.Cluster(self.folder, os.path.dirname(work.partita),
                                     has_ssh=work.has_ssh)
        self.steps = steps
        self.mounts = {k: [(work.folder, work.folder, False)] for k in range(HOSTS)}
        self.env = {k: {} for k in range(HOSTS)}
        self.hosts = f"{self.folder}/hosts"
        with open(self.hosts, "w") as file:
            file.write("".join(f"node-{k} slots=1\n" for k in range(HOSTS)))

    def start(self):
        """Starts hosts, then the run from a fourth one, as a launcher of a cluster is."""
        has_ssh = self.work.has_ssh
        self.nodes = [
            cluster.ssh_host(f"node-{k}", self.folder, self.env[k], self.mounts[k]) if has_ssh
            else cluster.Pod(f"node-{k}", ["/image/sshd", "-p", "2222"], self.env[k],
                             self.mounts[k]) for k in range(HOSTS)]
        words = [self.work.partita, "run", f"{self.work.folder}/step", "--elastic", f"1..{HOSTS}",
                 "--hostfile", self.hosts, "--data", f"{self.work.folder}/train.npz", "--seed",
                 SEED, "--steps", str(self.steps), "--save-every", "5", "--resume",
                 "--checkpoint-dir", f"{self.place}/c", "--log", f"{self.place}/log.jsonl",
                 "--log-dir", f"{self.place}/logs", "--restarts", "5", *self.words]
        keys = [(cluster.keys_of(self.folder), "/home/partita/.ssh", True)] if has_ssh else []
        self.launcher = cluster.Pod("launcher", words, {}, [
            (self.work.folder, self.work.folder, False), (self.folder, self.folder, False),
            *keys])
        if has_ssh:
            for folder, _, _ in os.walk(self.place):
                os.chown(folder, 1000, 1000)
        for pod in (*self.nodes, self.launcher):
            self.there.address(pod.name)
        for pod in self.nodes:
            self.there.start(pod)
        for pod in self.nodes:
            self.there.wait_ready(pod)
        self.there.start(self.launcher)
        return self

    def text(self):
        return self.there.text(self.launcher)

    def lines(self):
        return [line for line in self.text().splitlines() if not line.startswith("step ")]

    def await_line(self, pattern, seconds):
        """Seconds until a line is there."""
        begin = time.time()
        while not (found := re.search(pattern, self.text(), re.MULTILINE)):
            if time.time() - begin > seconds or self.launcher.process.poll() is not None:
                raise RuntimeError(f"no line {pattern!r} within {seconds} s")
            time.sleep(0.005)
        return time.time() - begin, found[0]

    def await_steps(self, count):
        wait_for(self.launcher.process, lambda: steps_done(self.place) >= count,
                 f"step {count}")

    def pids(self, k):
        """Processes of a host, by their names."""
        return self.there.processes(self.nodes[k])

    def signal(self, k, number, only=None):
        found = [pid for name, pid in self.pids(k) if only in (None, name)]
        if not found:
            raise RuntimeError(f"node-{k} has no process {only}: {self.pids(k)}")
        for pid in found:
            os.kill(pid, number)

    def link(self, k, *words):
        subprocess.run(["ip", "link", "set", f"pod{k}", *words], check=True)

    def inside(self, k, *words):
        done = subprocess.run(["nsenter", "-t", str(self.nodes[k].first), "-n", "-m", "-p",
                               *words], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{words}: {done.stderr}")

    def end(self):
        self.there.end()


# ---------------------------------------------------------------------------------------
# Faults: each makes one on host k of a run and gives the line that names it, and how the
# host comes back (None: it was never away)
# ---------------------------------------------------------------------------------------

def link_down(run, k):
    run.link(k, "down")
    return "nothing has come from it for 3 s: its link is cut, or it is off", \
        lambda: run.link(k, "up")


def host_stopped(run, k):
    run.signal(k, signal.SIGSTOP)
    return "it stands still: it receives, and nothing has run there for 3 s", \
        lambda: run.signal(k, signal.SIGCONT)


def rank_stopped(run, k):
    """Stops one process of the host: other ranks wait for it, and tell of themselves."""
    run.signal(k, signal.SIGSTOP, only="partita")
    return r"no sign of life of the process for \d s", None


def agent_gone(run, k):
    run.signal(k, signal.SIGKILL, only="partita-agent")
    return "its agent is gone", None


def ssh_gone(run, k):
    """The server at which mpirun's daemon was started ends, and all that it started."""
    run.there.kill(run.nodes[k])
    run.there.wait(run.nodes[k])

    def back():
        run.there.running.remove(run.nodes[k])
        run.there.start(run.nodes[k])
    return "(its agent is gone|the connection to it was lost|its server of ssh is gone)", back


def slow_link(run, k):
    ends = ([f"pod{k}"], []), (["eth0"], ["nsenter", "-t", str(run.nodes[k].first), "-n"])
    for device, before in ends:
        subprocess.run([*before, "tc", "qdisc", "add", "dev", *device, "root", "tbf", "rate",
                        "1mbit", "burst", "4kb", "latency", "800ms"], check=True)

    def back():
        time.sleep(10)  # a host that is called dead is so behind 3 s
        for device, before in ends:
            subprocess.run([*before, "tc", "qdisc", "del", "dev", *device, "root"], check=True)
    return r"its link is slow: \d+ ms there and back, [\d.]+ ms without load", back


def read_only(run, k):
    def mount(how):
        for _ in range(200):  # a save that is under way makes it busy
            try:
                return run.inside(k, "mount", "-o", f"remount,bind,{how}", f"{run.place}/c")
            except RuntimeError:
                time.sleep(0.02)
        raise RuntimeError("the folder is busy")

    def back():
        run.await_line("^no checkpoint was written, training goes on: .*: Read-only file system",
                       30)
        mount("rw")
        run.await_line(f"^host 'node-{k}': the folder '{run.place}/c' can be written again", 10)
    mount("ro")
    return f"the folder '{run.place}/c' cannot be written there: Read-only file system", back


def sshd_gone(run, k):
    """The server and its sessions end, and what they have started does not."""
    run.signal(k, signal.SIGKILL, only="sshd")

    def back():
        subprocess.run(["nsenter", "-t", str(run.nodes[k].first), "-a", "setpriv", "--reuid",
                        "1000", "--regid", "1000", "--clear-groups", "/bin/sh", "-c",
                        cluster.SERVER], check=True)
    return "its server of ssh is gone", back


LIVE = {"link down": link_down, "host stopped": host_stopped, "agent gone": agent_gone,
        "rank stopped": rank_stopped,
        "ssh gone": ssh_gone, "slow link": slow_link, "folder read-only": read_only}
#: Faults more where hosts have a server of ssh apart from all else.
WITH_SSH = {"sshd gone": sshd_gone}
#: Lines of a run that goes on, where these are not of two hosts. "": none was lost.
GOES_ON = {"agent gone": r"^world of 3 ranks(.|\n)*^world of 3 ranks",
           "rank stopped": r"^world of 3 ranks(.|\n)*^world of 3 ranks", "slow link": "",
           "folder read-only": ""}


def check_given_up(run, k, pids):
    """Processes of a host that comes back late have ended, or do so at once."""
    end = time.time() + 5
    while left := [pid for pid in pids if is_alive(pid)]:
        if time.time() > end:
            raise RuntimeError(f"{left} of node-{k} go on though they were given up")
        time.sleep(0.02)


def check_live(work, number, kind, k, at, prepared):
    """A fault while the run trains; the line of its results."""
    run = Faulty(work, f"fault-{number}", STEPS,
                 ["--timeout", "3"] if kind == "rank stopped" else ())
    os.makedirs(f"{run.place}/c")
    for mounts in run.mounts.values():
        mounts.append((f"{run.place}/c", f"{run.place}/c", False))
    try:
        run.start()
        run.await_steps(at)
        name = re.escape(f"rank {k} on host 'node-{k}': " if kind == "rank stopped" else
                         f"host 'node-{k}': ")
        begin = time.time()
        pattern, back = {**LIVE, **WITH_SSH}[kind](run, k)
        made = time.time() - begin
        seconds, line = run.await_line(name + pattern, 10)
        seconds += made
        if goes_on := GOES_ON.get(kind, "^world of 2 ranks, dp=2; idle: 1 place of 'node-"):
            run.await_line(goes_on, 30)
        if back:
            given_up = [pid for name, pid in run.pids(k) if name.startswith("partita")] \
                if kind in ("link down", "host stopped") else []
            back()
            check_given_up(run, k, given_up)
        run.await_steps(steps_done(run.place) + 20)
        run.there.kill(run.launcher, signal.SIGTERM)
        if (status := run.there.wait(run.launcher, 60)) != 143:
            raise RuntimeError(f"told to end, it ended with {status}")
        if kind in ("slow link", "folder read-only") and "lost at" in run.text():
            raise RuntimeError("the host was called lost")
        made = steps_done(run.place)
        near(kind, run.place, prepared.losses(made), made)
        if steps_of(run.place)[-1] != made:
            raise RuntimeError(f"saved are {steps_of(run.place)}")
        # From a read-only folder nothing can be removed; the next run does that.
        begun = r"|step-\d+\.tmp-\w+" if kind == "folder read-only" else ""
        marks = [it for it in os.listdir(f"{run.place}/c") if it.startswith("incarnation-")]
        left = [it for it in files_of(run.place) if not re.fullmatch(rf"step-\d+{begun}", it)]
        if left or len(marks) != 1:
            raise RuntimeError(f"{left} and {marks} are left")
        return seconds, line
    except Exception as error:
        raise RuntimeError("\n".join([f"{kind}: {error}", *run.lines()[-40:]])) from error
    finally:
        run.end()


# ---------------------------------------------------------------------------------------
# Faults that are there from the start
# ---------------------------------------------------------------------------------------

def check_start(work, number, kind, k, prepared):
    run = Faulty(work, f"fault-{number}", 12)
    if kind == "wrong bundle":
        run.mounts[k].append((prepared.other_bundle(), f"{work.folder}/step", True))
        pattern, expected = (f"'{work.folder}/step(/worlds/\\d)?' is another bundle there "
                             r"\(hash \w{32}\) than on this host \(\w{32}\)"), 1
    elif kind == "other folder":
        for path in (f"{run.place}/c", f"{run.place}/elsewhere"):
            os.makedirs(path)
        run.mounts[k].append((f"{run.place}/elsewhere", f"{run.place}/c", False))
        pattern, expected = (f"'{run.place}/c' is another folder there than on the host of rank 0",
                             1)
    else:
        run.env[k]["LD_PRELOAD"] = prepared.clock()
        pattern, expected = "its clock is (89|90|91) s ahead of this host's", 0
    try:
        run.start()
        run.await_line("^world of ", 60)
        if kind == "other folder":  # ranks find it, which are to be there first
            wait_for(run.launcher.process, lambda: all(
                os.path.exists(f"{run.place}/logs/rank-{rank}.log") for rank in range(HOSTS)),
                "three ranks")
        # The first of the others tells if the folder of rank 0 is the other one.
        place = rf"rank \d on 'node-{k if k else 1}': " if kind == "other folder" else \
            re.escape(f"host 'node-{k}': ")
        seconds, line = run.await_line(place + pattern, 30)
        status = run.there.wait(run.launcher, 120)
        if status != expected:
            raise RuntimeError(f"ended with {status}")
        if expected == 0:
            near(kind, run.place, prepared.losses(12), 12)
        elif os.path.exists(f"{run.place}/c") and steps_of(run.place):
            raise RuntimeError("something was trained")
        return seconds, line
    except Exception as error:
        raise RuntimeError("\n".join([f"{kind}: {error}", *run.lines()[-40:]])) from error
    finally:
        run.end()


START = ["wrong bundle", "clock off", "other folder"]


def kinds_of(has_ssh):
    return [*LIVE, *(WITH_SSH if has_ssh else ()), *START]


def drawn(count, draw, kinds):
    """Every kind in turn, from a drawn one on, on drawn hosts and at drawn steps."""
    begin = draw.randrange(len(kinds)) if count < len(kinds) else 0
    for number in range(count):
        yield (number, kinds[(begin + number) % len(kinds)], draw.randrange(HOSTS),
               draw.randrange(8, 30))


class Prepared:
    """Bundles, and the losses of a run that nothing happens to: all made when first needed."""

    def __init__(self, work):
        self.work, self.known = work, []
        self.compile("step")

    def compile(self, name, *words):
        meshes = [word for ranks in (3, 2, 1) for word in ("--mesh", f"dp={ranks}")]
        done = self.work.compiled("-o", f"{self.work.folder}/{name}", *meshes, "--mode",
                                  "data-parallel", *words)
        if done.returncode:
            raise RuntimeError(done.stderr)

    def other_bundle(self):
        path = f"{self.work.folder}/other"
        if not os.path.exists(path):
            self.compile("other", "--threads", "2")
        return path

    def clock(self):
        path = f"{self.work.folder}/clock"
        with open(f"{path}.c", "w") as file:
            file.write(CLOCK)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", f"{path}.so", f"{path}.c"],
                       check=True)
        return f"{path}.so"

    def losses(self, count):
        if len(self.known) < count:
            place = self.work.place(f"reference-{count}")
            self.work.run("step/worlds/2", place, "--steps", str(count))
            self.known = losses(place)
        return self.known[:count]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("partita")
    parser.add_argument("partita_run")
    parser.add_argument("--faults", type=int, help="absent: one of each kind")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("PARTITA_SEED", "1")))
    parser.add_argument("--only", choices=kinds_of(True))
    parser.add_argument("--ssh", action="store_true",
                        help="with this machine's sshd and ssh, as the user of the image")
    arguments = parser.parse_args()
    if arguments.ssh and not os.path.exists("/usr/sbin/sshd"):
        print("no sshd is installed here (openssh-server): nothing was run", flush=True)
        return
    kinds = [arguments.only] if arguments.only else kinds_of(arguments.ssh)
    count = arguments.faults or (1 if tier.is_quick() else len(kinds))
    if os.environ.get("PARTITA_TEST_CLUSTER") != "1" and not cluster.can_have_pods():
        print("no namespaces can be made here: nothing was run on hosts", flush=True)
        return
    cluster.enter_network()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    draw = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        os.chmod(folder, 0o755)
        work = Transformer(os.path.abspath(arguments.partita), arguments.partita_run, folder)
        work.has_ssh = arguments.ssh
        prepared = Prepared(work)
        most = 0
        for number, kind, k, at in drawn(count, draw, kinds):
            begin = time.time()
            seconds, line = check_start(work, number, kind, k, prepared) if kind in START \
                else check_live(work, number, kind, k, at, prepared)
            most = max(most, seconds)
            line = line.replace(folder, "")
            print(f"{number + 1:2} {kind} on node-{k}: {seconds:.1f} s: {line} "
                  f"(all {time.time() - begin:.0f} s)", flush=True)
            shutil.rmtree(f"{folder}/places/fault-{number}")
        print(f"{count} faults, each named within {most:.1f} s, none hung", flush=True)
        if most > 5:
            raise SystemExit(f"a fault was named behind {most:.1f} s")


if __name__ == "__main__":
    main()
