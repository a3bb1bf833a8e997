"""A folder of a compile that is gone is removed by the next compile to the same place; one
that somebody holds stays.

usage: abandoned.py PARTITA MODEL OUT
"""
import fcntl
import os
import pathlib
import subprocess
import sys

partita, model, out = sys.argv[1:]
folders = {name: pathlib.Path(f"{out}.tmp-{name}") for name in ("1", "2", "notes")}
for folder in folders.values():
    folder.mkdir()
    (folder / "half").write_text("written")
held = os.open(folders["2"], os.O_RDONLY)
fcntl.flock(held, fcntl.LOCK_EX)
subprocess.run([partita, "compile", model, "-o", out], check=True, capture_output=True)
left = [name for name, folder in folders.items() if folder.exists()]
if left != ["2", "notes"]:
    sys.exit(f"left of 1 (gone), 2 (held) and notes (none of ours): {left}")
