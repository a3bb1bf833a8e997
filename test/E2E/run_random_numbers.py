#!/usr/bin/env python3
"""Operators that draw random numbers draw the same ones on 1, 2, 3 and 4 ranks, bit by bit,
and ones that look like their distribution: mean, deviation, range, and no correlation
between neighbours in any dim.

usage: run_random_numbers.py PARTITA
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import equality

SHAPE = [24, 37, 41]
X = np.full(SHAPE, 2, np.float32)
CHANCE = np.full(SHAPE, 0.3, np.float32)


def model_of(node, inputs, initializers, types):
    graph = helper.make_graph(
        [node], "main",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)] if inputs else [],
        [helper.make_tensor_value_info(name, kind, None)
         for name, kind in zip(node.output, types)],
        [numpy_helper.from_array(value, name) for name, value in initializers.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model


def cases():
    """name, node, operand, initializers, types of the results, (mean, deviation), range"""
    def node(op, inputs, outputs=("y",), name="drawn", **attributes):
        return helper.make_node(op, inputs, list(outputs), name, **attributes)
    real, bools = [TensorProto.FLOAT], [TensorProto.FLOAT, TensorProto.BOOL]
    ratio = {"ratio": np.array(0.25, np.float32), "training": np.array(True)}
    yield "uniform", node("RandomUniform", [], shape=SHAPE, low=-1.0, high=3.0), None, {}, \
        real, (1, 4 / 12 ** 0.5), (-1, 3)
    yield "uniform_like", node("RandomUniformLike", ["x"], seed=3.5), X, {}, real, \
        (0.5, 12 ** -0.5), (0, 1)
    yield "normal", node("RandomNormal", [], shape=SHAPE, mean=1.0, scale=2.0), None, {}, \
        real, (1, 2), (-14, 16)
    yield "normal_like", node("RandomNormalLike", ["x"]), X, {}, real, (0, 1), (-7, 7)
    yield "bernoulli", node("Bernoulli", ["x"]), CHANCE, {}, real, (0.3, 0.21 ** 0.5), \
        (0, 1)
    yield "dropout", node("Dropout", ["x", "ratio", "training"], ["y", "mask"]), X, ratio, \
        bools, (2, 2 / 0.75 * (0.75 * 0.25) ** 0.5), (0, 8 / 3 + 1e-6)


def call(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise equality.Unequal(f"{arguments[1]}: {done.stderr.strip()}")


def look(values, moments, bounds):
    """Raises if the values are not of the distribution: at 36,408 of them, 6 standard
    errors of mean and correlation."""
    error = 6 / values.size ** 0.5
    mean, deviation = values.mean(), values.std()
    if abs(mean - moments[0]) > error * moments[1] or \
       abs(deviation / moments[1] - 1) > 2 * error:
        raise equality.Unequal(f"mean {mean:.4f}, deviation {deviation:.4f}, "
                               f"expected {moments}")
    if values.min() < bounds[0] or values.max() > bounds[1]:
        raise equality.Unequal(f"between {values.min()} and {values.max()}")
    normal = (values - mean) / deviation
    for dim in range(values.ndim):
        for distance in (1, 2, 16):
            near = np.take(normal, range(values.shape[dim] - distance), dim)
            far = np.take(normal, range(distance, values.shape[dim]), dim)
            if abs((near * far).mean()) > 6 / near.size ** 0.5:
                raise equality.Unequal(f"correlated over {distance} along dim {dim}")


def attempt(partita, work, node, operand, initializers, types, moments, bounds):
    path, folder = work / "model.onnx", work / "inputs"
    onnx.save(model_of(node, operand is not None, initializers, types), path)
    folder.mkdir()
    if operand is not None:
        tensor = numpy_helper.from_array(operand, "x")
        (folder / "input_0.pb").write_bytes(tensor.SerializeToString())
    first = None
    for mesh in ([], ["--mesh", "d=2"], ["--mesh", "d=3"], ["--mesh", "d=4"]):
        bundle, out = work / f"bundle{mesh[1:]}", work / f"out{mesh[1:]}"
        call(partita, "compile", path, "-o", bundle, *mesh)
        call(partita, "run", bundle, "--inputs-dir", folder, "--outputs-dir", out)
        results = [equality.load(out / f"output_{k}.pb") for k in range(len(types))]
        if first is None:
            first = results
            look(results[0].astype(np.float64), moments, bounds)
            if len(results) == 2 and not np.array_equal(results[1], results[0] != 0):
                raise equality.Unequal("the mask is not where elements stayed")
        if any(a.tobytes() != b.tobytes() for a, b in zip(results, first)):
            raise equality.Unequal(f"other numbers on {mesh[1]}")
    return first[0]


def main():
    partita, failed, drawn = sys.argv[1], 0, {}
    for name, *rest in cases():
        with tempfile.TemporaryDirectory(prefix="partita-numbers-") as work:
            try:
                drawn[name] = attempt(partita, pathlib.Path(work), *rest)
            except equality.Unequal as error:
                failed += 1
                print(f"{name}: {error}", flush=True)
    print(f"{'FAILED' if failed else 'ok'}: {len(drawn)} operators draw the same numbers on "
          "every mesh")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
