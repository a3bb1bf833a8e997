#!/usr/bin/env python3
"""Adds up JUnit files: prints failures and "N passed, N failed, N skipped".

usage: sum_results.py [--sweeps FILE [--write]] JUNIT.xml…

--sweeps names what the sweeps of the run have said of themselves (test/E2E/tier.py): a sweep
that test/sweeps.txt lists and that was not run, or that has fewer cases than it says there, is
a failure, so that no case is lost. --write brings test/sweeps.txt up to date instead.
"""
import argparse
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

TABLE = pathlib.Path(__file__).resolve().parents[1] / "test/sweeps.txt"


def read_sweeps(path):
    """{name: (taken, total)} of lines "NAME TAKEN TOTAL"; a sweep in parts is added up."""
    sweeps = {}
    for line in path.read_text().splitlines():
        name, taken, total = line.split()
        before = sweeps.get(name, (0, 0))
        sweeps[name] = (before[0] + int(taken), before[1] + int(total))
    return sweeps


def read_table():
    """{name: number of cases} of test/sweeps.txt."""
    lines = TABLE.read_text().splitlines()
    return {name: int(total) for name, total in
            (line.split() for line in lines if line and not line.startswith("#"))}


def check_sweeps(sweeps):
    """Sentences that say which cases are missing."""
    known = read_table()
    for name, total in known.items():
        if name not in sweeps:
            yield f"sweep {name} was not run ({total} cases by test/sweeps.txt)"
        elif sweeps[name][1] < total:
            yield (f"sweep {name} has {sweeps[name][1]} cases, test/sweeps.txt says {total}: "
                   "some were lost")
        elif sweeps[name][0] == 0:
            yield f"sweep {name}: none of {total} cases was run"
    for name in sorted(sweeps.keys() - known.keys()):
        yield f"sweep {name} is not in test/sweeps.txt (utils/sum_results.py --write)"


def write_table(sweeps):
    head = [line for line in TABLE.read_text().splitlines() if line.startswith("#")]
    rows = [f"{name} {total}" for name, (_, total) in sorted(sweeps.items())]
    TABLE.write_text("\n".join(head + rows) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sweeps", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    passed = failed = skipped = 0
    for path in arguments.files:
        if not path.is_file():
            failed += 1
            print("FAILED:", path, "was not written: the suite did not end")
            continue
        for case in ElementTree.parse(path).iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
                print("FAILED:", case.get("classname") or "", case.get("name"))
            elif case.find("skipped") is not None:
                skipped += 1
            else:
                passed += 1
    if arguments.sweeps:
        sweeps = read_sweeps(arguments.sweeps)
        if arguments.write:
            write_table(sweeps)
            return 0
        for message in check_sweeps(sweeps):
            failed += 1
            print("FAILED:", message)
        print(f"sweeps: {sum(taken for taken, _ in sweeps.values())} of "
              f"{sum(total for _, total in sweeps.values())} cases were run")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    # A run in which nothing passed has tested nothing.
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
