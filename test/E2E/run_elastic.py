#!/usr/bin/env python3
"""`partita compile` of several worlds, and `partita run --elastic`: ranks are lost and come back.

usage: run_elastic.py PARTITA PARTITA_RUN [--times N] [--ranks N] [--hosts]

A small transformer is compiled for 4, 3 and 2 ranks into one bundle. Its worlds train alike, share
their weights, and go on in each other. Then a rank is killed while four train: three go on, and
four when a generation is saved. With --hosts the ranks are on three hosts, made of namespaces; a
host is killed and started again. Losses are within 1e-4 of a run that nothing happened to, and
the log has each step once.
"""
import argparse
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

import cluster
import tier
import training_models
from commands import ends_with, says
from generations import losses, steps_of
from run_checkpoints import Work

SEED = "11"


class Transformer(Work):
    """Its steps take some milliseconds, so that a run can be met in their midst."""

    def __init__(self, compiler, run, folder):
        super().__init__(compiler, run, folder)
        inputs, labels, classes = training_models.transformer(f"{folder}/model.onnx", 8, 64, 96)
        draw = np.random.default_rng(5)
        parts = [inputs["tokens"](draw) for _ in range(4)]
        np.savez(f"{folder}/train.npz", tokens=np.concatenate(parts),
                 labels=draw.integers(0, classes, (4 * labels[0], *labels[1:])))
        with open(f"{folder}/spec.json", "w") as file:
            json.dump({"loss": {"kind": "softmax_cross_entropy", "of": "head",
                                "labels": "labels", "axis": -1},
                       "optimizer": {"kind": "adamw", "lr": 0.001}}, file)

    def compiled(self, *words, spec="spec"):
        return subprocess.run(
            [self.partita, "compile", f"{self.folder}/model.onnx", "--train",
             f"{self.folder}/{spec}.json", *words], capture_output=True, text=True)


def near(what, place, reference, count):
    actual = losses(place)
    if len(actual) != count:
        raise RuntimeError(f"{what}: {len(actual)} steps, expected {count}")
    for step, ((epoch, loss), (expected_epoch, expected)) in enumerate(
            zip(actual, reference, strict=False), 1):
        if epoch != expected_epoch or abs(loss - expected) > 1e-4:
            raise RuntimeError(f"{what}: step {step} has loss {loss} in epoch {epoch}, "
                               f"expected {expected} in {expected_epoch}")


def refused(work, message, *words, command="run", status=1):
    process = work.start("step", work.folder, *words, program=[work.partita, command])
    _, err = process.communicate(timeout=60)
    if process.returncode != status or not re.search(message, err):
        raise RuntimeError(f"{words}: status {process.returncode}, {err}")


def compile_refused(work, message, *words, status=2):
    done = work.compiled(*words)
    if done.returncode != status or not re.search(message, done.stderr):
        raise RuntimeError(f"{words}: status {done.returncode}, {done.stderr}")


def check_bundle(work, reference):
    """Worlds share their weights, are bundles themselves, and go on in each other."""
    top = f"{work.folder}/step"
    with open(f"{top}/bundle.json") as file:
        worlds = json.load(file)["worlds"]
    if worlds != [{"ranks": 3, "path": "worlds/3"}, {"ranks": 2, "path": "worlds/2"}]:
        raise RuntimeError(f"the bundle has worlds {worlds}")
    for world in worlds:
        names = os.listdir(f"{top}/{world['path']}")
        if any(name.startswith("weights") for name in names):
            raise RuntimeError(f"{world['path']} has {names}")
    place = work.place("worlds")
    for k, world in enumerate(("step", "step/worlds/3", "step/worlds/2", "step"), 1):
        work.run(world, place, "--steps", str(3 * k), "--save-every", "3", "--resume")
    near("worlds in turn", place, reference, 12)
    print("worlds share their weights and go on in each other", flush=True)


def check_errors(work):
    checkpoints = ["--checkpoint-dir", f"{work.folder}/c"]
    refused(work, r"--elastic 5\.\.8: '.*/step' has no world of so many ranks; it has 2, 3, 4",
            "--elastic", "5..8")
    refused(work, "--elastic: expected numbers of ranks as in 2..8, got '8..2'",
            "--elastic", "8..2", status=2)
    refused(work, "--elastic: the ranks of transport local are threads", "--elastic", "2..4",
            "--transport", "local")
    compile_refused(work, "--mesh dp=2 and --mesh tp=2 both have 2 ranks", "-o",
                    f"{work.folder}/x", "--mesh", "dp=2", "--mesh", "tp=2", status=1)
    compile_refused(work, "--dump-dir is for one mesh, and --mesh is given 2 times", "-o",
                    f"{work.folder}/x", "--mesh", "dp=2", "--mesh", "dp=3", "--dump-dir",
                    f"{work.folder}/ir")
    compile_refused(work, r"output '.*/step' exists already; --force replaces it", "-o",
                    f"{work.folder}/step", "--mesh", "dp=2", "--mesh", "dp=3", status=1)
    if os.path.exists(f"{work.folder}/x"):
        raise RuntimeError("a bundle was left behind")
    # A world alone, without the bundle whose weights it has.
    moved = f"{work.folder}/moved"
    os.rename(f"{work.folder}/step/worlds/2", moved)
    process = work.start("moved", work.folder, "--steps", "1", *checkpoints)
    _, err = process.communicate(timeout=60)
    os.rename(moved, f"{work.folder}/step/worlds/2")
    if process.returncode != 1 or "cannot open weight file" not in err:
        raise RuntimeError(f"a world alone: {process.returncode}, {err}")
    print("what does not fit is refused", flush=True)


def ranks_of(pid):
    """Processes of ranks below a process, by rank."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    children.setdefault(int(file.read().rsplit(") ", 1)[1].split()[1]),
                                        []).append(int(name))
            except OSError:
                pass
    result, stack = {}, [pid]
    while stack:
        at = stack.pop()
        stack += children.get(at, [])
        try:
            with open(f"/proc/{at}/environ", "rb") as file:
                words = dict(word.split(b"=", 1) for word in file.read().split(b"\0")
                             if b"=" in word)
        except OSError:
            continue
        if b"OMPI_COMM_WORLD_RANK" in words:
            result[int(words[b"OMPI_COMM_WORLD_RANK"])] = at
    return result


def steps_done(place):
    path = f"{place}/log.jsonl"
    if not os.path.exists(path):
        return 0
    with open(path) as file:
        return file.read().count("\n")


def wait_for(process, holds, what):
    end = time.time() + 240
    while not holds():
        if process.poll() is not None or time.time() > end:
            process.kill()
            raise RuntimeError(f"{what} did not come: {process.communicate()}")
        time.sleep(0.01)


def bare_start(ranks):
    """Seconds of mpirun for programs that do nothing."""
    begin = time.time()
    subprocess.run(["mpirun", "-n", str(ranks), "--oversubscribe", "true"], check=True,
                   env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    return time.time() - begin


def check_kills(work, reference, times, ranks):
    """A rank is killed, the others go on, and all when a generation is saved."""
    place = work.place("elastic")
    process = work.start("step", place, "--elastic", f"2..{ranks}", "--steps", str(len(reference)),
                         "--save-every", "20", "--resume", program=[work.partita, "run"])
    took, bare = [], []
    for k in range(times):
        wait_for(process, lambda: len(ranks_of(process.pid)) == ranks, "all ranks")
        before = steps_done(place)
        wait_for(process, lambda b=before: steps_done(place) > b + 25, "some steps of all ranks")
        saved = max(steps_of(place), default=0)
        begin = time.time()
        os.kill(ranks_of(process.pid)[k % ranks], signal.SIGKILL)
        # The log is cut to the newest generation when the next world goes on.
        wait_for(process, lambda s=saved: steps_done(place) <= max([s, *steps_of(place)]) + 20
                 and len(ranks_of(process.pid)) == ranks - 1, "one rank less")
        cut = steps_done(place)
        wait_for(process, lambda c=cut: steps_done(place) > c, "a step of one rank less")
        took.append(time.time() - begin)
        bare.append(bare_start(ranks))
    out, err = process.communicate(timeout=240)
    if process.returncode:
        raise RuntimeError(f"ended with {process.returncode}: {out}{err}")
    text = out + err
    losts = re.findall(r"^lost at .*: rank (\d).*signal 9 \(Killed\).*; starts again in", text,
                       re.MULTILINE)
    if losts != [str(k % ranks) for k in range(times)]:
        raise RuntimeError(f"lost {losts}: {text}")
    less = ranks - 1
    says(rf"^world of {less} ranks, dp={less}; idle: 1 place$", text)
    says(rf"^there are places for {ranks} ranks behind step \d+, which is saved: stops behind another",
         text)
    if len(re.findall(rf"^world of {ranks} ranks, dp={ranks}$", text,
                      re.MULTILINE)) != times + 1:
        raise RuntimeError(text)
    near("elastic", place, reference, len(reference))
    print(f"lost and got back a rank of {ranks} {times} times; from kill to a new step "
          + ", ".join(f"{seconds:.1f}" for seconds in took) + f" s; mpirun -n {ranks} true "
          + ", ".join(f"{seconds:.1f}" for seconds in bare) + " s; more by "
          f"{max(a - b for a, b in zip(took, bare, strict=True)):.1f} s at most", flush=True)


def check_replan(work, reference):
    """A world that the bundle has not is planned, with the evaluation that the bundle has."""
    with open(f"{work.folder}/spec.json") as file:
        spec = json.load(file)
    with open(f"{work.folder}/evaluated.json", "w") as file:
        json.dump({**spec, "evaluate": True}, file)
    done = work.compiled("-o", f"{work.folder}/evaluated", "--mesh", "dp=2", "--mode",
                         "data-parallel", spec="evaluated")
    if done.returncode:
        raise RuntimeError(done.stderr)
    words = ["--eval", f"{work.folder}/train.npz", "--eval-every", "20", "--steps", "100"]
    whole, place = work.place("evaluated"), work.place("planned")
    work.run("evaluated", whole, *words)
    process = work.start("evaluated", place, "--elastic", "1..2", "--replan", *words,
                         "--save-every", "10", "--keep-best", "model",
                         program=[work.partita, "run"])
    wait_for(process, lambda: steps_done(place) > 15, "steps")
    os.kill(ranks_of(process.pid)[1], signal.SIGKILL)
    text = ends_with(process, 0)
    says(r"^plans anew for 1 rank$", text)
    says(r"^world of 1 rank, r=1; idle: 1 place$", text)
    near("planned", place, reference, 100)
    evaluated, expected = evaluations(place), evaluations(whole)
    if sorted(expected) != [20, 40, 60, 80, 100] or sorted(evaluated) != sorted(expected) or \
            any(abs(evaluated[step] - expected[step]) > 1e-4 for step in expected):
        raise RuntimeError(f"evaluated were {evaluated}, expected {expected}")
    with open(f"{place}/c/best-model/manifest.json") as file:
        if json.load(file)["step"] != min(evaluated, key=evaluated.get):
            raise RuntimeError(f"best-model is not of the best of {evaluated}")
    print("a world was planned anew", flush=True)


def check_signal(work):
    """SIGTERM stops an elastic run behind a generation; the same command goes on."""
    place = work.place("stopped")
    words = ["--elastic", "3", "--steps", "200", "--save-every", "1000", "--resume"]
    process = work.start("step", place, *words, program=[work.partita, "run"])
    wait_for(process, lambda: steps_done(place) > 5, "steps")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    if process.returncode != 143 or len(steps_of(place)) != 1:
        raise RuntimeError(f"SIGTERM: {process.returncode}, {err}, {steps_of(place)}")
    work.run("step", place, *words, program=[work.partita, "run"])
    if steps_of(place)[-1] != 200:
        raise RuntimeError(f"went on to {steps_of(place)}")


def evaluations(place):
    """Losses of rows that are held out, by step."""
    with open(f"{place}/log.jsonl") as file:
        log = [json.loads(line) for line in file]
    return {it["step"]: it["eval_loss"] for it in log if "eval_loss" in it}


def told(process, phrase):
    """The next line of a run that has this phrase."""
    for line in process.stdout:
        if phrase in line:
            return line
    raise RuntimeError(f"{phrase!r} was not told: {process.communicate()}")


def child_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return int(file.read().split()[0])


def is_alive(pid):
    """Says whether a process still does something: a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(") ", 1)[1][0] not in "ZX"
    except OSError:
        return False


def check_breaks(work, reference):
    """Those that watch ranks are killed, a signal comes between runs, a hostfile is damaged."""
    place = work.place("breaks")
    process = work.start("step", place, "--elastic", "2", "--steps", "1000000", "--save-every", "2",
                         program=[work.partita, "run"])

    def trains(old=()):
        wait_for(process, lambda: len(set(ranks_of(process.pid).values()) - set(old)) == 2, "ranks")
        before = steps_done(place)
        wait_for(process, lambda: steps_done(place) > before + 2, "steps")
        return ranks_of(process.pid)

    ranks = trains()
    os.kill(child_of(process.pid), signal.SIGKILL)
    told(process, "the process that watches mpirun was lost; ")
    if left := [pid for pid in ranks.values() if is_alive(pid)]:
        raise RuntimeError(f"ranks {left} outlive their supervisor")
    ranks = trains(ranks.values())
    os.kill(child_of(child_of(process.pid)), signal.SIGKILL)
    told(process, ": mpirun was killed by signal 9 (Killed); ")
    ranks = trains(ranks.values())
    os.kill(ranks[0], signal.SIGKILL)
    told(process, "; starts again in ")
    process.send_signal(signal.SIGTERM)
    says("^note: stopped by SIGTERM; --resume goes on$", ends_with(process, 143))

    near("breaks", place, reference, len(losses(place)))
    place = work.place("damaged")
    hosts = f"{work.folder}/hosts"
    with open(hosts, "w") as file:
        file.write("localhost slots=2\n")
    process = work.start("step", place, "--elastic", "2", "--steps", "120", "--save-every", "10",
                         "--hostfile", hosts, "--restarts", "1", program=[work.partita, "run"])
    ranks = trains()
    with open(hosts, "w") as file:
        file.write("localhost slots=two\n")
    os.kill(ranks[1], signal.SIGKILL)
    text = ends_with(process, 0)
    says("hosts', line 1: expected NAME slots=N, got 'localhost slots=two'; its hosts are taken "
         "to be as before$", text)
    says("; starts again in 1 s, 1 of 1$", text)
    near("damaged", place, reference, 120)
    print("a supervisor, mpirun, a signal between runs and a damaged hostfile", flush=True)


def folders_of_runs():
    return {f"{top}/{name}" for top in ("/dev/shm", os.environ.get("TMPDIR", "/tmp"), "/tmp")
            if os.path.isdir(top) for name in os.listdir(top) if name.startswith("partita-run-")}


def check_left(work):
    """A launcher that is killed with its supervisor leaves a folder, which the next one
    removes; that of a run that lives stays, and one that is nobody's."""
    before = folders_of_runs()
    words = ["--steps", "100000", "--transport", "mpi"]
    process = work.start("step/worlds/2", work.place("killed"), *words)
    wait_for(process, lambda: len(ranks_of(process.pid)) == 2, "ranks")
    ranks = ranks_of(process.pid)
    (left,) = {os.path.dirname(path) for path in pages_of(ranks[0])}
    supervisor = child_of(process.pid)
    process.kill()
    os.kill(supervisor, signal.SIGKILL)
    process.communicate()
    if left in before:
        raise RuntimeError(f"{left} was there before")
    foreign = tempfile.mkdtemp(prefix="partita-run-", dir=os.path.dirname(left))
    process = work.start("step/worlds/2", work.place("next"), *words)
    wait_for(process, lambda: len(ranks_of(process.pid)) == 2, "ranks")
    (own,) = {os.path.dirname(path) for path in pages_of(ranks_of(process.pid)[0])}
    # Processes that outlive their launcher by some seconds hold the folder until they end.
    for k in range(10):
        if not os.path.isdir(left):
            break
        work.run("step/worlds/2", work.place(f"third{k}"), "--steps", "1", "--transport", "mpi")
    there = [os.path.isdir(path) for path in (left, own, foreign)]
    os.rmdir(foreign)
    process.send_signal(signal.SIGTERM)
    ends_with(process, 143)
    if there != [False, True, True] or os.path.isdir(own):
        raise RuntimeError(f"left, own and foreign folder are there: {there}")
    print("folders of launchers that were killed are removed by the next one", flush=True)


def pages_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return [word.split(b"=", 1)[1].decode() for word in file.read().split(b"\0")
                if word.startswith(b"PARTITA_RUN_PAGE=")]


def check_signal_in_growth(work):
    """The user's first signal is no second one while the run stops to grow."""
    place = work.place("growing")
    process = work.start("step", place, "--elastic", "2..3", "--steps", "4000", "--save-every",
                         "10", program=[work.partita, "run"])
    wait_for(process, lambda: steps_done(place) > 12, "steps")
    ranks = ranks_of(process.pid)
    os.kill(ranks[2], signal.SIGKILL)
    told(process, "world of 2 ranks")
    saved = max(steps_of(place), default=0)
    wait_for(process, lambda: max(steps_of(place), default=0) > saved, "a generation")
    stopped = ranks_of(process.pid).values()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    told(process, "which is saved: stops behind another one")
    time.sleep(0.7)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    says("^note: stopped by SIGTERM; --resume goes on$", ends_with(process, 143))
    if steps_of(place)[-1] != steps_done(place):
        raise RuntimeError(f"{steps_done(place)} steps, saved {steps_of(place)}")


def check_host_logs(folder, steps):
    """Ranks of hosts that share a folder have their files in it, each appended to by every
    world that had the rank."""
    names = sorted(os.listdir(folder))
    if names != [*(f"rank-{rank}.log" for rank in range(4)), "supervisor.log"]:
        raise RuntimeError(f"{folder} has {names}")
    for name in names:
        with open(f"{folder}/{name}") as file:
            text = file.read()
        starts = text.count(" starts: ")
        if not text.endswith("ends: done\n") or starts < (
                1 if name in ("rank-3.log", "supervisor.log") else 3):
            raise RuntimeError(f"{name} of {starts} starts is {text[-2000:]}")
        if name == "rank-0.log" and f"step {steps}, " not in text:
            raise RuntimeError(f"{name} does not have step {steps}")


def check_hosts(work, reference):
    """A host of three is killed and started again; a fourth one comes into the file."""
    folder = f"{work.folder}/cluster"
    there = cluster.Cluster(folder, os.path.dirname(work.partita))
    mounts = [(work.folder, work.folder, False)]
    nodes = [cluster.Pod(f"node-{k}", ["/image/sshd", "-p", "2222"], {}, mounts)
             for k in range(4)]
    place = work.place("hosts")
    hosts = f"{folder}/hosts"

    def write(count):
        with open(f"{hosts}.new", "w") as file:
            file.write("".join(f"node-{k} slots=1\n" for k in range(count)))
        os.rename(f"{hosts}.new", hosts)
    write(3)
    words = [work.partita, "run", f"{work.folder}/step", "--elastic", "2..4", "--hostfile", hosts,
             "--data", f"{work.folder}/train.npz", "--seed", SEED, "--steps", str(len(reference)),
             "--save-every", "20", "--resume", "--checkpoint-dir", f"{place}/c", "--log",
             f"{place}/log.jsonl", "--timeout", "10", "--find-nan", "--log-dir", f"{place}/logs"]
    launcher = cluster.Pod("launcher", words, {}, [*mounts, (folder, folder, False)])
    for pod in (*nodes, launcher):
        there.address(pod.name)

    def told(text, count=1):
        wait_for(launcher.process, lambda: len(re.findall(text, there.text(launcher))) >= count,
                 text)
    try:
        for pod in nodes[:3]:
            there.start(pod)
        for pod in nodes[:3]:
            there.wait_ready(pod)
        there.start(launcher)
        wait_for(launcher.process, lambda: steps_done(place) > 25, "steps of three hosts")
        begin = time.time()
        there.kill(nodes[1])
        there.wait(nodes[1])
        told("world of 2 ranks, dp=2; idle: 1 place of 'node-1', which does not answer")
        print(f"two of three hosts go on {time.time() - begin:.1f} s behind the loss", flush=True)
        there.start(nodes[1])
        told("world of 3 ranks", 2)
        there.start(nodes[3])
        there.wait_ready(nodes[3])
        write(4)
        told("world of 4 ranks, dp=4")
        if there.wait(launcher, 240) != 0:
            raise RuntimeError("the run ended with another status")
        near("hosts", place, reference, len(reference))
        check_host_logs(f"{place}/logs", len(reference))
        print("a host was lost and came back, and another one was added", flush=True)
    except Exception as error:
        lines = [line for line in there.text(launcher).splitlines()
                 if not line.startswith("step ")]
        raise RuntimeError("\n".join([str(error), *lines[-60:]])) from error
    finally:
        there.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("partita_run")
    parser.add_argument("--times", type=int, default=1 if tier.is_quick() else 2,
                        help="ranks that are killed")
    parser.add_argument("--ranks", type=int, default=4, help="of the largest world")
    parser.add_argument("--hosts", action="store_true", help="ranks on hosts of namespaces")
    arguments = parser.parse_args()
    if arguments.hosts:
        if os.environ.get("PARTITA_TEST_CLUSTER") != "1" and not cluster.can_have_pods():
            print("no namespaces can be made here: nothing was run on hosts", flush=True)
            arguments.hosts = False
        else:
            cluster.enter_network()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        os.chmod(folder, 0o755)
        work = Transformer(os.path.abspath(arguments.partita), arguments.partita_run, folder)
        meshes = [word for ranks in (arguments.ranks, arguments.ranks - 1, 2)
                  for word in ("--mesh", f"dp={ranks}")]
        done = work.compiled("-o", f"{folder}/step", *meshes, "--mode", "data-parallel")
        if done.returncode:
            raise RuntimeError(done.stderr)
        reference_place = work.place("reference")
        steps = 400 if arguments.hosts else 100 + 100 * arguments.times
        work.run("step/worlds/2", reference_place, "--steps", str(steps))
        reference = losses(reference_place)
        if arguments.hosts:
            return check_hosts(work, reference)
        if arguments.ranks == 4:
            check_bundle(work, reference)
            check_errors(work)
            # Each spends most of its time in pauses between runs.
            with concurrent.futures.ThreadPoolExecutor(2) as both:
                for check in [both.submit(check_breaks, work, reference),
                              both.submit(check_replan, work, reference),
                              both.submit(check_left, work),
                              both.submit(check_signal, work),
                              both.submit(check_signal_in_growth, work)]:
                    check.result()
        check_kills(work, reference, arguments.times, arguments.ranks)


if __name__ == "__main__":
    sys.exit(main())
