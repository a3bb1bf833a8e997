#!/usr/bin/env python3
"""Models of the zoo as pipelines of stages, on real ranks, against ONNX Runtime.

usage: run_stages.py PARTITA ZOO [--all] [--transports local,mpi]

A case is (model, stages, micro-batches, mesh, other arguments). What counts as equal is in
equality.py.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import equality

DYNAMIC = "gpt2-dynamo-dynamic"  # its batch can be sliced
CASES = [
    (DYNAMIC, 2, 4, "", []),
    (DYNAMIC, 3, 2, "tp=2;tp=1;tp=2", []),
    (DYNAMIC, 2, 2, "tp=2", ["--hints", "megatron"]),
    ("llama-dynamo", 4, 1, "", []),
    ("resnet50-random", 3, 1, "tp=1;h=2;tp=2", []),
    ("bert-dynamo", 2, 1, "dp=2", ["--mode", "data-parallel"]),
    (DYNAMIC, 4, 4, "tp=2;tp=1", ["--groups", "2"]),
    ("t5-dynamo", 5, 1, "tp=2", ["--groups", "2"]),
    ("t5-script-dynamic", 3, 8, "tp=2;tp=1;tp=2", []),
]
MORE = [(model, stages, micro, mesh, [])
        for model, micros in ((DYNAMIC, (1, 2, 4)), ("gpt2-builder-tied", (1,)),
                              ("resnet50-random", (1,)), ("bert-script", (1,)),
                              ("vit-dynamo", (1,)), ("ppocr-rec", (1,)),
                              ("t5-dynamo", (1,)), ("t5-script", (1,)),
                              ("t5-script-dynamic", (1, 3, 8)), ("squeezenet-random", (1,)))
        for micro in micros for stages in (2, 3, 4)
        for mesh in ("", "tp=2", ";".join(["tp=2", "tp=1", "dp=2", "tp=2"][:stages]))]
# Stages on fewer groups of ranks.
MORE += [(model, stages, micro, mesh, ["--groups", str(groups), "--schedule", schedule])
         for model, micros in ((DYNAMIC, (1, 2, 4)), ("gpt2-builder-tied", (1,)),
                               ("resnet50-random", (1,)), ("t5-script", (1,)))
         for micro in micros for stages, groups in ((3, 1), (3, 2), (4, 2), (5, 3))
         for mesh in ("", "tp=2", ";".join(["tp=2", "tp=1", "dp=2"][:groups]))
         for schedule in (("interleaved", "gpipe") if micro > 1 else ("interleaved",))]


def call(arguments, timeout=300):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)}\n{done.stdout[-500:]}"
                           f"{done.stderr[-1500:]}")
    return done.stdout


def run_case(arguments, case, work):
    name, stages, micro, mesh, more = case
    folder = os.path.join(arguments.zoo, name)
    with open(os.path.join(folder, "case.json")) as file:
        known = json.load(file)
    model = os.path.join(folder, "model.onnx")
    shapes = [text for key, shape in known["shapes"].items()
              for text in ("--shape", f"{key}=" + ",".join(map(str, shape)))]
    bundle, inputs = os.path.join(work, "bundle"), os.path.join(folder, "inputs")
    call([arguments.partita, "compile", model, "-o", bundle, *shapes, "--stages",
          str(stages), "--micro-batches", str(micro), *(["--mesh", mesh] if mesh else []),
          *more])
    report = call([arguments.partita, "report", bundle])
    if f"pipeline of {stages} stages" not in report:
        raise RuntimeError("the report does not speak of the pipeline")
    wide = equality.WideResults(arguments.partita, [model, *shapes], inputs)
    figures = set()
    for transport in arguments.transports.split(","):
        out = os.path.join(work, "out-" + transport)
        call([arguments.partita, "run", bundle, "--transport", transport, "--inputs-dir",
              inputs, "--outputs-dir", out, "--repeat", "2"])
        for k in range(len(known["outputs"])):
            figures.add(f"output {k} " + equality.check(
                equality.load(os.path.join(out, f"output_{k}.pb")),
                equality.load(os.path.join(folder, "expected", f"output_{k}.pb")), wide, k,
                f"output {k} by {transport}"))
    return "; ".join(sorted(figures))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("zoo")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--transports", default="local,mpi")
    arguments = parser.parse_args()
    failed = 0
    for case in CASES + (MORE if arguments.all else []):
        work = tempfile.mkdtemp(prefix="partita-stages-")
        label = (f"{case[0]} {case[1]} stages, {case[2]} micro-batches, mesh "
                 f"{case[3] or 'of one rank'} {' '.join(case[4])}").strip()
        try:
            print(f"ok      {label}: {run_case(arguments, case, work)}", flush=True)
        except (RuntimeError, equality.Unequal, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"FAILED  {label}: {error}", flush=True)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
