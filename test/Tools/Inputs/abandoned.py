"""What a process that is gone wrote aside is removed by the next command that writes to the
same place; what somebody holds stays.

usage: abandoned.py OUT COMMAND…
"""
import fcntl
import os
import pathlib
import subprocess
import sys

out, *command = sys.argv[1:]
places = {name: pathlib.Path(f"{out}.tmp-{name}")
          for name in ("1", "2", "notes", "0123456789abcdef", "3")}
for name, place in places.items():
    if name in ("0123456789abcdef", "3"):
        place.write_text("half written")
    else:
        place.mkdir(parents=True)
        (place / "half").write_text("written")
held = [os.open(places[name], os.O_RDONLY) for name in ("2", "3")]
for lock in held:
    fcntl.flock(lock, fcntl.LOCK_EX)
done = subprocess.run(command, capture_output=True, text=True)
left = [name for name, place in places.items() if place.exists()]
if done.returncode != 0 or left != ["2", "notes", "3"]:
    sys.exit(f"left of 1 and 0123456789abcdef (gone), 2 and 3 (held), and notes (none of "
             f"ours): {left}\n{done.stdout}{done.stderr}")
