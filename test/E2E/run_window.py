#!/usr/bin/env python3
"""Ranks of one host under MPI that share memory: results, ways back, losses.

usage: run_window.py PARTITA

A small GPT-2 runs on four ranks. Threads, messages and shared memory give the same bits. Where the
system lets ranks map nothing of each other, they send messages, or say why they cannot do as
`--mpi-window on` asks. A rank that is killed while the others wait for it ends the run with its
name.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import run_memory  # noqa: E402

SIZES = dict(batch=4, length=64, hidden=64, heads=4, layers=2, vocabulary=5003)
MESH = "dp=2,tp=2"
HINTS = {"*c_attn.weight": [None, "tp"], "*c_fc.weight": [None, "tp"],
         "input_ids": ["dp", None]}
#: Address space of a process, too small for that of others: each takes twice the machine's memory.
LITTLE = f"ulimit -v {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') // 1024 * 5 // 4}; "


class Runs:
    """Runs of one bundle; counts what is wrong."""

    def __init__(self, partita, work):
        self.partita, self.work, self.wrong = partita, work, 0
        self.bundle, _ = run_memory.compile_model(partita, work, "model", SIZES, MESH, HINTS)
        self.inputs = os.path.join(os.path.dirname(self.bundle), "inputs")

    def check(self, good, what):
        print(f"{'ok     ' if good else 'FAILED '} {what}", flush=True)
        self.wrong += not good

    def command(self, words):
        return [self.partita, "run", self.bundle, "--inputs-dir", self.inputs, *words]

    def outputs(self, name, words, limit=""):
        """All bytes of the outputs; None if the run fails."""
        folder = os.path.join(self.work, name)
        command = " ".join(self.command([*words, "--outputs-dir", folder]))
        done = subprocess.run(["bash", "-c", limit + command], capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stdout[-500:] + done.stderr[-500:])
            return None
        return [open(os.path.join(folder, file), "rb").read()
                for file in sorted(os.listdir(folder))]

    def refuses(self, words, pattern, limit=""):
        """Checks that a run ends with one sentence that has the pattern."""
        done = subprocess.run(["bash", "-c", limit + " ".join(self.command(words))],
                              capture_output=True, text=True, timeout=120)
        lines = [line for line in done.stderr.splitlines() if line]
        good = done.returncode == 1 and len(lines) == 1 and re.search(pattern, lines[0])
        if not good:
            print(done.returncode, done.stdout[-500:] + done.stderr[-1500:])
        self.check(bool(good), f"{limit}{' '.join(words)}: {' '.join(lines)[:160]}")


def windows(process):
    """Memory of how many ranks a process has mapped."""
    with open(f"/proc/{process}/maps") as file:
        found = re.findall(r" (\d+) +/memfd:partita-window", file.read())
    return len(set(found))


def ranks_of(run):
    """Processes by rank, once all have loaded the stage."""
    found = {}
    for process in run_memory.descendants(run.pid):
        try:
            with open(f"/proc/{process}/environ") as file:
                rank = re.search(r"OMPI_COMM_WORLD_RANK=(\d+)", file.read())
            with open(f"/proc/{process}/maps") as file:
                if rank and "/stage-0.so" in file.read():
                    found[int(rank[1])] = process
        except OSError:
            pass
    return found


def start(runs, words):
    """A run of many requests, and its ranks."""
    run = subprocess.Popen(
        runs.command(["--transport", "mpi", "--repeat", "1000000", *words]),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.time() + 60
    while len(ranks := ranks_of(run)) < 4 and time.time() < deadline:
        time.sleep(0.05)
    time.sleep(2)
    return run, ranks


def is_gone(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def lose(runs):
    """Kills rank 2 while requests run."""
    run, ranks = start(runs, ["--mpi-window", "on"])
    mapped = [windows(process) for process in ranks.values()]
    runs.check(mapped == [4] * 4, f"each rank sees the memory of {mapped} ranks")
    os.kill(ranks[2], signal.SIGKILL)
    begin = time.time()
    _, errors = run.communicate(timeout=60)
    runs.check(run.returncode == 75 and "rank 2" in errors and "killed by signal 9" in errors,
               f"rank 2 is killed, {time.time() - begin:.1f} s, status {run.returncode}: "
               f"{errors.strip()[:150]}")
    runs.check(all(is_gone(process) for process in ranks.values()), "no rank is left")


def main(partita):
    with tempfile.TemporaryDirectory() as work:
        runs = Runs(partita, work)
        mpi = ["--transport", "mpi"]
        expected = runs.outputs("local", ["--transport", "local"])
        for name, words, limit in [
                ("off", ["--mpi-window", "off"], ""), ("on", ["--mpi-window", "on"], ""),
                ("beside", ["--mpi-window", "on", "--comm-threads", "1"], ""),
                ("auto", [], ""), ("little", [], LITTLE)]:
            runs.check(expected and runs.outputs(name, mpi + words, limit) == expected,
                       f"the bits of threads: {limit}{' '.join(mpi + words)}")
        runs.refuses([*mpi, "--mpi-window", "on"],
                     "ranks of a host cannot share memory, as --mpi-window on asks: rank 0: "
                     "cannot get \\d+ bytes of addresses: Cannot allocate memory$", LITTLE)
        runs.refuses([*mpi, "--mpi-window", "maybe"],
                     "--mpi-window is 'maybe'; expected auto, on or off$")
        runs.refuses(["--transport", "local", "--mpi-window", "on"],
                     "--mpi-window on: the ranks of transport local are threads")
        run, ranks = start(runs, ["--mpi-window", "off"])
        mapped = [windows(process) for process in ranks.values()]
        runs.check(mapped == [0] * 4, f"off: the memory of {mapped} ranks is seen")
        run.terminate()
        run.communicate(timeout=60)
        lose(runs)
        return 1 if runs.wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
