#!/usr/bin/env python3
"""Sums of 16 bits that go level by level are rounded once.

usage: run_levels.py PARTITA

The loop of a product is split over eight ranks, on two hosts of four (of two, f32 would take away
what levels save). Its sum is an all-reduce, or a reduce-scatter where the rows of the result stay
in parts. Each element is within one rounding of that of the sum in one go, whose parts are the
same, and almost always equal; rounded at each level it would not be. All transports give the same
bits, and `verify` agrees.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CLUSTER = {"device": {"name": "core", "peak": {"f32": 1e12}, "memory": "16GiB",
                      "memory_bandwidth": 1e11},
           "levels": [{"name": "host", "size": 4, "bandwidth": 3e11, "latency": 1e-9},
                      {"name": "network", "size": 2, "bandwidth": 1e9, "latency": 1e-9}],
           "host": {"memory": "64GiB", "bandwidth": 26e9}}
#: Bits of the fraction.
DIGITS = {"bf16": 7, "f16": 10}
ROWS, DEPTH, WIDTH = 64, 256, 96


def call(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[:600]}")
    return done.stdout


def model(path, random):
    """A product whose result another op reads."""
    weight = random.standard_normal((DEPTH, WIDTH)).astype(np.float32)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, DEPTH])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [ROWS, WIDTH])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
             helper.make_node("Relu", ["p"], ["y"], "relu")]
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


class Case:
    def __init__(self, partita, work, compute, mesh, hints):
        self.partita, self.work, self.compute = partita, work, compute
        with open(f"{work}/hints.json", "w") as file:
            json.dump({"tensors": hints}, file)
        self.options = ["--mesh", mesh, "--mode", "semi-auto", "--hints",
                        f"{work}/hints.json", "--compute", compute]

    def run(self, name, *more):
        """The output, the same on all transports, and the kinds and axes of collectives."""
        bundle = f"{self.work}/{name}"
        call(self.partita, "compile", f"{self.work}/m.onnx", "-o", bundle, "--force",
             *self.options, *more)
        if "checked: equal" not in call(self.partita, "verify", bundle):
            raise RuntimeError(f"{name}: verify does not agree")
        outputs = []
        for transport in ("local", "mpi"):
            call(self.partita, "run", bundle, "--inputs-dir", f"{self.work}/inputs",
                 "--outputs-dir", f"{bundle}-{transport}", "--npy", "--transport", transport)
            outputs.append(np.load(f"{bundle}-{transport}/output_0.npy"))
        if outputs[0].tobytes() != outputs[1].tobytes():
            raise RuntimeError(f"{name}: local and mpi differ")
        with open(f"{bundle}/plan.json") as file:
            stage = json.load(file)["entries"][0]["stages"][0]
        return outputs[0], [(it["op"], it["axes"]) for it in stage["collectives"]]


def rounded(values, compute):
    """To the nearest number of the type, of two as near to the even one."""
    if compute == "f16":
        return values.astype(np.float16).astype(np.float32)
    bits = values.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7fff + (bits >> 16 & 1) & 0xffff0000).astype(np.uint32)).view(np.float32)


def check(case, what, words, expected, expected_calls, least_equal=0.97):
    flat, _ = case.run("flat")
    several, calls = case.run("several", *words)
    if calls != expected_calls:
        raise RuntimeError(f"{what}: collectives {calls}")
    step = np.exp2(np.floor(np.log2(np.maximum(np.abs(flat), 1e-30))) - DIGITS[case.compute])
    apart = np.abs(several - flat) / step
    # A kernel that reads a sum in parts may use it as it was before it is rounded.
    equal = np.mean(rounded(several, case.compute) == rounded(flat, case.compute))
    exact = np.abs(np.maximum(expected, 0) - several).max()
    print(f"{what}, {case.compute}: {100 * equal:.1f}% equal, at most {apart.max():.2f} units "
          f"of the last place from the sum in one go, {exact:.4f} from the exact one",
          flush=True)
    if apart.max() > 1 or equal < least_equal:
        raise RuntimeError(f"{what}: not within one rounding")


def main():
    partita = sys.argv[1]
    random = np.random.default_rng(5)
    with tempfile.TemporaryDirectory(prefix="partita-levels-") as work:
        model(f"{work}/m.onnx", random)
        os.mkdir(f"{work}/inputs")
        x = random.standard_normal((ROWS, DEPTH)).astype(np.float32)
        with open(f"{work}/inputs/input_0.pb", "wb") as file:
            file.write(numpy_helper.from_array(x, "x").SerializeToString())
        with open(f"{work}/cluster.json", "w") as file:
            json.dump(CLUSTER, file)
        weight = numpy_helper.to_array(onnx.load(f"{work}/m.onnx").graph.initializer[0])
        exact = x.astype(np.float64) @ weight.astype(np.float64)
        levels = ["--cluster", f"{work}/cluster.json", "--hierarchical"]
        for compute in DIGITS:
            whole = Case(partita, work, compute, "tp=8", {"w": ["tp", None]})
            check(whole, "all-reduce by level", levels, exact,
                  [("reduce_scatter", "tp:(2)4"), ("all_reduce", "tp:(1)2"),
                   ("all_gather", "tp:(2)4")])
            parts = Case(partita, work, compute, "tp=8",
                         {"w": ["tp", None], "y": ["tp", None]})
            check(parts, "reduce-scatter by level", levels, exact,
                  [("reduce_scatter", "tp:(2)4"), ("reduce_scatter", "tp:(1)2")])


main()
