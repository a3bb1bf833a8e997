#!/usr/bin/env python3
"""Compiles models for a target that the compiler does not know (test/E2E/toy-target), runs
them, and compares every output with ONNX Runtime's (equality.py).

usage: run_toy.py PARTITA TOY-TARGET ZOO MODEL...

The toy's calls and its stage refuse what it does not have. A program that is cut as that of
`cpu` must be refused, else they look at nothing. One model more is written here: none of
the zoo adds a residual in the place of a result.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import equality
import run_model
import tier

CASES = [("", "auto"), ("tp=4", "auto"), ("tp=2", "threads")]
#: Of images: their halos are exchanged in the toy's order.
SPATIAL_CASES = [("h=3", "spatial"), ("h=2,w=2", "spatial")]


def write_residual(zoo):
    """Convolutions in a row, the third of which adds what the first has made."""
    random = np.random.default_rng(1)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 8, 12, 12])
              for name in ("x", "y")]
    links = [("x", "a"), ("a", "b"), ("b", "c"), ("sum", "y")]
    nodes = [helper.make_node("Conv", [source, f"w{target}"], [target], pads=[1, 1, 1, 1])
             for source, target in links]
    nodes.insert(3, helper.make_node("Add", ["c", "a"], ["sum"]))
    weights = [numpy_helper.from_array(
        random.standard_normal((8, 8, 3, 3), np.float32) / 8, f"w{target}")
        for _, target in links]
    model = helper.make_model(
        helper.make_graph(nodes, "residual", values[:1], values[1:], weights),
        opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    folder = os.path.join(zoo, "residual")
    for name in ("inputs", "expected"):
        os.makedirs(os.path.join(folder, name))
    path = os.path.join(folder, "model.onnx")
    onnx.save(model, path)
    x = random.standard_normal((2, 8, 12, 12), np.float32)
    y, = onnxruntime.InferenceSession(path).run(None, {"x": x})
    for place, name, value in (("inputs/input_0.pb", "x", x), ("expected/output_0.pb", "y", y)):
        with open(os.path.join(folder, place), "wb") as file:
            file.write(numpy_helper.from_array(value, name).SerializeToString())
    with open(os.path.join(folder, "case.json"), "w") as file:
        json.dump({"shapes": {"x": x.shape}, "inputs": ["x"], "outputs": ["y"]}, file)


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
    own = tempfile.TemporaryDirectory(prefix="partita-toy-")
    write_residual(own.name)
    arguments.models.append("residual")
    failed, seen = 0, {}
    cases = [(model, *one) for model in arguments.models for one in CASES + (
        SPATIAL_CASES if model in run_model.SPATIAL_MODELS else [])]
    taken = tier.sample("toy-target", cases, lambda one: (one[0], one[2] == "spatial"))
    for model, mesh, how in taken:
        folder = os.path.join(own.name if model == "residual" else arguments.zoo, model)
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
    for name in ("calls", "sums", "broadcasts", "kernels", "chunks"):
        if not seen.get(name):
            failed += 1
            print(f"FAILED  no program has {name}: nothing of them was checked")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
