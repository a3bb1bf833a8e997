#!/usr/bin/env python3
"""closed_pipe.py N COMMAND…: reads N lines of what it prints, closes the pipe, and says how it
ended, as a shell with `set -o pipefail` sees it."""
import subprocess
import sys

process = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
lines = [process.stdout.readline() for _ in range(int(sys.argv[1]))]
process.stdout.close()
errors = process.stderr.read()
status = process.wait(timeout=60)
print(f"{sum(map(bool, lines))} lines, status {128 - status if status < 0 else status}, "
      f"standard error {errors!r}")
