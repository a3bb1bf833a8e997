#!/usr/bin/env python3
"""Compiles one model of the zoo for many meshes, runs it on real ranks, and compares
every output with ONNX Runtime's.

usage: run_model.py PARTITA ZOO MODEL [--transports local,mpi] [--target-cpu NAME]
                    [--meshes dp=2,tp=2 tp=4 …] [--how auto threads …] [--target plain]

What counts as equal is in equality.py.
"""
import argparse
import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import onnx

import equality
import tier

# (mesh, how): data = batch over all axes; hints = weights over tp, batch over dp;
# vocabulary = the tables of embeddings by rows over tp (models of text); auto = the
# compiler's own choice; spatial = rows of images over h, columns over w; threads = auto
# with two threads per rank.
CASES = [
    ("", "auto"), ("", "threads"), ("tp=2", "threads"),
    ("dp=2", "data"), ("tp=2", "hints"),
    ("dp=3", "data"), ("tp=3", "auto"),
    ("dp=4", "data"), ("tp=4", "hints"), ("dp=2,tp=2", "hints"),
    ("dp=8", "data"), ("tp=8", "auto"), ("dp=2,tp=4", "hints"), ("dp=2,tp=4", "auto"),
    ("tp=4", "vocabulary"),
]
# Convolutional models of every kind of window: 7×7 with a stride, pools, depthwise.
SPATIAL_CASES = [("h=4", "spatial"), ("h=2,w=2", "spatial"), ("h=3", "spatial"),
                 ("dp=2,h=2,w=2", "spatial")]
SPATIAL_MODELS = ["ppocr-det", "resnet50-random", "squeezenet-random"]


class Failure(Exception):
    pass


def call(arguments, timeout=300):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise Failure(f"{' '.join(arguments)}\n{done.stdout[-500:]}{done.stderr[-1500:]}")
    return done.stdout


def shape_arguments(case, folder=""):
    for name, shape in case["shapes"].items():
        yield "--shape"
        yield name + "=" + ",".join(map(str, shape))
    for name in case.get("constants", []):
        yield "--const"
        yield f"{name}={os.path.join(folder, name)}.npy"


def weight_hints(ir, mesh, shapes):
    """Splits the output columns of every growing contraction and the output channels of
    every growing convolution over tp, and the batch over dp: Megatron where a model has
    its shape, and a mix of gathers and reductions elsewhere."""
    # What the importer folded has no name in the file.
    weights = {value: name
               for value, name in re.findall(r'(%\d+) = graph\.weight "([^"]+)"', ir)
               if not re.search(r"folded_\d+$", name)}
    hints = {}
    contract = r'graph\.contract (%\w+), (%\d+) \{equation = #graph.equation<"([^"]+)">\} : \(([^)]*)\)'
    tp = int(re.search(r"tp=(\d+)", mesh).group(1))
    for _, value, equation, types in re.findall(contract, ir):
        if value not in weights:
            continue
        (_, right), out = equation.split(" -> ")[0].split(", "), equation.split(" -> ")[1]
        dims = right.split()
        sizes = [int(n) for n in re.findall(r"(\d+)x", types.split(", tensor")[1])]
        columns = [d for d in dims if d in out.split() and d.startswith("n")]
        if len(dims) != 2 or len(columns) != 1:
            continue
        n = dims.index(columns[0])
        if sizes[n] >= sizes[1 - n] and sizes[n] % (tp * 4) == 0:
            hints[weights[value]] = [("tp" if d == n else None) for d in range(2)]
    conv = r"graph\.conv %\w+, (%\d+)[^:]*\{([^}]*)\} : \(([^)]*)\)"
    for value, attributes, types in re.findall(conv, ir):
        filter_type = types.split(", tensor")[1]
        sizes = [int(n) for n in re.findall(r"(\d+)x", filter_type)]
        if value in weights and "group" not in attributes and sizes[0] % tp == 0 \
                and sizes[0] >= sizes[1]:
            hints[weights[value]] = ["tp"] + [None] * (len(sizes) - 1)
    dp = re.search(r"dp=(\d+)", mesh)
    for name, shape in shapes.items():
        if dp and shape and shape[0] % int(dp.group(1)) == 0:
            hints[name] = ["dp"] + [None] * (len(shape) - 1)
    return {"tensors": hints}


def spatial_hints(model, mesh, shapes):
    """Splits the rows and columns that the first convolution writes; all others follow.
    The batch, where it divides, goes over dp."""
    nodes = onnx.load(model, load_external_data=False).graph.node
    first = next(node for node in nodes if node.op_type == "Conv")
    unique = first.name and sum(node.name == first.name for node in nodes) == 1
    name = first.name if unique else first.output[0]
    axes = [axis if axis + "=" in mesh else None for axis in ("h", "w")]
    hints = {"nodes": {name: {"out": [[None, None, *axes]]}}}
    if "dp=" in mesh:
        hints["tensors"] = {key: ["dp"] + [None] * (len(shape) - 1)
                            for key, shape in shapes.items() if shape[0] % 2 == 0}
    return hints


def vocabulary_hints(ir, mesh):
    """Splits every table that is looked up with tokens over tp, by rows, where there are
    enough of them."""
    tp = int(re.search(r"tp=(\d+)", mesh).group(1))
    weights = {value: name for value, name, rows in re.findall(
        r'(%\d+) = graph\.weight "([^"]+)".*?: tensor<(\d+)x', ir) if int(rows) >= tp}
    looked_up = re.findall(r"graph\.gather (%\d+), %\w+ \{axis = 0 : i64\}", ir)
    return {"tensors": {weights[table]: [["tp"], []]
                        for table in looked_up if table in weights}}


def run_case(arguments, folder, case, mesh, how, work):
    model = os.path.join(folder, "model.onnx")
    shapes = list(shape_arguments(case, folder))
    bundle = os.path.join(work, "bundle")
    compiler = getattr(arguments, "compiler", arguments.partita)
    command = [compiler, "compile", model, "-o", bundle, *shapes]
    if mesh:
        command += ["--mesh", mesh]
    if arguments.target:
        command += ["--target", arguments.target]
    if arguments.target_cpu:
        command += ["--target-cpu", arguments.target_cpu]
    if how == "threads":
        command += ["--threads", "2"]
    if how == "data":
        command += ["--mode", "data-parallel"]
    if how in ("hints", "vocabulary"):
        dump = os.path.join(work, "ir")
        call([arguments.partita, "compile", model, "--to", "L0", "--dump-dir", dump, *shapes])
        with open(os.path.join(dump, "00-imported.mlir")) as file:
            ir = file.read()
        hints = (vocabulary_hints(ir, mesh) if how == "vocabulary" else
                 weight_hints(ir, mesh, case["shapes"]))
        # The light models' weights are uniform constants: there is none to split.
        if "graph.weight" in ir and not any(
                "tp" in str(dims) for dims in hints["tensors"].values()):
            raise Failure("no weight to split was found: the hint generator is at fault")
    if how == "spatial":
        hints = spatial_hints(model, mesh, case["shapes"])
    if how in ("hints", "vocabulary", "spatial"):
        path = os.path.join(work, "hints.json")
        with open(path, "w") as file:
            json.dump(hints, file)
        command += ["--mode", "semi-auto", "--hints", path]
    arguments.summary = summary = call(command)
    if how == "spatial" and not re.search(r"^  halo ", summary, re.MULTILINE):
        raise Failure("no halo was exchanged: the spatial dims are not split")
    inputs = os.path.join(folder, "inputs")
    wide = equality.WideResults(arguments.partita, [bundle], inputs)
    figures = set()
    for transport in arguments.transports.split(","):
        out = os.path.join(work, "out-" + transport)
        call([arguments.partita, "run", bundle, "--transport", transport, "--inputs-dir",
              inputs, "--outputs-dir", out])
        for k in range(len(case["outputs"])):
            name = f"output_{k}.pb"
            figures.add(f"output {k} " + equality.check(
                equality.load(os.path.join(out, name)),
                equality.load(os.path.join(folder, "expected", name)), wide, k,
                f"output {k} by {transport}"))
    if how == "threads":
        again = os.path.join(work, "again")
        call([arguments.partita, "run", bundle, "--inputs-dir", inputs, "--outputs-dir",
              again, "--repeat", "3"])
        for k in range(len(case["outputs"])):
            name = f"output_{k}.pb"
            if not filecmp.cmp(os.path.join(work, "out-local", name),
                               os.path.join(again, name), shallow=False):
                raise Failure(f"output {k} differs from run to run")
    return "; ".join(sorted(figures))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("zoo")
    parser.add_argument("model")
    parser.add_argument("--transports", default="local,mpi")
    parser.add_argument("--meshes", nargs="+", help="only these")
    parser.add_argument("--how", nargs="+", help="only these")
    parser.add_argument("--target", help="cpu, or plain: without an engine")
    parser.add_argument("--target-cpu", help="compile for this CPU, not for the host")
    arguments = parser.parse_args()
    folder = os.path.join(arguments.zoo, arguments.model)
    with open(os.path.join(folder, "case.json")) as file:
        case = json.load(file)
    failed = 0
    cases = CASES + (SPATIAL_CASES if arguments.model in SPATIAL_MODELS else [])
    if arguments.meshes is not None:
        unknown = set(arguments.meshes) - {mesh for mesh, _ in cases}
        if unknown:
            parser.error(f"there is no case of mesh {', '.join(sorted(unknown))}")
        cases = [case for case in cases if case[0] in arguments.meshes]
    if arguments.how:
        cases = [case for case in cases if case[1] in arguments.how]
    if "input_ids" not in case["inputs"]:
        cases = [one for one in cases if one[1] != "vocabulary"]
    sweep = "-".join(["zoo", arguments.model, *filter(None, [arguments.target,
                                                             arguments.target_cpu])])
    for mesh, how in tier.sample(sweep, cases, kind=lambda one: one[1]):
        work = tempfile.mkdtemp(prefix="partita-e2e-")
        label = f"{arguments.model} {mesh or 'one rank'} ({how})"
        try:
            figures = run_case(arguments, folder, case, mesh, how, work)
            print(f"ok      {label}: {figures}", flush=True)
        except (Failure, equality.Unequal, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"FAILED  {label}: {error}", flush=True)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
