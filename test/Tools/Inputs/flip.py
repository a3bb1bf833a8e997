"""Flips a bit of a byte of a file, counted from its end if the place is negative.

usage: flip.py FILE PLACE
"""
import sys

path, place = sys.argv[1], int(sys.argv[2])
with open(path, "r+b") as file:
    file.seek(place, 2 if place < 0 else 0)
    byte = file.read(1)
    file.seek(-1, 1)
    file.write(bytes([byte[0] ^ 64]))
