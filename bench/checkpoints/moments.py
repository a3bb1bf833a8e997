#!/usr/bin/env python3
"""Signals and disks at bad moments: SIGTERM 50 times, a disk that is full or read-only.

usage: moments.py PARTITA PARTITA_RUN [--signals 50] [--seed 1] [--no-disks]

A small transformer trains on threads, over MPI and elastic, and saves every step. SIGTERM comes at
drawn moments of its start, its steps, its saves, and of restarts and growth; the same command goes
on each time. A run that has begun ends with 143 behind a step that is saved, no generation is
lost, and losses are those of a run that nothing happened to: bit for bit with the same number of
ranks, else within 1e-4. Then the checkpoints of an elastic run are on a small disk that fills,
loses a rank, is emptied, becomes read-only and is written again: the run goes on through all of
it, tells why nothing is saved, and grows only once something is.
"""
import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "test", "E2E")]
from kills import kill_rank  # noqa: E402
from commands import says  # noqa: E402
from generations import files_of, losses, steps_of  # noqa: E402
from run_elastic import Transformer, near, ranks_of, steps_done, wait_for  # noqa: E402

STEPS = 40
RUNS = {"local": ("step/worlds/2", ["--transport", "local"]),
        "mpi": ("step/worlds/2", ["--transport", "mpi"]),
        "elastic": ("step", ["--elastic", "2..3", "--restarts", "9"])}


def check_signals(work, name, count, draw, reference):
    """SIGTERM at drawn moments until the steps are done, then from the start in a new folder."""
    bundle, how = RUNS[name]
    ends, places = {}, 0
    place, newest, longest = None, 0, 0
    while sum(ends.values()) < count:
        if place is None:
            place, newest = work.place(f"signals-{name}-{places}"), 0
            places += 1
        process = work.start(bundle, place, *how, "--steps", str(STEPS), "--save-every", "1",
                             "--keep", "2", "--resume", program=[work.partita, "run"])
        # Half of the signals come while it starts.
        begun = steps_done(place)
        if draw.random() < 0.5:
            time.sleep(draw.random() * 1.5)
        else:
            end = time.time() + 60
            while steps_done(place) <= begun + draw.randrange(3) and process.poll() is None \
                    and time.time() < end:
                time.sleep(0.002)
            time.sleep(draw.random() * 0.1)
        killed = name == "elastic" and draw.random() < 0.3
        if killed:
            kill_rank(process.pid, draw)
            time.sleep(draw.random() * 2)
        begin = time.time()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=40)
        longest = max(longest, time.time() - begin)
        status, text = process.returncode, out + err
        # Before it has anything to save the signal does what it always does. A run that loses
        # a rank while it stops is not started again.
        if status not in (143, -signal.SIGTERM, 0) and not (killed and status == 75):
            raise RuntimeError(f"{name}: ended with {status}: {text}")
        if status == 143 and steps_of(place) and steps_of(place)[-1] != steps_done(place) \
                and "world of" not in text:
            raise RuntimeError(f"{name}: {steps_done(place)} steps, saved {steps_of(place)}")
        found = steps_of(place) if os.path.exists(f"{place}/c") else []
        if newest and (not found or found[-1] < newest):
            raise RuntimeError(f"{name}: step {newest} was saved, and now {found}")
        newest = max([newest, *found])
        ends[status] = ends.get(status, 0) + 1
        if newest == STEPS:
            check_end(work, name, place, reference)
            place = None
    if place is not None:
        work.run(bundle, place, *how, "--steps", str(STEPS), "--resume",
                 program=[work.partita, "run"])
        check_end(work, name, place, reference)
    print(f"{name}: {count} times SIGTERM in {places} runs of {STEPS} steps: "
          + ", ".join(f"{ends[status]} ended with {status}" for status in sorted(ends))
          + f", at most {longest:.1f} s behind it", flush=True)


def check_end(work, name, place, reference):
    if name == "elastic":
        near(name, place, reference, STEPS)
    elif losses(place) != reference[:STEPS]:
        raise RuntimeError(f"{name}: losses are not those of a run that was never stopped")
    if left := [it for it in files_of(place) if not re.fullmatch(r"step-\d+", it)]:
        raise RuntimeError(f"{name}: {left} were left")


class SmallDisk:
    """A file system in memory that holds a few generations."""

    def __init__(self, path):
        self.path = path
        os.makedirs(path, exist_ok=True)

    def mount(self, *options):
        subprocess.run(["mount", *options, self.path], check=True)

    def fill(self):
        # Until nothing is free: a generation that is removed meanwhile gives some room.
        for _ in range(20):
            free = os.statvfs(self.path)
            room = free.f_bavail * free.f_bsize
            if room == 0:
                break
            with open(f"{self.path}/filler", "ab") as file:
                try:
                    file.write(bytes(room))
                    file.flush()
                except OSError:
                    pass

    def free(self):
        os.remove(f"{self.path}/filler")


def mount_retrying(disk, how):
    """A save that is under way makes it busy."""
    for _ in range(500):
        done = subprocess.run(["mount", "-o", f"remount,{how}", disk.path], capture_output=True)
        if done.returncode == 0:
            return
        time.sleep(0.01)
    raise RuntimeError(f"remount,{how}: {done.stderr}")


def check_disks(work, reference, hostfile):
    place = work.place(f"disk-{bool(hostfile)}")
    disk = SmallDisk(f"{place}/c")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", disk.path],
                      capture_output=True).returncode:
        print("disks: skipped, as nothing can be mounted here", flush=True)
        return
    out = open(f"{place}/out", "w+")
    process = subprocess.Popen(
        [work.partita, "run", f"{work.folder}/step", "--elastic", "2..3", "--restarts", "9",
         "--data", f"{work.folder}/train.npz", "--seed", "11", "--checkpoint-dir", disk.path,
         "--log", f"{place}/log.jsonl", "--steps", str(len(reference)), "--save-every", "5",
         "--keep", "2", *hostfile], stdout=out, stderr=out)

    def text():
        with open(f"{place}/out") as file:
            return file.read()

    def told(pattern, count=1):
        def holds():
            return len(re.findall(pattern, text(), re.MULTILINE)) >= count
        wait_for(process, holds, pattern)
    try:
        wait_for(process, lambda: len(steps_of(place)) == 2, "two generations")
        disk.fill()
        told(r"^no checkpoint was written, training goes on: .*: No space left on device$")
        kept = steps_of(place)
        os.kill(ranks_of(process.pid)[1], signal.SIGKILL)
        told(r"^world of 2 ranks")
        failures = text().count("No space left")
        told(r": No space left on device$", failures + 2)
        if steps_of(place) != kept or "there are places for 3" in text():
            raise RuntimeError(f"a full disk has {steps_of(place)}, had {kept}")
        disk.free()
        told(r"^world of 3 ranks, dp=3$", 2)
        saved = steps_of(place)[-1]
        wait_for(process, lambda: steps_of(place)[-1] > saved, "a generation of three")
        mount_retrying(disk, "ro")
        told(r"^no checkpoint was written, training goes on: .*: Read-only file system$")
        kept = steps_of(place)
        os.kill(ranks_of(process.pid)[2], signal.SIGKILL)
        told(r"^world of 2 ranks", 2)
        count = text().count("Read-only file system")
        told(r": Read-only file system$", count + 1)
        process.send_signal(signal.SIGTERM)
        if process.wait(timeout=60) != 1 or steps_of(place) != kept:
            raise RuntimeError(f"on a read-only disk it ended with {process.returncode}")
        says(r"^error: no checkpoint was written: .*: Read-only file system$", text())
        mount_retrying(disk, "rw")
        begun = steps_of(place)[-1]
        work.run("step/worlds/2", place, "--steps", str(begun + 10), "--resume")
        near("disks", place, reference[:begun + 10], begun + 10)
        print(f"an elastic run{' on hosts' if hostfile else ''}: a disk that is full, then "
              "read-only, is told of and gone on with", flush=True)
    except Exception as error:
        lines = [line for line in text().splitlines() if not line.startswith("step ")]
        raise RuntimeError("\n".join([str(error), *lines[-40:]])) from error
    finally:
        if process.poll() is None:
            process.kill()
        out.close()
        subprocess.run(["umount", "-l", disk.path], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("partita")
    parser.add_argument("partita_run")
    parser.add_argument("--signals", type=int, default=50, help="for each way to run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=RUNS, help="signals of this way alone")
    parser.add_argument("--disks", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        work = Transformer(os.path.abspath(arguments.partita), arguments.partita_run, folder)
        meshes = [word for ranks in (3, 2) for word in ("--mesh", f"dp={ranks}")]
        done = work.compiled("-o", f"{folder}/step", *meshes, "--mode", "data-parallel")
        if done.returncode:
            raise RuntimeError(done.stderr)
        place = work.place("reference")
        work.run("step/worlds/2", place, "--steps", "3000")
        reference = losses(place)
        if arguments.disks:
            check_disks(work, reference, [])
            with open(f"{folder}/hosts", "w") as file:
                file.write("localhost slots=3\n")
            check_disks(work, reference, ["--hostfile", f"{folder}/hosts"])
        for name in RUNS:
            if arguments.signals and arguments.only in (None, name):
                check_signals(work, name, arguments.signals, draw, reference)


if __name__ == "__main__":
    main()
