"""Runs a command, and interrupts it once a line of its standard error has a word.
usage: end_search.py WORD -- COMMAND…; prints the command's output and exit status"""
import signal
import subprocess
import sys

word, command = sys.argv[1], sys.argv[3:]
process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
for line in process.stderr:
    if word in line:
        process.send_signal(signal.SIGINT)
        break
out, err = process.communicate(timeout=120)
print(out, f"status {process.returncode}", err, sep="\n")
