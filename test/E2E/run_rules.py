#!/usr/bin/env python3
"""Ready rules on the models of the zoo: --hints megatron finds the blocks of every family,
as both exporters write it, and leads to two reductions a layer; what it has found and
writes to a file leads to the same program; the result equals ONNX Runtime's.

usage: run_rules.py PARTITA ZOO [--all] [--families F…] [--rule RULE] [--table FILE]

Without --all each export runs on one of the meshes, tp=2 or tp=4. --table writes what was
measured as a Markdown table.
"""
import argparse
import filecmp
import json
import os
import subprocess
import sys
import tempfile

import equality

# Reductions that the blocks of two layers make: attention and an MLP each. A decoder of T5
# has attention to the encoder beside, and an encoder of two layers before it.
FAMILIES = {"gpt2": 4, "llama": 4, "qwen2": 4, "mistral": 4, "phi3": 4, "gemma2": 4,
            "t5": 4 + 6, "bert": 4, "modernbert": 4, "dinov2": 4}
EXPORTERS = ["dynamo", "script"]
# Queries, keys and values of Phi-3 are one product whose grouped heads lie in three runs of
# unequal length: an exchange of what it computes, per layer, beside the reductions.
EXCHANGES = {"phi3": 2}


class Failure(Exception):
    pass


def call(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise Failure(f"{' '.join(arguments)}\n{done.stdout[-500:]}{done.stderr[-1500:]}")
    return done.stdout


def collectives(bundle):
    """One pair of op and bytes for each; the file has one entry for equal ones."""
    with open(os.path.join(bundle, "plan.json")) as file:
        return [(entry["op"], entry["bytes"])
                for entry in json.load(file)["stages"][0]["collectives"]
                for _ in entry["nodes"]]


def run_case(arguments, family, exporter, mesh, work):
    folder = os.path.join(arguments.zoo, f"{family}-{exporter}")
    with open(os.path.join(folder, "case.json")) as file:
        case = json.load(file)
    model = os.path.join(folder, "model.onnx")
    shapes = [text for name, shape in case["shapes"].items()
              for text in ("--shape", name + "=" + ",".join(map(str, shape)))]
    bundle, hints = os.path.join(work, "bundle"), os.path.join(work, "hints.json")
    call([arguments.partita, "compile", model, "-o", bundle, *shapes, "--mesh", mesh,
          "--hints", arguments.rule, "--write-hints", hints])
    made = [op for op, _ in collectives(bundle)]
    if arguments.rule == "megatron":
        reductions = made.count("all_reduce") + made.count("reduce_scatter")
        others = len(made) - reductions
        if reductions != FAMILIES[family] or others > EXCHANGES.get(family, 0):
            raise Failure(f"{reductions} reductions and {others} others, expected "
                          f"{FAMILIES[family]} reductions: {made}")
    irs = []
    for given in (arguments.rule, hints):
        irs.append(os.path.join(work, "ir-" + os.path.basename(given)))
        call([arguments.partita, "compile", model, "--to", "L3", "--dump-dir", irs[-1],
              *shapes, "--mesh", mesh, "--hints", given])
    if not filecmp.cmp(*(os.path.join(ir, "03-partitioned.mlir") for ir in irs),
                       shallow=False):
        raise Failure("the hints that it writes lead to another program")
    inputs, out = os.path.join(folder, "inputs"), os.path.join(work, "out")
    call([arguments.partita, "run", bundle, "--inputs-dir", inputs, "--outputs-dir", out])
    wide = equality.WideResults(arguments.partita, [bundle], inputs)
    figures = [equality.check(equality.load(os.path.join(out, f"output_{k}.pb")),
                              equality.load(os.path.join(folder, "expected",
                                                         f"output_{k}.pb")),
                              wide, k, f"output {k}")
               for k in range(len(case["outputs"]))]
    received = sum(size for _, size in collectives(bundle))
    counts = ", ".join(f"{made.count(op)} {op}" for op in sorted(set(made)))
    return counts, received, "; ".join(figures)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("zoo")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--families", nargs="+", default=list(FAMILIES))
    parser.add_argument("--rule", default="megatron")
    parser.add_argument("--table")
    arguments = parser.parse_args()
    failed, rows = 0, []
    cases = [(family, exporter) for family in arguments.families
             for exporter in EXPORTERS]
    for number, (family, exporter) in enumerate(cases):
        meshes = ["tp=2", "tp=4"]
        for mesh in meshes if arguments.all else [meshes[(number + number // 2) % 2]]:
            label = f"{family}-{exporter} {mesh}"
            with tempfile.TemporaryDirectory(prefix="partita-rules-") as work:
                try:
                    row = run_case(arguments, family, exporter, mesh, work)
                    rows.append((f"{family}-{exporter}", mesh, *row))
                    print(f"ok      {label}: {row[0]}; {row[1]} B; {row[2]}", flush=True)
                except (Failure, equality.Unequal, subprocess.TimeoutExpired) as error:
                    failed += 1
                    print(f"FAILED  {label}: {error}", flush=True)
    if arguments.table:
        with open(arguments.table, "w") as file:
            file.write("| model | mesh | collectives | bytes per rank | against ONNX "
                       "Runtime |\n|---|---|---|---|---|\n")
            for row in rows:
                file.write("| " + " | ".join(map(str, row)) + " |\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
