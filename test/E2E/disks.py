"""Checkpoints and logs on disks that are full, read-only, or gone."""
import json
import os
import shutil
import signal
import subprocess
import time

from commands import await_steps, ends_with, says
from generations import files_of, losses, steps_of


def mount_disk(path, size):
    """Mounts a disk of this size at a new folder; false: that is not allowed here."""
    os.mkdir(path)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", path],
                          capture_output=True)
    if done.returncode:
        print("full disks: skipped, as nothing can be mounted here", flush=True)
    return done.returncode == 0


def check_disks(work):
    """A full disk, and a folder that nobody may write."""
    place = work.place("full")
    mounted = mount_disk(f"{place}/c", "96k")
    if not mounted:
        return
    try:
        work.run("zero3", place, "--steps", "2", "--save-every", "1")
        free = os.statvfs(f"{place}/c").f_bavail * 4096
        with open(f"{place}/c/filler", "wb") as file:
            file.write(bytes(free - 8192))
        text = work.run("zero3", place, "--steps", "6", "--save-every", "1", "--resume",
                        status=1)
        says(r"^no checkpoint was written, training goes on: cannot write '.*/part-\d"
             r"\.\w+': No space left on device$", text)
        says("^error: no checkpoint was written: .*: No space left on device$", text)
        if len(losses(place)) != 6 or steps_of(place) != [1, 2]:
            raise RuntimeError(f"{steps_of(place)} are left")
        text = work.run("zero3", place, "--steps", "6", "--save-every", "1", "--resume",
                        "--on-save-error", "stop", "--transport", "mpi", status=1)
        says("^error: no checkpoint was written: .*: No space left on device$", text)
        if len(losses(place)) > 4 or files_of(place) != ["filler", "step-1", "step-2"]:
            raise RuntimeError(f"{os.listdir(place + '/c')} are left")
        subprocess.run(["mount", "-o", "remount,ro", f"{place}/c"], check=True)
        text = work.run("zero3", place, "--steps", "6", "--resume", status=1)
        says("^error: no checkpoint was written: cannot create output folder '.*/step-6': "
             "Read-only file system$", text)
        subprocess.run(["mount", "-o", "remount,rw", f"{place}/c"], check=True)
        os.remove(f"{place}/c/filler")
        work.run("zero3", place, "--steps", "6", "--resume")
        if steps_of(place) != [1, 2, 6]:
            raise RuntimeError(f"{steps_of(place)} are left")
        subprocess.run(["mount", "-o", "remount,size=256k", f"{place}/c"], check=True)
        process = work.start("zero3", place, "--steps", "1000000000", "--resume",
                             "--save-every", "1", "--keep", "1", "--on-save-error", "stop")
        await_steps(process, place, 9)
        subprocess.run(["umount", "-l", f"{place}/c"], check=True)
        mounted = False
        # A save that was under way finds its folder gone.
        says("^error: no checkpoint was written: ('.*/c' is another folder than when the run "
             "began|cannot .*/c.*: No such file or directory)$", ends_with(process, 1))
        if os.listdir(f"{place}/c"):
            raise RuntimeError(f"{os.listdir(place + '/c')} is below the disk that is gone")
    finally:
        if mounted:
            subprocess.run(["umount", "-l", f"{place}/c"], check=True)
    print("disks that are full, read-only, gone: told, and what there was is left",
          flush=True)


def check_full_log(work):
    """A log on a disk that is full costs its lines at worst, not the run."""
    place = work.place("full-log")
    if not mount_disk(f"{place}/log", "8k"):
        return
    log = f"{place}/log/log.jsonl"
    steps = ["--steps", "60", "--save-every", "10", "--keep", "9", "--log", log]
    full = f"cannot write '{log}': No space left on device"
    try:
        text = work.run("dp", place, *steps, status=1)
        says(rf"^{full}; lines from step \d+ on wait in memory$", text)
        says(rf"^error: {full}; lines from step \d+ on are lost$", text)
        if steps_of(place)[-1] != 60:
            raise RuntimeError(f"{steps_of(place)} are left")
        shutil.rmtree(f"{place}/c")
        os.remove(log)
        says(f"^error: {full}$", work.run("dp", place, *steps, "--on-save-error", "stop",
                                          status=1))
        if not steps_of(place) or steps_of(place)[-1] == 60:
            raise RuntimeError(f"{steps_of(place)} are left")
        # Room comes while the run goes on.
        shutil.rmtree(f"{place}/c")
        os.remove(log)
        process = work.start("dp", place, "--steps", "1000000000", *steps[2:])
        await_steps(process, f"{place}/log", 10)
        end = time.time() + 60
        while time.time() < end and max(steps_of(place), default=0) < 60:
            time.sleep(0.01)
        subprocess.run(["mount", "-o", "remount,size=64m", f"{place}/log"], check=True)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        says(rf"^'{log}' can be written again, and has all lines that waited$",
             ends_with(process, 143))
        with open(log) as file:
            numbers = [json.loads(line)["step"] for line in file]
        if numbers != list(range(1, steps_of(place)[-1] + 1)):
            raise RuntimeError(f"the log has {len(numbers)} lines: {numbers[:5]}…")
        # A run that is told to end while lines wait, and goes on, says which are missing.
        subprocess.run(["mount", "-o", "remount,size=8k", f"{place}/log"], check=False)
        shutil.rmtree(f"{place}/c")
        os.remove(log)
        subprocess.run(["mount", "-o", "remount,size=8k", f"{place}/log"], check=True)
        process = work.start("dp", place, "--steps", "1000000000", *steps[2:])
        await_steps(process, f"{place}/log", 10)
        end = time.time() + 60
        while time.time() < end and max(steps_of(place), default=0) < 60:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        says(rf"^{full}; lines from step \d+ on are lost$", ends_with(process, 143))
        made = steps_of(place)[-1]
        subprocess.run(["mount", "-o", "remount,size=64m", f"{place}/log"], check=True)
        says(rf"^'{log}' lacks lines of steps \d+ to {made}$",
             work.run("dp", place, "--steps", str(made + 1), "--log", log, "--resume"))
    finally:
        subprocess.run(["umount", "-l", f"{place}/log"], check=True)
    print("a log on a full disk: told, and the run goes on", flush=True)
