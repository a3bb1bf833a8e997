"""Reads what `partita plan` printed: every other plan of the list takes as long or longer,
or does not fit. usage: never_worse.py [--only-names] NAME… < text"""
import re
import sys

text = sys.stdin.read()
plans = re.findall(r"^  (\S.*?) +[0-9.]+ .?s, ([0-9.]+) of ours, ([^\n]*)$", text, re.M)
names = [name for name, _, _ in plans]
only_names = sys.argv[1] == "--only-names"
assert names == sys.argv[1 + only_names:], (names, text)
for name, ratio, rest in plans:
    assert only_names or float(ratio) >= 1 or "does not fit" in rest, (name, ratio, text)
print("never worse:", ", ".join(f"{name} {ratio}" for name, ratio, _ in plans))
