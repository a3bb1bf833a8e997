"""Runs a command that must end with a status and one sentence on standard error.

usage: status.py [--full] STATUS COMMAND…

--full: standard output is a full disk.
"""
import subprocess
import sys

full = sys.argv[1] == "--full"
status, *command = sys.argv[1 + full:]
with open("/dev/full" if full else "/dev/null", "w") as out:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out,
                          stderr=subprocess.PIPE, text=True, timeout=120)
lines = [line for line in done.stderr.splitlines() if not line.endswith("…")]
if done.returncode != int(status) or len(lines) != 1 or not lines[0].startswith("error: "):
    sys.exit(f"{' '.join(command)}: status {done.returncode}, expected {status}: {lines}")
if full and "cannot write to standard output" not in lines[0]:
    sys.exit(f"{' '.join(command)}: {lines[0]}")
