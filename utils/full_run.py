#!/usr/bin/env python3
"""The table of full runs in docs/checks.md.

usage: full_run.py age                  says how many commits ago the full tier was run last
       full_run.py tree                 prints the commit at hand, with a "+" behind it where
                                        the tree has changes
       full_run.py record TREE SUM      writes the row of this kind of processor; TREE is what
                                        `tree` printed before the run began, SUM the run's
                                        last line
"""
import datetime
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs/checks.md"
ROW = re.compile(r"^\| (\d{4}-\d\d-\d\d) \| ([0-9a-f]{7,}) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def git(*arguments):
    """Output of a git command, or None where it fails."""
    done = subprocess.run(["git", "-C", PAGE.parent, *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def processor():
    """Widest vectors and products that this CPU has, and its name."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    flags = set(re.search(r"^flags\s*: (.*)$", text, re.MULTILINE)[1].split())
    name = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)[1].strip()
    for flag, kind in (("amx_tile", "AMX"), ("avx512_bf16", "AVX-512 BF16"),
                       ("avx512_vnni", "AVX-512 VNNI"), ("avx512f", "AVX-512"),
                       ("avx_vnni", "AVX-VNNI"), ("avx2", "AVX2")):
        if flag in flags:
            return f"{name}, {kind}"
    return name


def say_age():
    rows = ROW.findall(PAGE.read_text())
    ages = [(int(count), date, commit, kind) for date, commit, kind, _ in rows
            if (count := git("rev-list", "--count", f"{commit}..HEAD")) is not None]
    if not ages:
        print("[check] no full run of a commit before this one is in docs/checks.md")
        return
    count, date, commit, kind = min(ages)
    print(f"[check] the full tier was run last {count} commits ago "
          f"({date}, {commit}, {kind}): docs/checks.md")


def tree():
    return git("rev-parse", "--short", "HEAD") + ("+" if git(
        "status", "--porcelain", "--untracked-files=no") else "")


def record(commit, total):
    """Writes the row of the commit that was built, although others may have come since."""
    if commit.endswith("+"):
        print("[check] not recorded in docs/checks.md: the tree had changes without a commit")
        return
    row = f"| {datetime.date.today()} | {commit} | {processor()} | {total} |"
    lines = PAGE.read_text().splitlines()
    same = [i for i, line in enumerate(lines)
            if (found := ROW.match(line)) and found[3] == processor()]
    last = max(i for i, line in enumerate(lines) if line.startswith("|"))
    if same:
        lines[same[0]] = row
    else:
        lines.insert(last + 1, row)
    PAGE.write_text("\n".join(lines) + "\n")
    print("[check] recorded in docs/checks.md: " + row.strip("| "))


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "record":
        record(sys.argv[2], sys.argv[3])
    elif sys.argv[1:] == ["tree"]:
        print(tree())
    elif sys.argv[1:] == ["age"]:
        say_age()
    else:
        sys.exit(__doc__)
