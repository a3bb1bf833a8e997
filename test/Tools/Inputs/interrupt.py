#!/usr/bin/env python3
"""Starts a command, sends it SIGINT once it has written something into a folder, and prints
how it ended and what is left there.

usage: interrupt.py FOLDER COMMAND…
"""
import os
import signal
import subprocess
import sys
import time

folder, command = sys.argv[1], sys.argv[2:]
os.makedirs(folder)
job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
while not os.listdir(folder) and job.poll() is None:
    time.sleep(0.0005)
job.send_signal(signal.SIGINT)
status = job.wait(30)
print(f"ended by signal {-status}, left: {os.listdir(folder)}")
sys.exit(1 if status else 0)
