#!/usr/bin/env python3
"""Adds up JUnit files: prints failures and "N passed, N failed, N skipped"."""
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def main(paths):
    passed = failed = skipped = 0
    for path in paths:
        if not pathlib.Path(path).is_file():
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
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    # A run in which nothing passed has tested nothing.
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
