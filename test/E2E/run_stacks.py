#!/usr/bin/env python3
"""Slices of what was stacked and joined, which read the parts (passes/Simplify/ReadParts.h):
one model of many drawn cases, on 1 and 2 ranks, equal to ONNX Runtime bit by bit.

usage: run_stacks.py PARTITA [--cases 60] [--seed 1]
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from run_nodes import FREE


class Builder:
    """Each case: parts, joined along a dim (stacked, or stacks of joined ones), sliced."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.values = np.random.default_rng(seed)
        self.nodes, self.inputs, self.constants, self.outputs = [], {}, [], []

    def constant(self, values):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def node(self, op, inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"n{name}", **attributes))
        return name

    def input(self, shape):
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.values.random(shape, np.float32)
        return name

    def joined(self, shape, depth):
        """A value of this shape, made of parts."""
        d = self.draw.randrange(len(shape))
        if depth == 0 or shape[d] == 1:
            return self.input(shape)
        if self.draw.random() < 0.5 and len(shape) > 1 and shape[0] <= 4:  # a stack
            parts = [self.node("Unsqueeze", [self.joined(shape[1:], depth - 1),
                                             self.constant([0])]) for _ in range(shape[0])]
            return self.node("Concat", parts, axis=0)
        cut = self.draw.randint(1, shape[d] - 1)
        parts = [self.joined([*shape[:d], size, *shape[d + 1:]], depth - 1)
                 for size in (cut, shape[d] - cut)]
        return self.node("Concat", parts, axis=d - len(shape) * self.draw.randint(0, 1))

    def case(self):
        shape = [self.draw.choice([2, 3, 4]), *(self.draw.choice([1, 4, 6, 9])
                                                for _ in range(self.draw.randint(1, 3)))]
        value = self.joined(shape, self.draw.randint(1, 3))
        for _ in range(self.draw.randint(1, 2)):
            d = self.draw.randrange(len(shape))
            start, end = sorted(self.draw.sample(range(shape[d] + 1), 2))
            step = self.draw.choice([1, 1, 1, 2, -1])
            if step == 2:
                size = (end - start + 1) // 2
            else:
                size = end - start
            if step == -1:
                start, end = end - 1, start - 1 - shape[d]
            value = self.node("Slice", [value, *(self.constant([number]) for number in
                                                 (start, end, d, step))])
            shape = [*shape[:d], size, *shape[d + 1:]]
        if shape[0] == 1 and len(shape) > 1:
            value = self.node("Squeeze", [value, self.constant([0])])
            shape = shape[1:]
        value = self.node("Neg", [value])  # an op that moves nothing reads it
        self.outputs.append(helper.make_tensor_value_info(value, 1, shape))

    def model(self):
        inputs = [helper.make_tensor_value_info(name, 1, value.shape)
                  for name, value in self.inputs.items()]
        return helper.make_model(
            helper.make_graph(self.nodes, "stacks", inputs, self.outputs, self.constants),
            ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


def call(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True,
                          timeout=300)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()
    builder = Builder(a.seed)
    for _ in range(a.cases):
        builder.case()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        onnx.save(builder.model(), work / "model.onnx")
        (work / "inputs").mkdir()
        for i, (name, value) in enumerate(builder.inputs.items()):
            (work / "inputs" / f"input_{i}.pb").write_bytes(
                numpy_helper.from_array(value, name).SerializeToString())
        wanted = onnxruntime.InferenceSession(work / "model.onnx").run(None, builder.inputs)
        # Of the model as it was read, how much is still joined.
        call(a.partita, "compile", work / "model.onnx", "--to", "L0", "--dump-dir", work)
        left = (work / "00-imported.mlir").read_text().count("graph.concat")
        made = sum(node.op_type == "Concat" for node in builder.nodes)
        print(f"{made} concatenations in the model, {left} after import")
        if not 0 < left < made * 2 / 3:  # nine in ten are left where slices do not
            sys.exit("slices do not read the parts")
        for ranks in (1, 2):
            cluster = {**FREE, "levels": [{**FREE["levels"][0], "size": ranks}]}
            (work / "cluster.json").write_text(json.dumps(cluster))
            bundle, out = work / f"bundle{ranks}", work / f"out{ranks}"
            call(a.partita, "compile", work / "model.onnx", "-o", bundle, "--mesh",
                 f"d={ranks}", *(["--cluster", work / "cluster.json"] if ranks > 1 else []))
            call(a.partita, "run", bundle, "--inputs-dir", work / "inputs",
                 "--outputs-dir", out)
            for k, value in enumerate(wanted):
                tensor = onnx.TensorProto()
                tensor.ParseFromString((out / f"output_{k}.pb").read_bytes())
                if not np.array_equal(numpy_helper.to_array(tensor), value):
                    sys.exit(f"output {k} differs on {ranks} ranks")
            print(f"{len(wanted)} cases equal ONNX Runtime on {ranks} ranks")


if __name__ == "__main__":
    main()
