#!/usr/bin/env python3
"""Compares the suites that ctest has with test/suites.txt, both tiers.

usage: check_tiers.py BUILD TABLE [--write]

A line of the table is a suite's name, with "full" behind it where the quick tier leaves it out.
"""
import json
import pathlib
import subprocess
import sys


def suites_of(build):
    """{name: "full" or ""} by ctest's labels."""
    done = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"],
                          capture_output=True, text=True, check=True)
    suites = {}
    for test in json.loads(done.stdout)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        suites[test["name"]] = "full" if "full" in properties.get("LABELS", []) else ""
    return suites


def main(build, table, *options):
    suites, table = suites_of(build), pathlib.Path(table)
    rows = [line.split() for line in table.read_text().splitlines()
            if line and not line.startswith("#")]
    known = {name: "".join(rest) for name, *rest in rows}
    if "--write" in options:
        head = [line for line in table.read_text().splitlines() if line.startswith("#")]
        table.write_text("\n".join(head + [f"{name} {tier}".strip() for name, tier in
                                           sorted(suites.items())]) + "\n")
        return 0
    wrong = 0
    for name in sorted(suites.keys() | known.keys()):
        if name not in suites:
            print(f"suite {name} is in {table.name} and not in ctest: it was lost")
        elif name not in known:
            print(f"suite {name} is not in {table.name}")
        elif suites[name] != known[name]:
            print(f"suite {name} is of the {suites[name] or 'quick'} tier, by {table.name} "
                  f"of the {known[name] or 'quick'} one")
        else:
            continue
        wrong += 1
    quick = sum(not tier for tier in suites.values())
    print(f"{quick} suites in the quick tier, {len(suites)} in the full one, {wrong} wrong")
    return 1 if wrong or not suites else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
