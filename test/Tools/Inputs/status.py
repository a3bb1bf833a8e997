"""Runs a command that must end with a status and one sentence on standard error.

usage: status.py [--full | --tell] STATUS COMMAND…

--full: standard output is a full disk. --tell: the sentence is printed.
"""
import subprocess
import sys

full, tell = (sys.argv[1] == option for option in ("--full", "--tell"))
status, *command = sys.argv[1 + full + tell:]
with open("/dev/full" if full else "/dev/null", "w") as out:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out,
                          stderr=subprocess.PIPE, text=True, timeout=120)
lines = [line for line in done.stderr.splitlines() if not line.endswith("…")]
if done.returncode != int(status) or len(lines) != 1 or not lines[0].startswith("error: "):
    sys.exit(f"{' '.join(command)}: status {done.returncode}, expected {status}: {lines}")
if full and "cannot write to standard output" not in lines[0]:
    sys.exit(f"{' '.join(command)}: {lines[0]}")
if tell:
    print(lines[0])
