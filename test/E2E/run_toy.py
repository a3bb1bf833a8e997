#!/usr/bin/env python3
"""Compiles models for a target that the compiler does not know (test/E2E/toy-target), runs
them, and compares every output with ONNX Runtime's (equality.py).

usage: run_toy.py PARTITA TOY-TARGET ZOO MODEL...

The toy's calls and its stage refuse what it does not have. A program that is cut as that of
`cpu` must be refused, else they look at nothing.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import equality
import run_model
import tier

CASES = [("", "auto"), ("tp=4", "auto"), ("tp=2", "threads")]
#: Of images: their halos are exchanged in the toy's order.
SPATIAL_CASES = [("h=3", "spatial"), ("h=2,w=2", "spatial")]


def check_refused(arguments, folder, case):
    with tempfile.TemporaryDirectory() as work:
        bundle = os.path.join(work, "bundle")
        done = subprocess.run(
            [arguments.toy, "--cut-as-cpu", "compile", os.path.join(folder, "model.onnx"),
             "-o", bundle, *run_model.shape_arguments(case, folder)],
            capture_output=True, text=True, timeout=300)
        if done.returncode != 1 or "toy target" not in done.stderr or os.path.exists(bundle):
            raise run_model.Failure(f"what is cut as for cpu is not refused: exit status "
                                    f"{done.returncode}: {done.stderr}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("toy")
    parser.add_argument("zoo")
    parser.add_argument("models", nargs="+")
    arguments = parser.parse_args()
    arguments.transports = "local"
    arguments.target = arguments.target_cpu = None
    arguments.compiler = arguments.toy
    failed, seen = 0, {}
    cases = [(model, *one) for model in arguments.models for one in CASES + (
        SPATIAL_CASES if model in run_model.SPATIAL_MODELS else [])]
    for model, mesh, how in tier.sample("toy-target", cases, kind=lambda one: one[0]):
        folder = os.path.join(arguments.zoo, model)
        with open(os.path.join(folder, "case.json")) as file:
            case = json.load(file)
        label = f"{model} {mesh or 'one rank'} ({how})"
        try:
            check_refused(arguments, folder, case)
            with tempfile.TemporaryDirectory(prefix="partita-e2e-") as work:
                figures = run_model.run_case(arguments, folder, case, mesh, how, work)
            found = re.search(r"^toy: (.*)", arguments.summary, re.MULTILINE)[1]
            for name, count in re.findall(r"(\w+) (\d+)", found):
                seen[name] = seen.get(name, 0) + int(count)
            print(f"ok      {label}: {found}; {figures}", flush=True)
        except (run_model.Failure, equality.Unequal, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"FAILED  {label}: {error}", flush=True)
    for name in ("calls", "relus", "kernels", "chunks"):
        if not seen.get(name):
            failed += 1
            print(f"FAILED  no program has {name}: nothing of them was checked")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
