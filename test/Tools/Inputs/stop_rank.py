#!/usr/bin/env python3
"""Starts a bundle under mpirun, stops one of its ranks while requests run, and prints what
the others say and the exit status.

usage: stop_rank.py BUNDLE RANKS INPUT
"""
import os
import signal
import subprocess
import sys
import threading

bundle, ranks, given = sys.argv[1:]
environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
                   OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
job = subprocess.Popen(
    ["mpirun", "-n", ranks, "--oversubscribe", "--bind-to", "none", "partita-run", bundle,
     "--input", given, "--repeat", "1000000000", "--timeout", "1"],
    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
# mpirun does not always end after a job that failed.
limit = threading.Timer(40, job.kill)
limit.start()
job.stdout.readline()  # the first request is done
threading.Thread(target=job.stdout.read, daemon=True).start()
with open(f"/proc/{job.pid}/task/{job.pid}/children") as file:
    children = [int(pid) for pid in file.read().split()]
stopped = None
for pid in children:
    with open(f"/proc/{pid}/environ") as file:
        if f"OMPI_COMM_WORLD_RANK={int(ranks) - 1}\0" in file.read():
            stopped = pid
os.kill(stopped, signal.SIGSTOP)
said = ""
for line in job.stderr:
    said += line
    if "partita, try again: " in line:
        break
print(said)
job.terminate()
try:
    job.wait(3)
except subprocess.TimeoutExpired:
    job.kill()
limit.cancel()
for pid in children:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
