"""What a process that is gone wrote aside is removed by the next command that writes to the
same place; what somebody holds stays.

usage: abandoned.py OUT COMMAND…
"""
import fcntl
import os
import pathlib
import subprocess
import sys

GONE, HELD, WRITTEN = (digit * 16 for digit in "123")
out, *command = sys.argv[1:]
places = {name: pathlib.Path(f"{out}.tmp-{name}")
          for name in (GONE, HELD, "notes", "2024", "0123456789abcdef", WRITTEN)}
for name, place in places.items():
    if name in ("0123456789abcdef", WRITTEN):
        place.write_text("half written")
    else:
        place.mkdir(parents=True)
        (place / "half").write_text("written")
held = [os.open(places[name], os.O_RDONLY) for name in (HELD, WRITTEN)]
for lock in held:
    fcntl.flock(lock, fcntl.LOCK_EX)
done = subprocess.run(command, capture_output=True, text=True)
left = [name for name, place in places.items() if place.exists()]
if done.returncode != 0 or left != [HELD, "notes", "2024", WRITTEN]:
    sys.exit(f"left of {GONE} and 0123456789abcdef (gone), {HELD} and {WRITTEN} (held), notes "
             f"and 2024 (none of ours): {left}\n{done.stdout}{done.stderr}")
