"""Runs a command with address space for so many stacks of 8 MiB, and nothing besides.

usage: stacks.py NUMBER COMMAND…
"""
import os
import resource
import sys

STACK = 8 << 20
space = int(sys.argv[1]) * STACK
resource.setrlimit(resource.RLIMIT_STACK, (STACK, resource.getrlimit(resource.RLIMIT_STACK)[1]))
resource.setrlimit(resource.RLIMIT_AS, (space, space))
os.execvp(sys.argv[2], sys.argv[2:])
