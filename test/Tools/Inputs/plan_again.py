"""Compiles a model, follows the plan that this wrote, and begins with its L2: all files of the
bundle must be the same each time, byte for byte.
usage: plan_again.py PARTITA WORK MODEL [--no-levels] [--planned] OPTION...
--no-levels: of entries and stages, of which no compile begins with L2.
--planned: `partita plan` finds the same, so that following its plan gives the same bytes but
for seconds of the search and those with overlap, which it alone tells."""
import difflib
import json
import os
import pathlib
import shutil
import subprocess
import sys


def told(text):
    """A plan without what one of the two commands alone says."""
    plan = json.loads(text)
    for entry in plan["entries"]:
        for name in ("search_seconds", "overlapped_seconds", "overlapped_lower_bound_seconds"):
            entry.get("certificate", {}).pop(name, None)
    return json.dumps(plan, indent=1)


def main(partita, work, model, *options):
    has_levels = "--no-levels" not in options
    is_planned = "--planned" in options
    options = [o for o in options if o not in ("--no-levels", "--planned")]
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)

    # By what a plan is decided, it is not followed.
    deciding = {"--mode", "--hints", "--memory", "--cluster", "--comm-in-flight",
                "--comm-reuse"}
    decided = [o for before, o in zip(["", *options], options)
               if not {before, o} & deciding
               and o not in ("--hierarchical", "--no-all-to-all")]

    def plan(name, options, *more):
        done = subprocess.run([partita, "compile", model, "-o", f"{work}/{name}", *options,
                               *more], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{name}: {done.stderr}")
        bundle = pathlib.Path(work, name)
        files = {str(file.relative_to(bundle)): file.read_bytes()
                 for file in sorted(bundle.rglob("*")) if file.is_file()}
        return files.pop("plan.json").decode(), files

    def same(what, expected, actual, files=None, its=None):
        if expected == actual and files != its:
            raise SystemExit(f"{what}: files differ: " + ", ".join(
                sorted(name for name in files.keys() | its.keys()
                       if files.get(name) != its.get(name))))
        if expected != actual:
            lines = difflib.unified_diff(expected.splitlines(), actual.splitlines(), "first",
                                         what, lineterm="", n=1)
            raise SystemExit("\n".join(list(lines)[:60]))

    levels = ["--dump-dir", f"{work}/ir"] if has_levels else []
    first, files = plan("first", options, *levels)
    for what, more in (("followed", ("--plan", f"{work}/first/plan.json")),
                       ("from L2", ("--from", "L2", *levels))):
        if what == "followed" or has_levels:
            again, its = plan(what, decided, *more)
            same(what, first, again, files, its)
    if is_planned:
        done = subprocess.run([partita, "plan", model, "-o", f"{work}/planned.json",
                               "--work", "4000000", *options], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"plan: {done.stderr}")
        same("planned", told(first), told(plan("by-plan", decided, "--plan",
                                               f"{work}/planned.json")[0]))
    entries = json.loads(first)["entries"]
    stages = [stage for entry in entries for stage in entry["stages"]]
    marks = sum(len(node["names"]) for stage in stages for node in stage["nodes"]
                if node.get("recompute"))
    values = sum(len(value["names"]) for stage in stages for value in stage.get("values", []))
    print(f"equal: {len(entries)} entries, {len(stages)} stages, {marks} marks, "
          f"{values} values, accumulation {entries[0].get('accumulation', 'given')}, "
          f"recompute {'chosen' if 'recompute' in entries[0] else 'given'}")


main(*sys.argv[1:])
